#pragma once

#include <cmath>
#include <limits>

#include "core/element.h"
#include "core/hits.h"
#include "core/lanes_scalar.h"
#include "core/row_cursor.h"

namespace safeops::scalar {

/// One row in plain C++: every verb is the loop that it says it is. The oracle of the SIMD rows and
/// the Row to step through in a debugger.
template <class E, std::size_t kInputs>
class PlainRow {
 public:
  using Real = double;
  using Wide = double;
  using Value = double;
  using Stored = ElementTraits<E>;

  PlainRow(const RowArguments& arguments, std::size_t row, Hits& hits)
      : arguments_(arguments),
        row_(row),
        hits_(hits),
        at_(RowCursor<E, kInputs>(arguments, row).pointers()) {}

  template <class F, class... P>
  double accumulate(F f, P... p) const {
    CompensatedSum sum;
    for (std::size_t j = 0; j < length(); ++j) {
      if constexpr (kInputs == 1) {
        sum.add(f(input(0, j), 0.0, p...));
      } else {
        sum.add(f(input(0, j), input(1, j), 0.0, p...));
      }
    }
    return sum.value();
  }
  template <class F, class... P>
  double max(F f, P... p) const {
    double best = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < length(); ++j) best = larger(best, value(f, j, p...));
    return best;
  }
  template <class F, class... P>
  void write(bool singular, const Resolution& policy, F f, P... p) const {
    if (at_.output == nullptr) return;
    for (std::size_t j = 0; j < length(); ++j) {
      const double result = singular && policy.fills ? policy.fill : value(f, j, p...);
      from_real(static_cast<typename Stored::Real>(result), at_.output[offset(kInputs, j)]);
    }
  }
  void report(Condition condition, bool met) const {
    if (met) hits_[condition].add(1, row_);
  }
  void report_raising(bool met) const {
    if (met) hits_.raising.add(1, row_);
  }
  double saved() const { return arguments_.saved[row_]; }
  void save(double value) const {
    if (arguments_.save) arguments_.save[row_] = value;
  }

 private:
  std::size_t length() const { return arguments_.layout.length; }
  std::ptrdiff_t offset(std::size_t which, std::size_t j) const {
    return arguments_.layout.operand[which].step * static_cast<std::ptrdiff_t>(j);
  }
  double input(std::size_t which, std::size_t j) const {
    return to_real(at_.input[which][offset(which, j)]);
  }
  template <class F, class... P>
  double value(F f, std::size_t j, P... p) const {
    if constexpr (kInputs == 1) {
      return f(input(0, j), p...);
    } else {
      return f(input(0, j), input(1, j), p...);
    }
  }

  const RowArguments& arguments_;
  const std::size_t row_;
  Hits& hits_;
  const RowPointers<E, kInputs> at_;
};

}  // namespace safeops::scalar
