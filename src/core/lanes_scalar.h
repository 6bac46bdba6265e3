// The vocabulary on one lane: what row programs may say about a per-row value (always double) or,
// in plain C++, about an element. lanes_highway-inl.h has the same words on vectors.
#if defined(SAFEOPS_CORE_LANES_SCALAR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_LANES_SCALAR_H_
#undef SAFEOPS_CORE_LANES_SCALAR_H_
#else
#define SAFEOPS_CORE_LANES_SCALAR_H_
#endif

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

SAFEOPS_END_LANES

#endif
