#pragma once

#include <cmath>
#include <cstddef>
#include <optional>

#include "cases/division_case.h"
#include "cases/wide.h"

namespace safeops::cases {

// The contract of the division family from its tables, an element at a time, in wide arithmetic.

/// What an element must be.
template <Number N>
struct Expected {
  enum class How {
    anything,  ///< nothing is promised
    rounded,   ///< the value rounded once, the sign of a zero included
    near,      ///< within `bound` units of the value
  };
  How how = How::anything;
  N value = 0.0;
  double bound = 0;
  N unit = 1.0;
  std::optional<double> accepted;  ///< this in place of the value, if set
};

template <Number N>
Expected<N> exactly(const N& value) {
  return {Expected<N>::How::rounded, value, 0, N(1.0), {}};
}

template <Number N>
Expected<N> near(Element element, const N& value, double bound) {
  const bool finite = !is_nan(value) && !is_infinite(value);
  return {Expected<N>::How::near, value, bound, finite ? ulp(element, value) : N(1.0), {}};
}

/// Largest permitted error in ulp, forward.
inline double division_bound(DivisionKind kind, Element element) {
  return kind == DivisionKind::rsqrt && element == Element::float64 ? 1.5 : 1;
}
inline double division_backward_bound(Element element) {
  return element == Element::float64 ? 4 : element == Element::float32 ? 1.5 : 1;
}

/// Why an element is singular; none where it is regular.
inline std::optional<Condition> condition_of_quotient(double a, double b, double threshold) {
  if (std::isnan(a)) return std::nullopt;
  if (b == 0) return Condition::zero_denominator;
  if (std::fabs(b) < threshold) return Condition::below_eps;
  return std::nullopt;
}
inline std::optional<Condition> condition_of_argument(double x, double threshold) {
  if (x == 0) return Condition::zero_argument;
  if (x < 0) return Condition::negative_argument;
  if (x < threshold) return Condition::below_eps;
  return std::nullopt;
}

/// A square root has a value at 0, which only a floor changes.
inline bool is_latent(const DivisionTrial& trial, std::optional<Condition> condition) {
  return trial.kind == DivisionKind::sqrt && !trial.backward && trial.policy != Policy::epsilon &&
         condition == Condition::zero_argument;
}

/// What an element of the inputs adds to the hits of a call.
inline void add_hits(Hits& hits, const DivisionTrial& trial, std::optional<Condition> condition,
                     std::size_t number, bool gradient_is_zero) {
  if (!condition) return;
  if (is_latent(trial, condition)) {
    hits.latent.add(1, number);
    return;
  }
  hits[*condition].add(1, number);
  if (!trial.backward || !gradient_is_zero) hits.raising.add(1, number);
}

/// The nearest number of the format in which an element is computed. Going through double does not
/// show: quotients and roots of 24 bits keep away from the middle between numbers of 24 bits.
template <Number N>
double nearest_computed(Element element, const N& value) {
  const bool wide = element == Element::float64;
  return rounded(wide ? Element::float64 : Element::float32, to_double(value));
}

/// Half types are computed in float32 and rounded once more.
template <Number N>
double nearest(Element element, const N& value) {
  return rounded(element, nearest_computed(element, value));
}

/// The quotient rounded down. Python's way, from the remainder, is exact while the quotient is
/// below a quarter of 2^p, p the bits computed in; past that it is a neighbour at most.
template <Number N>
Expected<N> floored_quotient(Element element, double a, double b) {
  const N quotient = N(a) / N(b);
  if (b == 0 || std::isnan(a) || std::isnan(b)) return exactly(quotient);
  if (std::isinf(a)) return exactly(N(kNaN));
  if (std::isinf(b)) return exactly(a != 0 && (a < 0) != (b < 0) ? N(-1.0) : quotient);
  const N value = is_zero(quotient) ? quotient : floor(quotient);
  const int precision = element == Element::float64 ? 53 : 24;
  if (abs(value) < scaled(N(1.0), precision - 2)) return exactly(value);
  Expected<N> neighbour = near(element, value, 2);
  if (!is_infinite(value)) neighbour.unit = max(neighbour.unit, N(1.0));
  return neighbour;
}

/// Cut after the quotient was rounded to the format, as PyTorch does; where the divisor is a
/// number, to the format computed in.
template <Number N>
Expected<N> truncated_quotient(Element element, const N& quotient, bool by_number) {
  const double computed =
      by_number ? nearest_computed(element, quotient) : nearest(element, quotient);
  return exactly(N(std::trunc(computed)));
}

/// The formula where nothing is singular, or under stock.
template <Number N>
Expected<N> forward_formula(DivisionKind kind, Element element, double a, double b,
                            bool by_number) {
  switch (kind) {
    case DivisionKind::quotient:
      return exactly(N(a) / N(b));
    case DivisionKind::truncated:
      return truncated_quotient(element, N(a) / N(b), by_number);
    case DivisionKind::floored:
      return floored_quotient<N>(element, a, b);
    case DivisionKind::rsqrt:
      return near(element, N(1.0) / sqrt(N(b)), division_bound(kind, element));
    case DivisionKind::sqrt:
      return exactly(sqrt(N(b)));
    case DivisionKind::log:
      break;
  }
  return near(element, log(N(b)), division_bound(kind, element));
}

/// The formula with eps in the divisor's place, in fp64, or in the argument's.
template <Number N>
Expected<N> floored_formula(DivisionKind kind, Element element, double a, double b, double eps,
                            bool by_number) {
  constexpr double kTwiceRounded = 0.5001;
  if (!has_divisor(kind)) {
    const N value = forward_formula<N>(kind, Element::float64, 0, eps, false).value;
    return near(element, value, std::max(kTwiceRounded, division_bound(kind, element)));
  }
  const double divisor = std::copysign(eps, b);
  if (kind == DivisionKind::floored) return floored_quotient<N>(element, a, divisor);
  const N quotient = N(a) / N(divisor);
  if (kind == DivisionKind::truncated) return truncated_quotient(element, quotient, by_number);
  return element == Element::float64 ? exactly(quotient) : near(element, quotient, kTwiceRounded);
}

/// Of a and b, or of x, which is `b`.
template <Number N>
Expected<N> forward_value(const DivisionTrial& trial, Element element, double a, double b,
                          bool by_number) {
  const double eps = eps_of(trial, element), threshold = threshold_of(trial, element);
  const bool divides = has_divisor(trial.kind);
  const auto condition =
      divides ? condition_of_quotient(a, b, threshold) : condition_of_argument(b, threshold);
  if (!condition || is_latent(trial, condition))
    return forward_formula<N>(trial.kind, element, a, b, by_number);
  switch (trial.policy) {
    case Policy::stock:
      return forward_formula<N>(trial.kind, element, a, b, by_number);
    case Policy::nan:
      return exactly(N(kNaN));
    case Policy::epsilon:
      return floored_formula<N>(trial.kind, element, a, b, eps, by_number);
    case Policy::zero:
      return exactly(N(0.0));
    case Policy::raise:
      break;
  }
  return {};
}

template <Number N>
Expected<N> dividend_gradient(Element element, double g, double b) {
  const N value = N(g) / N(b);
  return element == Element::float64 ? exactly(value)
                                     : near(element, value, division_backward_bound(element));
}

/// -g (a/b)/b. Where a step vanishes before an infinity, what the steps give is accepted.
template <Number N>
Expected<N> divisor_gradient(Element element, double g, double a, double b) {
  const N slope = N(a) / N(b) / N(b);
  Expected<N> expected = near(element, N(-g) * slope, division_backward_bound(element));
  if (element == Element::float64 && std::isinf(g) && a / b / b == 0) expected.accepted = kNaN;
  return expected;
}

template <Number N>
Expected<N> argument_gradient(DivisionKind kind, Element element, double g, double x) {
  const double bound = division_backward_bound(element);
  switch (kind) {
    case DivisionKind::rsqrt: {
      const N y = N(1.0) / sqrt(N(x));
      return near(element, N(-g) / N(2.0) * (y * y * y), bound);
    }
    case DivisionKind::sqrt:
      return near(element, N(g) / (N(2.0) * sqrt(N(x))), bound);
    default:
      return exactly(N(g) / N(x));
  }
}

template <Number N>
struct ExpectedGradients {
  Expected<N> of[kElementOutputs];
};

template <Number N>
ExpectedGradients<N> gradient_formula(DivisionKind kind, Element element, double g, double a,
                                      double b) {
  if (rounds(kind)) return {exactly(N(0.0)), exactly(N(0.0))};
  if (!has_divisor(kind)) return {argument_gradient<N>(kind, element, g, b), {}};
  return {dividend_gradient<N>(element, g, b), divisor_gradient<N>(element, g, a, b)};
}

/// Of g, a and b, or of g and x, which is `b`.
template <Number N>
ExpectedGradients<N> gradients(const DivisionTrial& trial, Element element, double g, double a,
                               double b) {
  const double eps = eps_of(trial, element), threshold = threshold_of(trial, element);
  const bool divides = has_divisor(trial.kind);
  const auto condition =
      divides ? condition_of_quotient(a, b, threshold) : condition_of_argument(b, threshold);
  if (!condition || trial.policy == Policy::stock)
    return gradient_formula<N>(trial.kind, element, g, a, b);
  const Expected<N> zero = exactly(N(0.0));
  switch (trial.policy) {
    case Policy::nan:
      return {exactly(N(kNaN)), exactly(N(kNaN))};
    case Policy::epsilon:
      if (trial.kind != DivisionKind::quotient) return {zero, zero};
      return {dividend_gradient<N>(element, g, std::copysign(eps, b)), zero};
    case Policy::raise:
      if (g != 0) return {};
      return {zero, zero};
    default:
      return {zero, zero};
  }
}

}  // namespace safeops::cases
