#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <optional>

#include "cases/division_check.h"

namespace safeops::cases {

// The contract of the division family for complex numbers, in wide arithmetic.

template <Number N>
struct ComplexNumber {
  N re = 0.0, im = 0.0;

  ComplexNumber() = default;
  ComplexNumber(const N& real, const N& imaginary) : re(real), im(imaginary) {}
  ComplexNumber(const Rows& rows, std::size_t row) : re(rows.at(row, 0)), im(rows.at(row, 1)) {}

  bool has_nan() const { return is_nan(re) || is_nan(im); }
  bool has_infinity() const { return is_infinite(re) || is_infinite(im); }
  bool is_finite() const { return !has_nan() && !has_infinity(); }
  bool is_zero() const { return re == N(0.0) && im == N(0.0); }
};

template <Number N>
ComplexNumber<N> conjugate(const ComplexNumber<N>& z) {
  return {z.re, -z.im};
}
template <Number N>
N modulus(const ComplexNumber<N>& z) {
  return sqrt(z.re * z.re + z.im * z.im);
}
template <Number N>
ComplexNumber<N> operator*(const ComplexNumber<N>& z, const ComplexNumber<N>& w) {
  return {z.re * w.re - z.im * w.im, z.re * w.im + z.im * w.re};
}
template <Number N>
ComplexNumber<N> operator/(const ComplexNumber<N>& z, const ComplexNumber<N>& w) {
  const N square = w.re * w.re + w.im * w.im;
  const ComplexNumber<N> product = z * conjugate(w);
  return {product.re / square, product.im / square};
}

/// The principal root; no sum cancels.
template <Number N>
ComplexNumber<N> root(const ComplexNumber<N>& z) {
  if (z.is_zero()) return {N(0.0), z.im};
  const N larger = sqrt((modulus(z) + abs(z.re)) / N(2.0)), smaller = z.im / (N(2.0) * larger);
  if (!is_negative(z.re)) return {larger, smaller};
  return {abs(smaller), is_negative(z.im) ? -larger : larger};
}

/// Near the unit circle from |z|^2 - 1, whose parts are exact where they cancel.
template <Number N>
ComplexNumber<N> logarithm(const ComplexNumber<N>& z) {
  const N large = max(abs(z.re), abs(z.im)), small = abs(z.re) < abs(z.im) ? abs(z.re) : abs(z.im);
  const N excess = (large - N(1.0)) * (large + N(1.0)) + small * small;
  const bool near_circle = abs(excess) < N(0.5);
  return {near_circle ? log1p(excess) / N(2.0) : log(modulus(z)), atan2(z.im, z.re)};
}

template <Number N>
using Both = std::array<Expected<N>, 2>;

/// Errors are counted in ulp of the larger part.
template <Number N>
Both<N> near_both(Element element, const ComplexNumber<N>& z, double bound) {
  if (!z.is_finite()) return {};
  const N unit = ulp(element, max(abs(z.re), abs(z.im)));
  const auto near_one = [&](const N& part) {
    return Expected<N>{Expected<N>::How::near, part, bound, unit, {}};
  };
  return {near_one(z.re), near_one(z.im)};
}
template <Number N>
Both<N> exactly_both(double re, double im) {
  return {exactly(N(re)), exactly(N(im))};
}

/// No bound on complex numbers is promised beyond normwise accuracy; these are what is held.
inline double complex_bound(Element element) { return element == Element::float64 ? 4 : 0.51; }
inline double complex_backward_bound(Element element) {
  return element == Element::float64 ? 12 : 0.51;
}

/// 0 over infinity, parts over 0, and nothing where NaN is on the way.
template <Number N>
Both<N> complex_quotient(Element element, const ComplexNumber<N>& z, const ComplexNumber<N>& w,
                         double bound) {
  if (w.is_zero()) return exactly_both<N>(to_double(z.re / abs(w.re)), to_double(z.im / abs(w.im)));
  if (z.is_finite() && w.has_infinity() && !w.has_nan()) return exactly_both<N>(0, 0);
  if (!z.is_finite() || !w.is_finite()) return {};
  return near_both(element, z / w, bound);
}

template <Number N>
Both<N> complex_value(DivisionKind kind, Element element, const ComplexNumber<N>& a,
                      const ComplexNumber<N>& b) {
  const double bound = complex_bound(element);
  if (kind == DivisionKind::quotient) return complex_quotient(element, a, b, bound);
  if (!b.is_finite()) return {};
  switch (kind) {
    case DivisionKind::sqrt:
      return near_both(element, root(b), bound);
    case DivisionKind::rsqrt:
      if (b.is_zero()) return {};
      return near_both(element, ComplexNumber<N>(N(1.0), N(0.0)) / root(b), bound);
    default:
      if (b.is_zero()) return {exactly(N(-kInfinity)), Expected<N>()};
      return near_both(element, logarithm(b), bound);
  }
}

template <Number N>
struct ComplexGradients {
  Both<N> of[kElementOutputs];
};

template <Number N>
ComplexGradients<N> complex_gradients(DivisionKind kind, Element element, const ComplexNumber<N>& g,
                                      const ComplexNumber<N>& a, const ComplexNumber<N>& b) {
  const double bound = complex_backward_bound(element);
  const bool finite = g.is_finite() && b.is_finite() && !b.is_zero();
  switch (kind) {
    case DivisionKind::quotient: {
      const Both<N> second =
          finite && a.is_finite()
              ? near_both(element, ComplexNumber<N>(-g.re, -g.im) * conjugate(a / b / b), bound)
              : Both<N>();
      return {complex_quotient(element, g, conjugate(b), bound), second};
    }
    case DivisionKind::log:
      return {complex_quotient(element, g, conjugate(b), bound), {}};
    case DivisionKind::sqrt: {
      const ComplexNumber<N> y = conjugate(root(b));
      if (!b.is_finite()) return {};
      return {complex_quotient(element, g, ComplexNumber<N>(y.re + y.re, y.im + y.im), bound), {}};
    }
    default: {
      if (!finite) return {};
      const ComplexNumber<N> y = conjugate(ComplexNumber<N>(N(1.0), N(0.0)) / root(b));
      return {
          near_both(element, g * y * y * ComplexNumber<N>(y.re / N(-2.0), y.im / N(-2.0)), bound),
          {}};
    }
  }
}

/// eps in the direction of z; eps itself at 0.
template <Number N>
ComplexNumber<N> on_circle(const ComplexNumber<N>& z, double eps) {
  if (z.is_zero()) return {N(eps), N(0.0)};
  const N size = modulus(z);
  return {N(eps) * z.re / size, N(eps) * z.im / size};
}

template <Number N>
std::optional<Condition> complex_condition(DivisionKind kind, const ComplexNumber<N>& a,
                                           const ComplexNumber<N>& b, double threshold) {
  const bool divides = has_divisor(kind);
  if (divides && a.has_nan()) return std::nullopt;
  if (b.is_zero()) return divides ? Condition::zero_denominator : Condition::zero_argument;
  if (b.is_finite() && modulus(b) < N(threshold)) return Condition::below_eps;
  return std::nullopt;
}

namespace detail {

template <Number N>
Both<N> singular_value(const DivisionTrial& trial, Element element, const ComplexNumber<N>& a,
                       const ComplexNumber<N>& b) {
  switch (trial.policy) {
    case Policy::nan:
      return exactly_both<N>(kNaN, kNaN);
    case Policy::zero:
      return exactly_both<N>(0, 0);
    case Policy::epsilon:
      return complex_value(trial.kind, element, a, on_circle(b, eps_of(trial, element)));
    default:
      return {};
  }
}

template <Number N>
ComplexGradients<N> singular_gradients(const DivisionTrial& trial, Element element,
                                       const ComplexNumber<N>& g, const ComplexNumber<N>& b) {
  const Both<N> zero = exactly_both<N>(0, 0), marked = exactly_both<N>(kNaN, kNaN);
  if (trial.policy == Policy::nan) return {marked, marked};
  if (trial.policy == Policy::raise && !g.is_zero()) return {};
  if (trial.policy != Policy::epsilon || trial.kind != DivisionKind::quotient) return {zero, zero};
  const ComplexNumber<N> floored = conjugate(on_circle(b, eps_of(trial, element)));
  return {complex_quotient(element, g, floored, complex_backward_bound(element)), zero};
}

template <Number N>
ComplexNumber<N> complex_at(const Inputs& inputs, std::size_t i, std::size_t row,
                            const DivisionTrial& trial) {
  if (inputs[i] != nullptr) return {*inputs[i], row};
  return {N(trial.number[i]), N(0.0)};
}

template <Number N>
Report check_complex(const Inputs& inputs, const DivisionOutcome& outcome,
                     const DivisionTrial& trial) {
  constexpr const char* kParts[] = {"real part", "imaginary part"};
  Report report;
  Hits expected;
  const Element element = first_of(inputs).element;
  const double threshold = threshold_of(trial, element);
  const bool divides = has_divisor(trial.kind);
  const Dims sizes = sizes_of(trial, first_of(inputs).rows);
  for (std::size_t i = 0; i < first_of(inputs).rows; ++i) {
    const auto at = [&](std::size_t k) { return complex_at<N>(inputs, k, i, trial); };
    const ComplexNumber<N> g = trial.backward ? at(0) : ComplexNumber<N>();
    const ComplexNumber<N> b = at(trial.backward || divides ? 1 : 0);
    const ComplexNumber<N> a = at(trial.backward ? 2 : 0);
    const auto condition = complex_condition(trial.kind, a, b, threshold);
    add_hits(expected, trial, condition, number_of(trial, sizes, i), g.is_zero());
    const bool regular = !condition || is_latent(trial, condition) || trial.policy == Policy::stock;
    ComplexGradients<N> want;
    if (trial.backward) {
      want = regular ? complex_gradients(trial.kind, element, g, a, b)
                     : singular_gradients(trial, element, g, b);
    } else {
      want.of[0] =
          regular ? complex_value(trial.kind, element, a, b) : singular_value(trial, element, a, b);
    }
    for (std::size_t k = 0; k < outputs_of(trial); ++k) {
      for (std::size_t part = 0; part < 2 && writes(trial, k); ++part) {
        check_number(report, want.of[k][part], element, outcome.output[k].at(i, part),
                     std::string(kParts[part]) + (k == 1 ? " of the second gradient" : ""), trial,
                     inputs, i);
      }
    }
  }
  check_hits(report, expected, outcome, trial);
  return report;
}

}  // namespace detail

/// Values or gradients, and hits, of a call on complex numbers.
inline Report check_complex(const Inputs& inputs, const DivisionOutcome& outcome,
                            const DivisionTrial& trial) {
  return first_of(inputs).element == Element::float64
             ? detail::check_complex<Wide>(inputs, outcome, trial)
             : detail::check_complex<long double>(inputs, outcome, trial);
}

}  // namespace safeops::cases
