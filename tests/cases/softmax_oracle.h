#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "cases/softmax_case.h"
#include "cases/wide.h"

namespace safeops::cases {

// The contract of the softmax family from its definition, in wide arithmetic.

enum class RowState { regular, empty, nonfinite };

/// What decides about a row: the elements that take part.
template <Number N>
struct SoftmaxRow {
  RowState state = RowState::empty;
  bool has_nan = false;
  double largest = -kInfinity;
  N rest = 0.0;  ///< sum of exp(x - largest) without the one term that is 1

  SoftmaxRow(const Rows& x, std::size_t row, const Mask* mask) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < x.length; ++i) {
      if (!takes_part(mask, row, i)) continue;
      has_nan |= std::isnan(x.at(row, i));
      if (x.at(row, i) > largest) {
        largest = x.at(row, i);
        at = i;
      }
    }
    if (has_nan) largest = kNaN;
    if (largest == -kInfinity) return;
    state = std::isfinite(largest) ? RowState::regular : RowState::nonfinite;
    if (state == RowState::nonfinite) return;
    for (std::size_t i = 0; i < x.length; ++i) {
      if (i != at && takes_part(mask, row, i)) rest += exp(distance(x.at(row, i)));
    }
  }

  /// x - largest. MPFR has the exponents that long double lacks.
  N distance(double x) const { return N(x) - N(largest); }
  N sum() const { return rest + N(1.0); }
  N logsumexp() const { return N(largest) + log1p(rest); }
  N probability(double x) const { return exp(distance(x)) / sum(); }
  N log_probability(double x) const { return distance(x) - log1p(rest); }
};

/// Largest permitted error in ulp of a result, forward.
inline double softmax_bound(SoftmaxKind kind, Element element) {
  if (format(element).bytes == 2) return 1;
  const bool narrow = element == Element::float32;
  if (kind == SoftmaxKind::logsumexp) return narrow ? 2 : 4;
  return narrow ? 4 : 8;
}

/// Backward, in units of the largest term.
inline double softmax_backward_bound(Element element) {
  return element == Element::float64 ? 16 : element == Element::float32 ? 8 : 2;
}

/// A logarithm near 0 is the difference of two numbers near 1 or larger: there the bound is
/// absolute, 2u max(1, abs(y)), u = 2^-24 (float64: 4u, u = 2^-53). The result is the unit in which
/// that is softmax_bound().
template <Number N>
N unit_of_logarithm(SoftmaxKind kind, Element element, const N& exact) {
  const bool wide = element == Element::float64;
  const N absolute = scaled(max(N(1.0), abs(exact)), wide ? -51 : -23);
  return max(ulp(element, exact), absolute / N(softmax_bound(kind, element)));
}

/// A value and the unit its error is counted in.
template <Number N>
struct Judged {
  N value;
  N unit;
  bool open = false;  ///< infinity times a term that the kernel cannot tell from 0: infinite or NaN
};

/// Whether an infinite gradient meets a term that is 0, or may be, where terms are computed.
template <Number N>
bool meets_vanishing_term(Element element, const N& gradient, const N& term) {
  const Element computed_in = element == Element::float64 ? Element::float64 : Element::float32;
  return is_infinite(gradient) && term < N(smallest_normal(computed_in));
}

/// An element of softmax or log_softmax in a row that is not empty.
template <Number N>
Judged<N> forward_value(const SoftmaxRow<N>& row, SoftmaxKind kind, Element result, double x) {
  if (row.state == RowState::nonfinite) return {N(kNaN), N(1.0)};
  if (kind == SoftmaxKind::softmax) {
    const N value = row.probability(x);
    return {value, ulp(result, value)};
  }
  if (x == -kInfinity) return {N(-kInfinity), N(1.0)};
  const N value = row.log_probability(x);
  return {value, unit_of_logarithm(kind, result, value)};
}

/// What the policy table says of an element of an empty row; under raise nothing.
inline double empty_value(SoftmaxKind kind, Policy policy, double eps, bool part) {
  const bool logarithm = kind == SoftmaxKind::log_softmax;
  switch (policy) {
    case Policy::stock:
    case Policy::nan:
    case Policy::raise:
      return kNaN;
    case Policy::epsilon:
      return !logarithm ? 0 : part ? std::log(eps) : -kInfinity;
    case Policy::zero:
      break;
  }
  return logarithm ? -kInfinity : 0;
}

/// Sums over a row of backward: <y, g> of softmax, <1, g> of log_softmax, and the same of
/// magnitudes.
template <Number N>
struct GradientSum {
  N value = 0.0, weight = 0.0;

  GradientSum(const Rows& g, const Rows& y, std::size_t row, SoftmaxKind kind, const Mask* mask) {
    for (std::size_t i = 0; i < g.length; ++i) {
      if (!takes_part(mask, row, i)) continue;
      const N term =
          kind == SoftmaxKind::softmax ? N(y.at(row, i)) * N(g.at(row, i)) : N(g.at(row, i));
      value += term;
      weight += abs(term);
    }
  }
};

/// float64 has no wider type to go to: a term below its normal range has lost bits before a large
/// gradient lifts it back.
template <Number N>
N underflow_of_term(Element element, const N& gradient) {
  if (element != Element::float64) return N(0.0);
  return abs(gradient) * N(smallest_subnormal(Element::float64));
}

/// y (g - <y, g>) or g - e^y sum(g), from y as it was rounded. The unit is an ulp of the largest
/// term.
template <Number N>
Judged<N> gradient_value(const GradientSum<N>& sum, SoftmaxKind kind, Element result, double g,
                         double y) {
  const bool plain = kind == SoftmaxKind::softmax;
  const N slope = plain ? N(y) : exp(N(y));
  const N own = plain ? N(y) * N(g) : N(g);
  const N value = plain ? N(y) * (N(g) - sum.value) : N(g) - slope * sum.value;
  if (is_nan(value) || is_infinite(value))
    return {value, N(1.0), !plain && meets_vanishing_term(result, sum.value, slope)};
  const N largest = max(abs(own), abs(slope * sum.weight));
  const N lost = plain ? N(0.0) : underflow_of_term(result, sum.weight);
  return {value, max(ulp(result, value), ulp(result, largest)) + lost};
}

/// G e^x / sum(e^x). At +inf torch's own formula e^(x - logsumexp) is NaN, and 0 elsewhere.
template <Number N>
Judged<N> logsumexp_gradient(const SoftmaxRow<N>& row, Element result, double g, double x) {
  if (row.state == RowState::nonfinite) {
    const bool marked = row.has_nan || x == kInfinity;
    return {marked ? N(kNaN) : N(g) * N(0.0), N(1.0)};
  }
  const N term = row.probability(x), value = N(g) * term;
  if (is_nan(value) || is_infinite(value))
    return {value, N(1.0), meets_vanishing_term(result, N(g), term)};
  return {value, ulp(result, value) + underflow_of_term(result, N(g))};
}

}  // namespace safeops::cases
