#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "cases/normalize_case.h"
#include "cases/wide.h"

namespace safeops::cases {

// The contract of normalize, in wide arithmetic and from its definition: no scaling, no slices, no
// shortcuts.

struct Norm {
  Wide value;
  bool has_nan = false;
  bool has_infinity = false;
};

inline Wide magnitude(const Rows& x, std::size_t row, std::size_t i, bool complex) {
  if (!complex) return std::fabs(x.at(row, i));
  const Wide real = x.at(row, 2 * i), imaginary = x.at(row, 2 * i + 1);
  if (imaginary.is_zero()) return abs(real);
  return sqrt(real * real + imaginary * imaginary);
}

inline Norm norm_of(const Rows& x, std::size_t row, double p, bool complex) {
  Norm norm;
  for (std::size_t i = 0; i < x.length; ++i) {
    norm.has_nan |= std::isnan(x.at(row, i));
    norm.has_infinity |= std::isinf(x.at(row, i));
  }
  const std::size_t elements = complex ? x.length / 2 : x.length;
  Wide total = p == -kInfinity ? kInfinity : 0.0;
  for (std::size_t i = 0; i < elements && !norm.has_nan; ++i) {
    const Wide size = magnitude(x, row, i, complex);
    if (p == kInfinity) {
      total = max(total, size);
    } else if (p == -kInfinity) {
      if (size < total) total = size;
    } else if (p == 0) {
      total += size.is_zero() ? 0.0 : 1.0;
    } else if (p == 1 || p == 2) {
      total += p == 1 ? size : size * size;
    } else if (p < 0 && size.is_zero()) {
      return norm;
    } else {
      total += pow(size, p);
    }
  }
  const bool is_sum = !std::isinf(p) && p != 0 && p != 1;
  norm.value = !is_sum ? total : p == 2 ? sqrt(total) : pow(total, Wide(1.0) / p);
  return norm;
}

/// Closer than the rounding of a norm can tell apart.
inline bool nearly_equal(const Wide& a, const Wide& b) { return abs(a - b) <= abs(b) * 1e-12; }

enum class RowClass {
  regular,
  zero_norm,
  below_eps,
  nonfinite,
  undecided,  ///< so close to the threshold that rounding decides: both answers are right
};

inline RowClass classify(const Norm& norm, double threshold, bool exact) {
  if (norm.has_nan || norm.has_infinity) return RowClass::nonfinite;
  if (norm.value.is_zero()) return RowClass::zero_norm;
  if (!exact && nearly_equal(norm.value, threshold)) return RowClass::undecided;
  return norm.value < threshold ? RowClass::below_eps : RowClass::regular;
}

/// Whether the kernel's norm has no rounding error.
inline bool norm_is_exact(const Rows& x, const Trial& trial) {
  return !trial.complex && (std::isinf(trial.p) || trial.p == 0 || x.length == 1) &&
         trial.road != Road::any;
}

/// With p <= 0 an infinite element leaves the norm finite, and complex infinities have many
/// quotients: the contract asks only that such rows are noticed.
inline bool is_open(const Norm& norm, const Trial& trial) {
  return norm.has_infinity && !norm.has_nan && (trial.complex || trial.p <= 0);
}

enum class Answer { no, yes, either };

/// Whether a naive sum of squares in the input's own type would have left its normal range.
inline Answer is_rescued(const Norm& norm, Element element) {
  if (norm.has_nan || norm.has_infinity || norm.value.is_zero()) return Answer::no;
  const Wide square = norm.value * norm.value;
  const Wide low = smallest_normal(element), high = largest(element);
  const Wide past_high = power_of_two(format(element).max_exponent + 1);
  if (nearly_equal(square, low) || nearly_equal(square, high) || nearly_equal(square, past_high))
    return Answer::either;
  if (square > high && square < past_high) return Answer::either;
  return square < low || square > high ? Answer::yes : Answer::no;
}

/// Bounds of a count and its first row, for rows that rounding may decide.
struct Expected {
  Hit least, most;

  void add(Answer answer, std::size_t row) {
    if (answer == Answer::yes) least.add(1, row);
    if (answer != Answer::no) most.add(1, row);
  }
  bool holds(const Hit& hit) const {
    if (hit.count < least.count || hit.count > most.count) return false;
    return hit.count == 0 ? hit.first == kNoRow
                          : hit.first >= most.first && hit.first <= least.first;
  }
};

struct ExpectedHits {
  Expected of[kConditions];
  Expected raising;

  Expected& operator[](Condition condition) { return of[static_cast<int>(condition)]; }

  /// `matters`: whether policy raise would have to throw if this row is singular.
  void add(const Norm& norm, RowClass row_class, Element element, std::size_t row, bool matters) {
    const auto yes_if = [](bool condition) { return condition ? Answer::yes : Answer::no; };
    const bool zero = row_class == RowClass::zero_norm;
    const Answer below = row_class == RowClass::undecided
                             ? Answer::either
                             : yes_if(row_class == RowClass::below_eps);
    (*this)[Condition::zero_norm].add(yes_if(zero), row);
    (*this)[Condition::below_eps].add(below, row);
    (*this)[Condition::nonfinite_input].add(yes_if(row_class == RowClass::nonfinite), row);
    (*this)[Condition::rescued].add(is_rescued(norm, element), row);
    if (matters) raising.add(zero ? Answer::yes : below, row);
  }
};

/// Largest permitted error in ulp of the result.
inline double forward_bound(Element element, double p, bool complex, std::size_t length) {
  const double logarithm = std::log2(static_cast<double>(length));
  const bool plain_norm = p == 2 && !complex;
  switch (element) {
    case Element::float16:
    case Element::bfloat16:
      return plain_norm ? 0.51 : 2;
    case Element::float32:
      return plain_norm ? 0.51 : 4 + logarithm / 4;
    case Element::float64:
      return plain_norm ? 2 + logarithm / 4 : 8 + logarithm / 2;
  }
  return 0;
}

/// In units of Gradient::unit. A slope is a power p - 1 of a rounded quotient, which multiplies the
/// quotient's error by p - 1; only float64 has no wider type to hide that in.
inline double backward_bound(Element element, double p, bool complex, std::size_t length) {
  if (p == 2 && !complex)
    return element == Element::float64 ? 8 : element == Element::float32 ? 4 : 1;
  const double bound = forward_bound(element, p, complex, length);
  const bool takes_power = element == Element::float64 && !std::isinf(p) && p != 0;
  return takes_power ? bound + 2 * std::fabs(p - 1) : bound;
}

/// dn/dx of the real numbers in a row; with complex elements 2 i is the real part of element i.
/// Zero elements have no slope, and the largest (p = -inf: smallest) elements share it.
inline std::vector<Wide> slope_of(const Rows& x, std::size_t row, const Wide& norm, double p,
                                  bool complex) {
  const std::size_t parts = complex ? 2 : 1;
  std::vector<Wide> sizes;
  for (std::size_t i = 0; i < x.length / parts; ++i) sizes.push_back(magnitude(x, row, i, complex));
  const auto ties = static_cast<double>(std::count(sizes.begin(), sizes.end(), norm));
  std::vector<Wide> slope;
  for (std::size_t part = 0; part < x.length; ++part) {
    const Wide& size = sizes[part / parts];
    if (p == 0 || size.is_zero()) {
      slope.emplace_back(0.0);
    } else {
      const Wide direction = Wide(x.at(row, part)) / size;
      const Wide weight = std::isinf(p) ? Wide(size == norm ? 1.0 / ties : 0.0)
                          : p == 1      ? Wide(1.0)
                          : p == 2      ? size / norm
                                        : pow(size / norm, Wide(p) - 1.0);
      slope.push_back(direction * weight);
    }
  }
  return slope;
}

/// <y, g> and the sums that say how far rounding may move it.
struct Dot {
  Wide value = 0.0, weight = 0.0;       ///< sum y g, sum abs(y g)
  Wide gradients = 0.0, largest = 0.0;  ///< sum abs(g), max abs(g)
  bool infinite_gradient = false, tiny_y = false;

  Dot(const Rows& g, const Rows& x, std::size_t row, const Wide& norm) {
    for (std::size_t i = 0; i < g.length; ++i) {
      const Wide y = Wide(x.at(row, i)) / norm, product = y * g.at(row, i);
      value += product;
      weight += abs(product);
      gradients += abs(Wide(g.at(row, i)));
      largest = max(largest, std::fabs(g.at(row, i)));
      infinite_gradient |= std::isinf(g.at(row, i));
      tiny_y |= !y.is_zero() && abs(y) < smallest_normal(Element::float64);
    }
  }
};

/// grad_x of one row. `unit` is an ulp of the largest number that has to be rounded on the way to
/// an element.
struct Gradient {
  std::vector<Wide> value;
  std::vector<Wide> unit;
  bool open = false;  ///< infinity times a y that float64 cannot tell from 0: infinite or NaN
};

/// What float64 loses below its normal range, having no wider type to go to: of a y that is
/// subnormal, and of products with g. A row of small gradients can be scaled up by 2^500 as a
/// whole; one that reaches far above the bottom of the range cannot, and one whose sum overflows is
/// scaled down by 2^64.
inline Wide underflow_of(const Dot& dot, const Wide& slope, std::size_t length) {
  const Wide quantum = smallest_subnormal(Element::float64);
  const bool scaled_up =
      dot.largest<power_of_two(-950), scaled_down = dot.weight> power_of_two(950);
  const Wide lost = (abs(slope) * static_cast<double>(length) + 1.0) * quantum;
  const Wide products = scaled(lost, scaled_up ? -500 : scaled_down ? 64 : 0);
  if (!dot.tiny_y) return products;
  return products + (abs(slope) * dot.gradients + abs(dot.value)) * quantum;
}

/// An error of the product sum weighs with sum abs(y g): that is the condition number k of the
/// bounds, applied to the one term that it amplifies. Half types form the sum exactly or in fp64.
inline Wide unit_of(const Rows& g, const Dot& dot, const Wide& value, const Wide& incoming,
                    const Wide& slope, const Wide& norm) {
  const Wide along = abs(slope * dot.value);
  const Wide term = max(max(abs(incoming), along) / norm, abs(value));
  const Wide summed = abs(slope) * dot.weight / norm;
  const Element summed_in = format(g.element).bytes == 2 ? Element::float64 : g.element;
  const Wide unit = max(ulp(g.element, term), ulp(summed_in, summed));
  return g.element == Element::float64 ? unit + underflow_of(dot, slope, g.length) / norm : unit;
}

/// (g - slope <x / n, g>) / n.
inline Gradient gradient_of_row(const Rows& g, const Rows& x, std::size_t row, const Wide& norm,
                                double p, bool complex) {
  const std::vector<Wide> slope = slope_of(x, row, norm, p, complex);
  const Dot dot(g, x, row, norm);
  Gradient result;
  result.open = dot.infinite_gradient && dot.tiny_y;
  for (std::size_t i = 0; i < g.length; ++i) {
    const Wide incoming = g.at(row, i);
    result.value.push_back((incoming - slope[i] * dot.value) / norm);
    const Wide& value = result.value.back();
    const bool finite = !value.is_nan() && !value.is_infinite();
    result.unit.push_back(finite ? unit_of(g, dot, value, incoming, slope[i], norm) : Wide(1.0));
  }
  return result;
}

}  // namespace safeops::cases
