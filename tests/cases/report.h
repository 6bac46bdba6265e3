#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include "cases/rows.h"

namespace safeops::cases {

/// What a comparison with the oracle found. `failure` names the first thing that is wrong and the
/// input that shows it.
struct Report {
  std::string failure;
  double worst = 0;  ///< largest error in ulp among the elements that have a bound
  std::string witness;
  std::size_t elements = 0;

  bool good() const { return failure.empty(); }
  void fail(const std::string& what) {
    if (failure.empty()) failure = what;
  }
  void merge(const Report& other) {
    if (!other.good()) fail(other.failure);
    elements += other.elements;
    if (other.worst > worst) {
      worst = other.worst;
      witness = other.witness;
    }
  }
};

inline std::string text(double value) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%a (%.9g)", value, value);
  return buffer;
}

inline std::string place(std::size_t row, std::size_t i) {
  return "row " + std::to_string(row) + " element " + std::to_string(i);
}

/// Compares one element and remembers the worst. A trial is spelled out where it fails.
template <class Trial>
class Measure {
 public:
  /// `element` is that of the result; `second` is what the call had beside `input`, if anything.
  Measure(Report& report, Element element, const Rows& input, const Trial& trial,
          const Rows* second = nullptr)
      : report_(report), element_(element), input_(input), trial_(trial), second_(second) {}

  template <Number N>
  void operator()(std::size_t row, std::size_t i, double computed, const N& exact, const N& unit,
                  double bound) {
    const double error = error_in(unit, element_, computed, exact);
    ++report_.elements;
    if (error > report_.worst && !std::isinf(error)) {
      report_.worst = error;
      report_.witness = place(row, i) + " of " + operand(input_, row, i);
    }
    if (error <= bound) return;
    wrong(row, i, computed,
          text(to_double(exact)) + ", " + std::to_string(error) + " ulp off, " +
              std::to_string(bound) + " allowed");
  }

  void wrong(std::size_t row, std::size_t i, double computed, const std::string& expected) {
    report_.fail(place(row, i) + ": got " + text(computed) + ", expected " + expected + "; " +
                 spelled(trial_) + "; " + operand(input_, row, i) +
                 (second_ == nullptr ? "" : " beside " + operand(*second_, row, i)));
  }

 private:
  static std::string operand(const Rows& rows, std::size_t row, std::size_t i) {
    return describe(rows, row) + " with " + text(rows.at(row, i)) + " there";
  }

  Report& report_;
  Element element_;
  const Rows& input_;
  const Trial& trial_;
  const Rows* second_;
};

}  // namespace safeops::cases
