// The natural logarithm of elements, over all numbers.
#if defined(SAFEOPS_CORE_LOGARITHM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_LOGARITHM_H_
#undef SAFEOPS_CORE_LOGARITHM_H_
#else
#define SAFEOPS_CORE_LOGARITHM_H_
#endif

#include <limits>
#include <type_traits>

#include "core/exponential.h"

SAFEOPS_BEGIN_LANES

// ln(x 2^-shift) in float32 for positive normal x. With x = 2^n (1 + f) and 1 + f in
// [0.707, 1.414], ln(1 + f) = f - f^2/2 + f^3 P(f), where P is a minimax polynomial for that:
// relative error of the result below 0.06 * 2^-24. n ln 2 is added in two parts, the first of which
// is exact (16 bits and 8 of n), and what rounds n ln 2 + f away is added to the small terms.
template <class Real>
SAFEOPS_INLINE Real narrow_logarithm(Real x, Real shift) {
  Real m = significand(x), n = exponent(x) - shift;
  const auto upper = Real(0x1.6a09e6p0f) < m;
  m = select(upper, m * Real(0.5f), m);
  n = select(upper, n + Real(1.0f), n);
  const Real f = m - Real(1.0f), square = f * f;
  Real p = mul_add(Real(0x1.1457a4p-4f), f, Real(-0x1.de3c18p-4f));
  p = mul_add(p, f, Real(0x1.e6f06ep-4f));
  p = mul_add(p, f, Real(-0x1.fc2206p-4f));
  p = mul_add(p, f, Real(0x1.233768p-3f));
  p = mul_add(p, f, Real(-0x1.555c4ep-3f));
  p = mul_add(p, f, Real(0x1.99a4b6p-3f));
  p = mul_add(p, f, Real(-0x1.000006p-2f));
  p = mul_add(p, f, Real(0x1.555548p-2f));
  const Real curve = mul_add(square * f, p, square * Real(-0.5f));
  const Real whole = n * Real(0x1.62e4p-1f), sum = whole + f;
  const Real lost = f - (sum - whole);
  return sum + (mul_add(n, Real(0x1.7f7d1cp-20f), curve) + lost);
}

// ln x; -inf at 0, NaN below. Worst found: float32 0.81 ulp at 0x1.67e3a8p-1 (0.85 without fused
// operations, at 0x1.65a9fap-1), float64 0.81 at 0x1.6978afb9e9914p+0.
template <class Real>
SAFEOPS_INLINE Real logarithm(Real x) {
  using Scalar = typename ScalarOf<Real>::Type;
  constexpr bool kNarrow = std::is_same_v<Scalar, float>;
  using Limits = std::numeric_limits<Scalar>;
  const Real infinity(Limits::infinity());
  const auto small = x < Real(Limits::min());
  const Real lift(kNarrow ? Scalar(0x1p32) : Scalar(0x1p64));
  const Real scaled = select(small, x * lift, x);
  const Real shift = select(small, Real(kNarrow ? Scalar(32) : Scalar(64)), Real(Scalar(0)));
  Real result;
  if constexpr (kNarrow) {
    result = narrow_logarithm(scaled, shift);
  } else {
    result = natural_logarithm(scaled, shift);
  }
  result = select(x < infinity, result, x);  // infinity and NaN
  result = select(x < Real(Scalar(0)), Real(Limits::quiet_NaN()), result);
  return select(x == Real(Scalar(0)), -infinity, result);
}

SAFEOPS_END_LANES

#endif
