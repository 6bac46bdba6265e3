// Norms of any order, real and complex, on contiguous rows in scalar fp64.
//
// n = m (sum_i (abs(x_i) / m)^p)^(1/p), where m is the largest magnitude for p > 0 and the smallest
// for p < 0, so that no power leaves the range of fp64 and y_i = (x_i / m) / (n / m) does not need
// n itself to be representable. p = 0 counts the elements that are not zero; p = +-inf is m.
//
// With w = dn/dx (see normalize_math.h):
//  - w_i = sign(x_i) (abs(x_i) / n)^(p - 1), 0 at a zero element
//  - p = 0: w = 0
//  - p = +-inf: w_i = sign(x_i) / ties
//  - grad_x = (g - w Re<y, g>) / n, where sign(z) = z / abs(z) for a complex element
//
// For p < 0 a zero element makes n zero, so the row is singular.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>

#include "core/element.h"
#include "core/row_cursor.h"
#include "core/share_out.h"
#include "operators/normalize/normalize.h"

namespace safeops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class E>
double as_wide(E x) {
  return to_real(x);
}
template <class T>
std::complex<double> as_wide(std::complex<T> x) {
  return x;
}
template <class E>
void as_stored(double x, E& out) {
  from_real(static_cast<typename ElementTraits<E>::Real>(x), out);
}
template <class T>
void as_stored(std::complex<double> x, std::complex<T>& out) {
  out = std::complex<T>(static_cast<T>(x.real()), static_cast<T>(x.imag()));
}

double size(double x) { return std::fabs(x); }
double size(std::complex<double> x) { return std::hypot(x.real(), x.imag()); }
// The modulus within a factor of sqrt(2); unlike the modulus it is finite wherever the parts are.
double rough_size(double x) { return std::fabs(x); }
double rough_size(std::complex<double> x) {
  const double real = std::fabs(x.real()), imaginary = std::fabs(x.imag());
  return real > imaginary || real != real ? real : imaginary;
}
double sign(double x) { return x == 0 ? 0 : std::copysign(1.0, x); }
std::complex<double> sign(std::complex<double> x) { return x / size(x); }
double scaled(double x, int exponent) { return std::scalbn(x, exponent); }
std::complex<double> scaled(std::complex<double> x, int exponent) {
  return {std::scalbn(x.real(), exponent), std::scalbn(x.imag(), exponent)};
}
double inner(double y, double g) { return y * g; }
double inner(std::complex<double> y, std::complex<double> g) {
  return y.real() * g.real() + y.imag() * g.imag();
}

template <class E>
struct Part {
  using Traits = ElementTraits<E>;
};
template <class T>
struct Part<std::complex<T>> {
  using Traits = ElementTraits<T>;
};

template <class E>
using WideElement = decltype(as_wide(E()));

// (size / unit)^exponent. What the division rounds away would be multiplied by the exponent, so it
// is put back.
double ratio_power(double size, double unit, double exponent) {
  const double ratio = size / unit, lost = std::fma(-ratio, unit, size) / size;
  const double power = std::pow(ratio, exponent);
  return std::isfinite(lost) ? power * (1 + exponent * lost) : power;
}

// A power of two near a magnitude, at which numbers of its size neither overflow nor lose bits
// below the normal range.
double unit_near(double magnitude) {
  if (magnitude == 0 || !std::isfinite(magnitude)) return 1;
  return std::ldexp(1.0, std::clamp(std::ilogb(magnitude), -1000, 1000));
}

// The elements of a row in a unit that suits them.
template <class E>
struct Elements {
  const E* x;
  double unit;
  WideElement<E> operator[](std::size_t i) const { return as_wide(x[i]) / unit; }
};

constexpr auto kSize = [](auto x) { return size(x); };
constexpr auto kRoughSize = [](auto x) { return rough_size(x); };

struct Extremes {
  double smallest = kInfinity, largest = 0, nonzero = 0;
  bool finite = true, has_nan = false;
};

template <class E, class Size>
Extremes extremes_of(const Elements<E>& x, std::size_t length, Size size_of) {
  Extremes found;
  for (std::size_t i = 0; i < length; ++i) {
    const double magnitude = size_of(x[i]);
    found.has_nan = found.has_nan || magnitude != magnitude;
    found.finite = found.finite && magnitude < kInfinity;
    found.nonzero += magnitude != 0;
    found.smallest = std::min(found.smallest, magnitude);
    found.largest = std::max(found.largest, magnitude);
  }
  return found;
}

// n = x_unit * extreme * measure, with the elements taken in x_unit; `sum` is measure^p.
struct AnyNorm {
  double x_unit = 1, extreme = 1, measure = 0, sum = 1;
  bool finite = true, zero = false;  // zero, because value() may underflow although n is not

  double value() const { return x_unit * extreme * measure; }
  bool below(double bound) const { return value() < bound; }
  bool singular(const Resolution& policy) const { return zero || below(policy.threshold); }
};

template <class E>
AnyNorm norm_of(const E* row, std::size_t length, double p) {
  AnyNorm norm;
  Extremes found = extremes_of(Elements<E>{row, 1}, length, kRoughSize);
  norm.finite = found.finite;
  if (found.has_nan || p == 0) {
    norm.measure = found.has_nan ? std::numeric_limits<double>::quiet_NaN() : found.nonzero;
    norm.zero = norm.measure == 0;
    return norm;
  }
  const double extreme = p < 0 ? found.smallest : found.largest;
  if (extreme == 0 || extreme == kInfinity) {
    norm.measure = extreme;
    norm.zero = extreme == 0;
    return norm;
  }
  norm.x_unit = unit_near(extreme);
  const Elements<E> x{row, norm.x_unit};
  found = extremes_of(x, length, kSize);
  norm.extreme = p < 0 ? found.smallest : found.largest;
  norm.measure = 1;
  if (std::isinf(p)) return norm;
  CompensatedSum sum;
  for (std::size_t i = 0; i < length; ++i) sum.add(std::pow(size(x[i]) / norm.extreme, p));
  norm.sum = sum.value();
  norm.measure = std::pow(norm.sum, 1 / p);
  return norm;
}

template <class E>
void report(const AnyNorm& norm, const Resolution& policy, std::size_t row, Hits& hits) {
  using Traits = typename Part<E>::Traits;
  if (!norm.finite) hits[Condition::nonfinite_input].add(1, row);
  if (norm.zero) {
    hits[Condition::zero_norm].add(1, row);
  } else if (norm.below(policy.threshold)) {
    hits[Condition::below_eps].add(1, row);
  }
  const bool usual = !norm.below(Traits::kLowestNorm) && norm.value() <= Traits::kHighestNorm;
  if (norm.finite && !norm.zero && !usual) hits[Condition::rescued].add(1, row);
}

template <class E>
WideElement<E> filled(double fill) {
  if constexpr (std::is_same_v<WideElement<E>, double>) {
    return fill;
  } else {
    return {fill, fill};
  }
}

template <class E>
void forward_row(const RowPointers<E, 1>& at, std::size_t length, double p,
                 const Resolution& policy, std::size_t row, double* save, Hits& hits) {
  const AnyNorm norm = norm_of(at.input[0], length, p);
  if (save) save[row] = norm.value();
  report<E>(norm, policy, row, hits);
  const bool singular = norm.singular(policy);
  if (singular) hits.raising.add(1, row);
  if (at.output == nullptr) return;
  const bool floored = norm.below(policy.floor);
  for (std::size_t i = 0; i < length; ++i) {
    const auto x = as_wide(at.input[0][i]);
    const auto y = floored ? x / policy.floor : x / norm.x_unit / norm.extreme / norm.measure;
    as_stored(singular && policy.fills ? filled<E>(policy.fill) : y, at.output[i]);
  }
}

// dn/dx on a regular row.
template <class E>
class Slope {
 public:
  Slope(const Elements<E>& x, std::size_t length, double p, const AnyNorm& norm)
      : x_(x), p_(p), norm_(norm) {
    if (!std::isinf(p)) return;
    double ties = 0;
    for (std::size_t i = 0; i < length; ++i) ties += size(x[i]) == norm.extreme;
    share_ = 1 / ties;
  }
  WideElement<E> operator[](std::size_t i) const {
    const auto x = x_[i];
    const double magnitude = size(x);
    if (magnitude == 0 || p_ == 0) return {};
    if (std::isinf(p_)) return magnitude == norm_.extreme ? sign(x) * share_ : WideElement<E>();
    return sign(x) *
           (ratio_power(magnitude, norm_.extreme, p_ - 1) / std::pow(norm_.sum, (p_ - 1) / p_));
  }

 private:
  const Elements<E> x_;
  double p_, share_ = 0;
  const AnyNorm& norm_;
};

template <class E>
bool all_zero(const E* g, std::size_t length) {
  return std::all_of(g, g + length, [](E element) { return size(as_wide(element)) == 0; });
}

template <class E>
void backward_row(const RowPointers<E, 2>& at, std::size_t length, double p,
                  const Resolution& policy, std::size_t row, double saved, Hits& hits) {
  const E* g_row = at.input[0];
  AnyNorm norm = norm_of(at.input[1], length, p);
  // The saved norm is an argument of its own. What this row has is used, unrounded, where it is
  // that very norm, and where a saved norm has lost bits or left the range.
  if (saved != norm.value() && std::isnormal(saved)) {
    norm.measure = saved / norm.x_unit / norm.extreme;
    norm.sum = std::pow(norm.measure, p);
  }
  report<E>(norm, policy, row, hits);
  const bool singular = norm.singular(policy);
  if (singular && !all_zero(g_row, length)) hits.raising.add(1, row);
  if (at.output == nullptr) return;
  if (singular) {
    for (std::size_t i = 0; i < length; ++i) {
      as_stored(policy.fills ? filled<E>(policy.fill) : as_wide(g_row[i]) / policy.floor,
                at.output[i]);
    }
    return;
  }
  const Elements<E> x{at.input[1], norm.x_unit};
  const Elements<E> g{g_row,
                      unit_near(extremes_of(Elements<E>{g_row, 1}, length, kRoughSize).largest)};
  CompensatedSum dot;
  for (std::size_t i = 0; i < length; ++i) dot.add(inner(x[i] / norm.extreme / norm.measure, g[i]));
  const Slope<E> slope(x, length, p, norm);
  // For p = 0 there is no slope, and 0 times an overflowed product would be NaN.
  const double along = p == 0 ? 0 : dot.value();
  // As an exponent: the quotient of the two units may leave the range of fp64.
  const int exponent = std::ilogb(g.unit) - std::ilogb(norm.x_unit);
  for (std::size_t i = 0; i < length; ++i) {
    as_stored(scaled((g[i] - slope[i] * along) / norm.extreme / norm.measure, exponent),
              at.output[i]);
  }
}

template <class E>
void run_forward(const RowArguments& arguments, double p, Executor& executor, Hits& hits) {
  share_out(arguments.layout.rows, arguments.layout.length, executor, hits,
            [&](std::size_t begin, std::size_t end, Hits& met) {
              RowCursor<E, 1> cursor(arguments, begin);
              for (std::size_t r = begin; r < end; ++r, cursor.advance(1)) {
                forward_row(cursor.pointers(), arguments.layout.length, p, arguments.policy, r,
                            arguments.save, met);
              }
            });
}

template <class E>
void run_backward(const RowArguments& arguments, double p, Executor& executor, Hits& hits) {
  share_out(arguments.layout.rows, arguments.layout.length, executor, hits,
            [&](std::size_t begin, std::size_t end, Hits& met) {
              RowCursor<E, 2> cursor(arguments, begin);
              for (std::size_t r = begin; r < end; ++r, cursor.advance(1)) {
                backward_row(cursor.pointers(), arguments.layout.length, p, arguments.policy, r,
                             arguments.saved[r], met);
              }
            });
}

// f(T()) for the type of the elements; complex ones have float32 or float64 parts.
template <class F>
void with_number(Element element, bool complex, const F& f) {
  if (!complex) return with_element(element, f);
  if (element == Element::float32) return f(std::complex<float>());
  f(std::complex<double>());
}

}  // namespace

void normalize_forward_any(const RowArguments& arguments, double p, bool complex,
                           Executor& executor, Hits& hits) {
  with_number(arguments.element, complex,
              [&](auto element) { run_forward<decltype(element)>(arguments, p, executor, hits); });
}

void normalize_backward_any(const RowArguments& arguments, double p, bool complex,
                            Executor& executor, Hits& hits) {
  with_number(arguments.element, complex,
              [&](auto element) { run_backward<decltype(element)>(arguments, p, executor, hits); });
}

}  // namespace safeops
