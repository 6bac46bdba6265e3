#pragma once

#include <cmath>
#include <limits>

#include "core/element.h"
#include "core/hits.h"
#include "core/lanes_scalar.h"
#include "core/row_cursor.h"

namespace safeops::scalar {

/// Element `i` of an array, widened.
inline double read_element(Element type, const void* array, std::ptrdiff_t i) {
  switch (type) {
    case Element::float16:
      return to_real(static_cast<const float16*>(array)[i]);
    case Element::bfloat16:
      return to_real(static_cast<const bfloat16*>(array)[i]);
    case Element::float32:
      return static_cast<const float*>(array)[i];
    case Element::float64:
      break;
  }
  return static_cast<const double*>(array)[i];
}
inline void write_element(double value, Element type, void* array, std::ptrdiff_t i) {
  switch (type) {
    case Element::float16:
      return from_real(static_cast<float>(value), static_cast<float16*>(array)[i]);
    case Element::bfloat16:
      return from_real(static_cast<float>(value), static_cast<bfloat16*>(array)[i]);
    case Element::float32:
      return from_real(static_cast<float>(value), static_cast<float*>(array)[i]);
    case Element::float64:
      return from_real(value, static_cast<double*>(array)[i]);
  }
}

/// One row in plain C++: every verb is the loop that it says it is. The oracle of the SIMD rows and
/// the Row to step through in a debugger. With kStaged the operands are what `storage` says.
template <class E, std::size_t kInputs, bool kStaged = false>
class PlainRow {
 public:
  using Real = double;
  using Wide = double;
  using Value = double;
  using Stored = ElementTraits<E>;

  PlainRow(const RowArguments& arguments, std::size_t row, Hits& hits)
      : arguments_(arguments), row_(row), hits_(hits), cursor_(arguments, row) {}

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
  double sum(F f, P... p) const {
    CompensatedSum sum;
    for (std::size_t j = 0; j < length(); ++j) sum.add(value(f, j, p...));
    return sum.value();
  }
  template <class Reduction>
  auto fold(Reduction reduce) const {
    return reduce(*this);
  }
  /// Keeps nothing.
  template <class F, class... P>
  double sum_keeping(F f, P... p) const {
    return sum(f, p...);
  }
  bool kept() const { return false; }
  template <class F, class... P>
  void write_kept(bool, const Resolution&, F, P...) const {}

  template <class F, class... P>
  void write(bool singular, const Resolution& policy, F f, P... p) const {
    if (arguments_.output == nullptr) return;
    const bool filled = singular && policy.fills;
    const bool whole = filled && policy.fill != policy.fill && storage().nan_fill_covers_masked;
    for (std::size_t j = 0; j < length(); ++j) {
      const double result = !whole && is_masked(j) ? storage().masked_output
                            : filled               ? policy.fill
                                                   : value(f, j, p...);
      write_element(result, kStaged ? storage().output : Stored::kElement, arguments_.output,
                    offset(kInputs, j));
    }
  }
  void report(Condition condition, bool met) const {
    if (met) hits_[condition].add(1, row_);
  }
  void report_raising(bool met) const {
    if (met) hits_.raising.add(1, row_);
  }
  double saved() const { return arguments_.saved[row_]; }
  double gradient() const { return arguments_.row_gradient[row_]; }
  double lowest() const { return lowest_finite(storage().input[0]); }
  void save(double value) const {
    if (arguments_.save) arguments_.save[row_] = value;
  }

 private:
  std::size_t length() const { return arguments_.layout.length; }
  const Storage& storage() const { return arguments_.storage; }
  std::ptrdiff_t offset(std::size_t which, std::size_t j) const {
    return cursor_.offset(which) +
           arguments_.layout.operand[which].step * static_cast<std::ptrdiff_t>(j);
  }
  bool is_masked(std::size_t j) const {
    return kStaged && storage().mask != nullptr && !storage().mask[offset(kMaskOperand, j)];
  }
  double input(std::size_t which, std::size_t j) const {
    if (is_masked(j)) return storage().masked_input[which];
    return read_element(kStaged ? storage().input[which] : Stored::kElement,
                        arguments_.input[which], offset(which, j));
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
  const RowCursor<E, kInputs, kMaxOperands> cursor_;
};

}  // namespace safeops::scalar
