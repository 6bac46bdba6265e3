// The exponential function, absolute (in fp64) and relative to the largest element of a row, and
// the natural logarithm (in fp64).
#if defined(SAFEOPS_CORE_EXPONENTIAL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_EXPONENTIAL_H_
#undef SAFEOPS_CORE_EXPONENTIAL_H_
#else
#define SAFEOPS_CORE_EXPONENTIAL_H_
#endif

#include <limits>
#include <type_traits>

#include "core/lanes_scalar.h"

SAFEOPS_BEGIN_LANES

inline constexpr double kLog2OfE = 0x1.71547652b82fep0;
inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;
// ln 2 in two parts. The first has 33 bits, so its product with a whole number below 2^20 is exact.
inline constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;

// e^r for abs(r) <= 0.35 in fp64: Taylor's series to r^13, whose remainder is below 2^-57.
template <class V>
SAFEOPS_INLINE V exponential_of_small(V r) {
  V p = V(1.0 / 6227020800.0);
  p = mul_add(p, r, V(1.0 / 479001600.0));
  p = mul_add(p, r, V(1.0 / 39916800.0));
  p = mul_add(p, r, V(1.0 / 3628800.0));
  p = mul_add(p, r, V(1.0 / 362880.0));
  p = mul_add(p, r, V(1.0 / 40320.0));
  p = mul_add(p, r, V(1.0 / 5040.0));
  p = mul_add(p, r, V(1.0 / 720.0));
  p = mul_add(p, r, V(1.0 / 120.0));
  p = mul_add(p, r, V(1.0 / 24.0));
  p = mul_add(p, r, V(1.0 / 6.0));
  p = mul_add(p, r, V(0.5));
  return mul_add(p, r * r, r) + V(1.0);
}

// e^(x + error) in fp64, x in [-800, 700], error far below 1. NaN stays NaN.
template <class V>
SAFEOPS_INLINE V exponential(V x, V error) {
  const V n = round_even(x * V(kLog2OfE));
  V r = mul_add(n, V(-kLn2High), x);
  r = mul_add(n, V(-kLn2Low), r) + error;
  return scale_by_power(exponential_of_small(r), n);
}

// What a row's terms are relative to. A term is e^(x - shift) 2^-power; `lowest` bounds x - shift
// from below, where the term is 0.
template <class Value>
struct Reference {
  Value shift, lowest, power;

  // The logarithm of what a term is to be multiplied with to give e^x.
  SAFEOPS_INLINE Value logarithm() const { return shift + power * Value(kLn2); }
};

// float32 does not subtract: see docs/architecture.md, section 6. Past 1024 the product n ln 2
// would lose bits; there x - level is exact wherever the term is not 0 (Sterbenz). float64 always
// subtracts.
template <class Real, class Value>
SAFEOPS_INLINE Reference<Value> reference_at(Value level) {
  constexpr bool kNarrow = std::is_same_v<typename ScalarOf<Real>::Type, float>;
  const Value infinity(std::numeric_limits<double>::infinity());
  level = select(magnitude(level) < infinity, level, Value(0.0));
  if constexpr (kNarrow) {
    const Value shift =
        select(Value(1024.0) < magnitude(level), rounded_to<Real>(level), Value(0.0));
    const Value rest = level - shift;
    return {shift, rest - Value(150.0), round_even(rest * Value(kLog2OfE))};
  } else {
    return {level, Value(-800.0), Value(0.0)};
  }
}

// One term. -inf gives exactly 0; NaN stays NaN. Error below 1 ulp (float32: relative to 2^-24,
// 0.9 from the reduced argument and the last two roundings).
template <class Real>
SAFEOPS_INLINE Real relative_exponential(Real x, Real shift, Real lowest, Real power) {
  if constexpr (std::is_same_v<typename ScalarOf<Real>::Type, float>) {
    x = at_least(x - shift, lowest);
    const Real n = round_even(x * Real(0x1.715476p0f));
    // 0x1.62Ep-1 has 12 bits and abs(n) < 2^11: their product is exact with and without FMA, and so
    // is the difference.
    Real r = mul_add(n, Real(-0x1.62Ep-1f), x);
    r = mul_add(n, Real(-0x1.0bfbe8p-15f), r);
    // Minimax for (e^r - 1 - r) / r^2 weighted by r^2 / e^r on abs(r) <= 0.3467: relative error of
    // e^r below 0.07 * 2^-24.
    Real p = mul_add(Real(0x1.6b6e18p-10f), r, Real(0x1.122faep-7f));
    p = mul_add(p, r, Real(0x1.555688p-5f));
    p = mul_add(p, r, Real(0x1.5554a4p-3f));
    p = mul_add(p, r, Real(0.5f));
    p = mul_add(mul_add(p, r, Real(1.0f)), r, Real(1.0f));
    return scale_by_power(p, n - power);
  } else {
    const Real difference = x - shift;
    // What the subtraction rounded away (Knuth's TwoSum); nothing where the term is 0, and x may be
    // -inf.
    const Real back = difference - x;
    const Real error = (x - (difference - back)) - (shift + back);
    const auto vanishes = difference < lowest;
    return exponential(select(vanishes, lowest, difference), select(vanishes, Real(0.0), error));
  }
}

// ln(x 2^-shift) in fp64 for positive normal x, below 1 ulp; NaN for NaN. After fdlibm's e_log.c:
// with x = 2^n (1 + f) and s = f / (2 + f), ln(1 + f) = 2 s + s R(s^2), and the coefficients are
// that file's minimax for R.
template <class Value>
SAFEOPS_INLINE Value natural_logarithm(Value x, Value shift = Value(0.0)) {
  Value m = significand(x), n = exponent(x) - shift;
  const auto upper = Value(0x1.6a09e667f3bcdp0) < m;
  m = select(upper, m * Value(0.5), m);
  n = select(upper, n + Value(1.0), n);
  const Value f = m - Value(1.0);
  const Value s = f / (Value(2.0) + f), z = s * s;
  Value p = mul_add(Value(1.479819860511658591e-01), z, Value(1.531383769920937332e-01));
  p = mul_add(p, z, Value(1.818357216161805012e-01));
  p = mul_add(p, z, Value(2.222219843214978396e-01));
  p = mul_add(p, z, Value(2.857142874366239149e-01));
  p = mul_add(p, z, Value(3.999999999940941908e-01));
  p = mul_add(p, z, Value(6.666666666666735130e-01));
  const Value half = Value(0.5) * f * f;
  const Value tail = mul_add(s, mul_add(p, z, half), n * Value(kLn2Low));
  const Value result = n * Value(kLn2High) - ((half - tail) - f);
  return select(x == x, result, x);
}

SAFEOPS_END_LANES

#endif
