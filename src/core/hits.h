#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "safeops/diagnostics.h"

namespace safeops {

inline constexpr std::size_t kNoRow = std::numeric_limits<std::size_t>::max();

/// Rows that met a condition, and the lowest of them.
struct Hit {
  std::uint64_t count = 0;
  std::size_t first = kNoRow;

  void add(std::uint64_t rows, std::size_t row) {
    count += rows;
    first = std::min(first, row);
  }
};

/// What one kernel execution met. `raising` holds the singular rows at which policy `raise` must
/// throw: in forward all of them, in backward those whose incoming gradient is not zero.
struct Hits {
  Hit of[kConditions];
  Hit raising;
  /// Elements of a forward execution whose value is regular and whose slope is singular: only a
  /// backward execution will count them.
  Hit latent;

  constexpr Hit& operator[](Condition condition) { return of[static_cast<int>(condition)]; }
  constexpr const Hit& operator[](Condition condition) const {
    return of[static_cast<int>(condition)];
  }

  /// Sums and minima commute, so the merged result does not depend on the order in which chunks
  /// finish.
  void merge(const Hits& other) {
    for (int i = 0; i < kConditions; ++i) of[i].add(other.of[i].count, other.of[i].first);
    raising.add(other.raising.count, other.raising.first);
    latent.add(other.latent.count, other.latent.first);
  }

  bool any() const {
    return latent.count != 0 ||
           std::any_of(std::begin(of), std::end(of), [](const Hit& hit) { return hit.count != 0; });
  }
};

}  // namespace safeops
