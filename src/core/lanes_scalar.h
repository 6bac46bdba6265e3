// The vocabulary on one lane: what row programs may say about a per-row value (always double) or,
// in plain C++, about an element. lanes_highway-inl.h has the same words on vectors.
#if defined(SAFEOPS_CORE_LANES_SCALAR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_LANES_SCALAR_H_
#undef SAFEOPS_CORE_LANES_SCALAR_H_
#else
#define SAFEOPS_CORE_LANES_SCALAR_H_
#endif

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/target.h"

SAFEOPS_BEGIN_LANES

SAFEOPS_INLINE double mul_add(double a, double b, double c) { return __builtin_fma(a, b, c); }
SAFEOPS_INLINE double root(double x) { return __builtin_sqrt(x); }
SAFEOPS_INLINE double magnitude(double x) { return __builtin_fabs(x); }
SAFEOPS_INLINE double copy_sign(double size, double sign) { return __builtin_copysign(size, sign); }
SAFEOPS_INLINE double select(bool mask, double yes, double no) { return mask ? yes : no; }
// A NaN stays NaN: every comparison with it is false.
SAFEOPS_INLINE double at_least(double x, double floor) { return x < floor ? floor : x; }
// The larger, NaN if either is NaN.
SAFEOPS_INLINE double larger(double a, double b) { return a > b || a != a ? a : b; }
SAFEOPS_INLINE bool any(bool mask) { return mask; }
SAFEOPS_INLINE double round_even(double x) { return __builtin_rint(x); }
// 2^n for a whole n with a normal power: adding 1.5 * 2^52 leaves n + 1023 in the low bits, and the
// shift moves it into the exponent and everything above it out.
SAFEOPS_INLINE double power_of_two(double n) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(n + (0x1.8p52 + 1023)) << 52);
}
// x * 2^n for a whole n in [-2044, 2046], rounded once: only the second factor can leave the normal
// range.
SAFEOPS_INLINE double scale_by_power(double x, double n) {
  const double half = round_even(n * 0.5);
  return x * power_of_two(half) * power_of_two(n - half);
}
// A positive normal number is significand(x) * 2^exponent(x), the first in [1, 2).
SAFEOPS_INLINE double significand(double x) {
  const std::uint64_t fraction = std::bit_cast<std::uint64_t>(x) & 0xFFFFFFFFFFFFFu;
  return std::bit_cast<double>(fraction | 0x3FF0000000000000u);
}
SAFEOPS_INLINE double exponent(double x) {
  // The biased exponent as the last bits of 2^52 + exponent.
  const std::uint64_t biased = std::bit_cast<std::uint64_t>(x) >> 52;
  return std::bit_cast<double>(biased | 0x4330000000000000u) - (0x1p52 + 1023);
}

template <class V>
struct ScalarOf {
  using Type = typename V::Scalar;
};
template <>
struct ScalarOf<double> {
  using Type = double;
};
// f of a per-row value, in the precision and by the instructions of elements.
template <class Real, class F, class... P>
SAFEOPS_INLINE double on_value(F f, double x, P... p) {
  if constexpr (std::is_same_v<Real, double>) {
    return f(x, p...);
  } else {
    using Scalar = typename Real::Scalar;
    return f(Real(static_cast<Scalar>(x)), Real(static_cast<Scalar>(p))...).first();
  }
}
// A per-row value rounded to the precision of Real, still in fp64.
template <class Real>
SAFEOPS_INLINE double rounded_to(double x) {
  return static_cast<double>(static_cast<typename ScalarOf<Real>::Type>(x));
}

SAFEOPS_END_LANES

#endif
