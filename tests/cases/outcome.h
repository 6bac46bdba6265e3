#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cases/rows.h"
#include "core/hits.h"
#include "safeops/policy.h"

namespace safeops::cases {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline constexpr Policy kAllPolicies[] = {Policy::stock, Policy::nan, Policy::epsilon, Policy::zero,
                                          Policy::raise};

/// A value that no kernel saves in this form.
inline constexpr double kNeverSaved = -1.5;

/// The kernels that compute the same thing.
enum class Road {
  dispatched,  ///< the SIMD kernels, on the target in use
  plain,       ///< the scalar program
  any,         ///< normalize: the scalar kernel for every p
};
inline constexpr const char* kRoadNames[] = {"dispatched", "plain", "any"};

/// What a call left behind.
struct Outcome {
  Rows values;  ///< what the output rows hold
  std::vector<double> saved;
  Hits hits;
  std::size_t disturbed = 0;  ///< bytes changed that the call does not own
};

/// What output rows hold before a call: a value that no kernel has a reason to write.
inline Rows untouched(const Rows& like) {
  Rows rows(like.element, like.rows, like.length);
  std::fill(rows.bits.begin(), rows.bits.end(), encode(like.element, 123.0));
  return rows;
}

/// Whether two saved numbers are the same to the bit, NaN in any spelling.
inline bool same_number(double a, double b) {
  return (a != a && b != b) || std::memcmp(&a, &b, sizeof a) == 0;
}

/// The first thing in which two outcomes differ; empty if nothing does.
inline std::string difference(const Outcome& a, const Outcome& b) {
  if (a.disturbed + b.disturbed != 0) return "memory outside the output rows was written";
  for (std::size_t i = 0; i < a.saved.size(); ++i) {
    if (!same_number(a.saved[i], b.saved[i])) return "saved number of row " + std::to_string(i);
  }
  for (std::size_t i = 0; i < a.values.bits.size(); ++i) {
    if (a.values.bits[i] == b.values.bits[i]) continue;
    return "row " + std::to_string(i / a.values.length) + " element " +
           std::to_string(i % a.values.length);
  }
  for (int i = 0; i < kConditions; ++i) {
    if (a.hits.of[i].count != b.hits.of[i].count || a.hits.of[i].first != b.hits.of[i].first)
      return "hits of " + std::string(name(static_cast<Condition>(i)));
  }
  const bool raise_the_same =
      a.hits.raising.count == b.hits.raising.count && a.hits.raising.first == b.hits.raising.first;
  return raise_the_same ? "" : "raising rows";
}

}  // namespace safeops::cases
