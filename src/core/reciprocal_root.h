// 1 / sqrt(x) of elements. 0 gives an infinity of its sign, a negative x NaN.
#if defined(SAFEOPS_CORE_RECIPROCAL_ROOT_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_RECIPROCAL_ROOT_H_
#undef SAFEOPS_CORE_RECIPROCAL_ROOT_H_
#else
#define SAFEOPS_CORE_RECIPROCAL_ROOT_H_
#endif

#include <type_traits>

#include "core/lanes.h"

SAFEOPS_BEGIN_LANES

// 1 / sqrt(x) as a sum of two numbers. Root and quotient are rounded, which may cost 1.5 units in
// the last place together; with t + u = x y exactly, what y lacks is (y / 2)(1 - (t + u) y).
// Without fused operations fp64 does the same: 0.5001 ulp. float64 is left as it is: 1.49 ulp at
// 0x1.00cc83080d412p+0.
template <class Real>
struct ReciprocalRoot {
  explicit SAFEOPS_INLINE ReciprocalRoot(Real x) : y(Real(1) / root(x)), rest(Real(0)) {
    if constexpr (kFusedMulAdd && std::is_same_v<typename ScalarOf<Real>::Type, float>) {
      const Real t = x * y, u = mul_add(x, y, -t);
      const Real lacks = y * Real(0.5f) * mul_add(-u, y, mul_add(-t, y, Real(1)));
      // Nothing is lacking at 0 and infinity, where t is NaN.
      rest = select(magnitude(lacks) < y, lacks, Real(0));
    }
  }
  Real y, rest;
};
template <class Real>
SAFEOPS_INLINE WideOf<Real> wide_reciprocal_root(Real x) {
  if constexpr (kFusedMulAdd) {
    const ReciprocalRoot<Real> split(x);
    return widen(split.y) + widen(split.rest);
  } else {
    return WideOf<Real>(1.0) / root(widen(x));
  }
}
template <class Real>
SAFEOPS_INLINE Real reciprocal_root(Real x) {
  if constexpr (kFusedMulAdd || std::is_same_v<typename ScalarOf<Real>::Type, double>) {
    const ReciprocalRoot<Real> split(x);
    return split.y + split.rest;
  } else {
    return narrow<Real>(wide_reciprocal_root(x));
  }
}

SAFEOPS_END_LANES

#endif
