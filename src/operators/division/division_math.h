// Quotients, square roots, their reciprocals, logarithms.
//
//   y = a / b             da = g / b            db = -g (a / b) / b
//   y = 1 / sqrt(x)       dx = -(g / 2) y^3
//   y = sqrt(x)           dx = g / (2 y)
//   y = ln x              dx = g / x
//
// A quotient is singular where b is 0, or abs(b) below the threshold, and a is not NaN; the others
// where x is 0, negative, or below the threshold. sqrt(0) = 0 has no slope but a value, so that it
// is singular in backward alone, unless it is floored. A singular element becomes, by policy:
//
//   policy    quotient                          the others
//   stock     the formulas above, by IEEE 754   the formulas above, by IEEE 754
//   epsilon   a / b', g / b', 0                 f(eps), 0         b' = copysign(eps, b)
//   zero      0, 0, 0                           0, 0
//   nan       NaN                               NaN
//   raise     as nan forward, zero backward; the binding throws
//
// Regular elements: a / b and sqrt(x) are correctly rounded. Half types are computed in float32 and
// rounded once more, which changes no quotient or root (24 >= 2 * 11 + 2 bits: S. Figueroa, "When
// is double rounding innocuous?", 1995).
#if defined(SAFEOPS_DIVISION_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_DIVISION_MATH_H_
#undef SAFEOPS_DIVISION_MATH_H_
#else
#define SAFEOPS_DIVISION_MATH_H_
#endif

#include <limits>
#include <type_traits>

#include "core/element_arguments.h"
#include "core/logarithm.h"
#include "core/reciprocal_root.h"
#include "operators/division/division.h"
#include "safeops/diagnostics.h"

SAFEOPS_BEGIN_LANES

// Below the smallest number above 0 is only 0 itself.
template <class Scalar>
SAFEOPS_INLINE Scalar limit_of(double threshold) {
  return threshold == 0 ? std::numeric_limits<Scalar>::denorm_min()
                        : threshold_as<Scalar>(threshold);
}

// A resolved policy on lanes.
template <class Real>
struct ElementPolicy {
  using Scalar = typename ScalarOf<Real>::Type;

  explicit SAFEOPS_INLINE ElementPolicy(const Resolution& policy)
      : limit(limit_of<Scalar>(policy.threshold)),
        fill(static_cast<Scalar>(policy.fill)),
        floor(policy.floor),
        fills(policy.fills),
        floors(policy.floor != 0) {}

  template <class LaneMask>
  SAFEOPS_INLINE Real filled(LaneMask singular, Real regular) const {
    return fills ? select(singular, fill, regular) : regular;
  }

  Real limit, fill;
  double floor;
  bool fills, floors;
};

// Where a divisor is singular; `met` receives where it is zero and where it is below the threshold.
template <class Real, class LaneMask>
SAFEOPS_INLINE LaneMask singular_divisor(const ElementPolicy<Real>& policy, Real a, Real b,
                                         LaneMask* met) {
  const auto zero = b == Real(0), numeric = !is_nan(a);
  const auto singular = (magnitude(b) < policy.limit) & numeric;
  met[0] = zero & numeric;
  met[1] = singular & !zero;
  return singular;
}

// A divisor's counters: what singular_divisor says and, in backward, where policy `raise` must.
SAFEOPS_INLINE Hit& divisor_counter(Hits& hits, size_t i) {
  if (i == 2) return hits.raising;
  return hits[i == 0 ? Condition::zero_denominator : Condition::below_eps];
}

// floor(a / b) as Python defines it, element by element: where the quotient does not fit the
// integers that lanes can check, and where b is infinite. An infinite quotient of finite numbers
// stays infinite.
template <class Scalar>
SAFEOPS_INLINE Scalar floor_division(Scalar a, Scalar b) {
  const Scalar quotient = a / b;
  if (b == 0 || (__builtin_isinf(quotient) && !__builtin_isinf(a))) return quotient;
  const Scalar remainder = static_cast<Scalar>(__builtin_fmod(a, b));
  Scalar whole = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) whole -= 1;
  if (whole == 0) return quotient < 0 || __builtin_signbit(quotient) ? -Scalar(0) : Scalar(0);
  const Scalar down = static_cast<Scalar>(__builtin_floor(whole));
  return whole - down > Scalar(0.5) ? down + 1 : down;
}

// floor_division by eps with the sign of b.
template <class Scalar>
struct DivisionByFloor {
  double eps;
  SAFEOPS_INLINE Scalar operator()(Scalar a, Scalar b) const {
    const double floor = __builtin_copysign(eps, static_cast<double>(b));
    return static_cast<Scalar>(floor_division(static_cast<double>(a), floor));
  }
};

// a - n b, of which the sign is asked.
SAFEOPS_INLINE Lanes<float> exact_remainder(Lanes<float> a, Lanes<float> n, Lanes<float> b) {
  return narrow<Lanes<float>>(widen(a) - widen(n) * widen(b));
}
SAFEOPS_INLINE Lanes<double> exact_remainder(Lanes<double> a, Lanes<double> n, Lanes<double> b) {
  return mul_add(-n, b, a);
}

// floor of the exact quotient. The rounded one may have reached the next integer: then a - b floor
// has another sign than b. That difference is exact in fp64 for float32 (22 + 24 bits), and its
// sign is exact in one fused operation for float64.
template <class Real>
SAFEOPS_INLINE Real floor_quotient(Real a, Real b) {
  using Scalar = typename ScalarOf<Real>::Type;
  constexpr bool kNarrow = std::is_same_v<Scalar, float>;
  constexpr bool kExact = kNarrow || kFusedMulAdd;
  const Real quotient = a / b, down = round_down(quotient);
  const Real signs = exact_remainder(a, down, b) * copy_sign(Real(Scalar(1)), b);
  const Real floor = select(signs < Real(Scalar(0)), down - Real(Scalar(1)), down);
  const Real infinity(std::numeric_limits<Scalar>::infinity());
  const Real most(kExact ? Scalar(kNarrow ? 0x1p22 : 0x1p51) : Scalar(0));
  const auto checked = (magnitude(quotient) < most) & (magnitude(b) < infinity);
  const auto by_zero = b == Real(Scalar(0)), unchecked = !(checked | by_zero);
  const Real result = select(by_zero, quotient, floor);
  return any(unchecked) ? with_set_lanes(unchecked, result, floor_division<Scalar>, a, b) : result;
}

template <class Real, class E, DivisionKind kKind>
struct QuotientForward {
  static constexpr size_t kInputs = 2, kOutputs = 1, kCounters = 2;

  explicit SAFEOPS_INLINE QuotientForward(const CellArguments& arguments)
      : policy(arguments.policy), by_number(!arguments.given[1]) {}

  SAFEOPS_INLINE auto suspect(const Real* in) const { return magnitude(in[1]) < policy.limit; }

  SAFEOPS_INLINE void plain(const Real* in, Real* out) const {
    if constexpr (kKind == DivisionKind::floored) {
      out[0] = floor_quotient(in[0], in[1]);
    } else {
      out[0] = in[0] / in[1];
      if constexpr (kKind == DivisionKind::truncated) out[0] = truncated(out[0]);
    }
  }

  template <class LaneMask>
  SAFEOPS_INLINE void guarded(const Real* in, Real* out, LaneMask* met) const {
    const auto singular = singular_divisor(policy, in[0], in[1], met);
    if (policy.floors) {
      out[0] = over_floor(in[0], in[1], singular, out[0]);
    } else {
      out[0] = policy.filled(singular, out[0]);
    }
  }
  static SAFEOPS_INLINE Hit& counter(Hits& hits, size_t i) { return divisor_counter(hits, i); }

 private:
  // eps in fp64: a half type, or float32, might not hold it.
  template <class LaneMask>
  SAFEOPS_INLINE Real over_floor(Real a, Real b, LaneMask singular, Real regular) const {
    if constexpr (kKind == DivisionKind::floored) {
      const DivisionByFloor<typename ScalarOf<Real>::Type> one{policy.floor};
      return with_set_lanes(singular, regular, one, a, b);
    } else {
      using Wide = WideOf<Real>;
      const Wide floor = copy_sign(Wide(policy.floor), widen(b));
      const Real quotient = narrow<Real>(widen(a) / floor);
      constexpr bool kTruncates = kKind == DivisionKind::truncated;
      return select(singular, kTruncates ? truncated(quotient) : quotient, regular);
    }
  }

  // PyTorch rounds a quotient of halves before it cuts, unless the divisor is a number.
  SAFEOPS_INLINE Real truncated(Real quotient) const {
    return round_to_zero(by_number ? quotient : rounded_to_element<E>(quotient));
  }

  const ElementPolicy<Real> policy;
  const bool by_number;
};

// -g (a / b) / b in float64 where a / b or (a / b) / b is not a normal number, although the product
// may be one, or 0: of significands, and scaled once.
SAFEOPS_INLINE double scaled_divisor_slope(double g, double a, double b) {
  if (!(__builtin_isfinite(g) && __builtin_isfinite(a) && __builtin_isfinite(b)))
    return -(g * ((a / b) / b));
  int of_g, of_a, of_b;
  g = __builtin_frexp(g, &of_g);
  a = __builtin_frexp(a, &of_a);
  b = __builtin_frexp(b, &of_b);
  return __builtin_ldexp(-(g * ((a / b) / b)), of_g + of_a - 2 * of_b);
}

SAFEOPS_INLINE Lanes<double> divisor_slope(Lanes<double> g, Lanes<double> a, Lanes<double> b) {
  const Lanes<double> quotient = a / b, slope = quotient / b;
  const Lanes<double> least(std::numeric_limits<double>::min());
  const Lanes<double> infinity(std::numeric_limits<double>::infinity()), zero(0.0);
  const auto small = (magnitude(quotient) < least) | (magnitude(slope) < least);
  const auto finite = magnitude(slope) < infinity;
  const auto exact = (a == zero) | (b == zero);
  const Lanes<double> product = -(g * slope);
  const auto doubtful = (small | !finite) & !exact;
  if (!any(doubtful)) return product;
  return with_set_lanes(doubtful, product, scaled_divisor_slope, g, a, b);
}

// float32 goes through fp64, where neither g / b nor (g / b)(a / b) can leave the range: below 0.51
// ulp. float64: below 2.5 ulp.
template <class Real, class E>
struct QuotientBackward {
  static constexpr size_t kInputs = 3, kOutputs = 2, kCounters = 3;

  explicit SAFEOPS_INLINE QuotientBackward(const CellArguments& arguments)
      : policy(arguments.policy) {}

  SAFEOPS_INLINE auto suspect(const Real* in) const { return magnitude(in[1]) < policy.limit; }

  SAFEOPS_INLINE void plain(const Real* in, Real* out) const {
    const Real g = in[0], b = in[1], a = in[2];
    if constexpr (std::is_same_v<typename ScalarOf<Real>::Type, float>) {
      using Wide = WideOf<Real>;
      const Wide inverse = Wide(1.0) / widen(b), da = widen(g) * inverse;
      out[0] = narrow<Real>(da);
      out[1] = narrow<Real>(-(da * (widen(a) * inverse)));
    } else {
      out[0] = g / b;
      out[1] = divisor_slope(g, a, b);
    }
  }

  template <class LaneMask>
  SAFEOPS_INLINE void guarded(const Real* in, Real* out, LaneMask* met) const {
    const Real g = in[0], b = in[1];
    const auto singular = singular_divisor(policy, in[2], b, met);
    met[2] = singular & !(g == Real(0));
    if (policy.floors) {
      using Wide = WideOf<Real>;
      const Wide floored = widen(g) / copy_sign(Wide(policy.floor), widen(b));
      out[0] = select(singular, narrow<Real>(floored), out[0]);
      out[1] = select(singular, Real(0), out[1]);
    } else {
      out[0] = policy.filled(singular, out[0]);
      out[1] = policy.filled(singular, out[1]);
    }
  }
  static SAFEOPS_INLINE Hit& counter(Hits& hits, size_t i) { return divisor_counter(hits, i); }

 private:
  const ElementPolicy<Real> policy;
};

// A rounded quotient is a step function: its slopes are 0.
template <class Real, class E>
struct StepBackward {
  static constexpr size_t kInputs = 3, kOutputs = 2, kCounters = 3;

  explicit SAFEOPS_INLINE StepBackward(const CellArguments& arguments) : policy(arguments.policy) {}

  SAFEOPS_INLINE auto suspect(const Real* in) const { return magnitude(in[1]) < policy.limit; }

  SAFEOPS_INLINE void plain(const Real*, Real* out) const { out[0] = out[1] = Real(0); }

  template <class LaneMask>
  SAFEOPS_INLINE void guarded(const Real* in, Real* out, LaneMask* met) const {
    const auto singular = singular_divisor(policy, in[2], in[1], met);
    met[2] = singular & !(in[0] == Real(0));
    out[0] = out[1] = policy.filled(singular, Real(0));
  }
  static SAFEOPS_INLINE Hit& counter(Hits& hits, size_t i) { return divisor_counter(hits, i); }

 private:
  const ElementPolicy<Real> policy;
};

template <class Real, DivisionKind kKind>
SAFEOPS_INLINE Real value_of(Real x) {
  if constexpr (kKind == DivisionKind::rsqrt) {
    return reciprocal_root(x);
  } else if constexpr (kKind == DivisionKind::sqrt) {
    return root(x);
  } else {
    return logarithm(x);
  }
}

// rsqrt of float32 goes through fp64, where y^3 is in range; in float64 it is below 2.6 ulp. sqrt
// is below 1.5 ulp (1.49 at 0x1.019566p-64), log is one quotient.
template <class Real, DivisionKind kKind>
SAFEOPS_INLINE Real slope_times(Real g, Real x) {
  if constexpr (kKind == DivisionKind::rsqrt) {
    if constexpr (std::is_same_v<typename ScalarOf<Real>::Type, float>) {
      using Wide = WideOf<Real>;
      const Wide y = wide_reciprocal_root(x);
      return narrow<Real>(widen(g) * y * y * (y * Wide(-0.5)));
    } else {
      // g y and y^2 lie on the same side of 1, so nothing beyond the end is passed on the way; a
      // subnormal g is lifted, or g y might lose bits that the result has. -0 has the slope of its
      // y, -inf.
      const auto small = magnitude(g) < Real(0x1p-1000);
      const Real lift = select(small, Real(0x1p64), Real(1.0));
      const Real lower = select(small, Real(0x1p-64), Real(1.0));
      return g * lift * (reciprocal_root(x) * Real(-0.5)) / magnitude(x) * lower;
    }
  } else if constexpr (kKind == DivisionKind::sqrt) {
    const Real y = root(x);
    return g / (y + y);
  } else {
    return g / x;
  }
}

// Where an argument is singular in backward; `met` receives where it is zero, negative and below
// the threshold.
template <class Real, class LaneMask>
SAFEOPS_INLINE LaneMask singular_argument(const ElementPolicy<Real>& policy, Real x,
                                          LaneMask* met) {
  const auto below = x < policy.limit;
  met[0] = x == Real(0);
  met[1] = x < Real(0);
  met[2] = below & !(met[0] | met[1]);
  return below;
}

template <class Real, class E, DivisionKind kKind>
struct UnaryForward {
  static constexpr size_t kInputs = 1, kOutputs = 1, kCounters = 3;

  explicit SAFEOPS_INLINE UnaryForward(const CellArguments& arguments)
      : policy(arguments.policy), at_zero(kKind != DivisionKind::sqrt || policy.floors) {}

  SAFEOPS_INLINE auto suspect(const Real* in) const { return in[0] < policy.limit; }
  SAFEOPS_INLINE void plain(const Real* in, Real* out) const {
    out[0] = value_of<Real, kKind>(in[0]);
  }
  template <class LaneMask>
  SAFEOPS_INLINE void guarded(const Real* in, Real* out, LaneMask* met) const {
    const auto singular = singular_argument(policy, in[0], met);
    out[0] = policy.filled(at_zero ? singular : singular & !met[0], out[0]);
  }
  SAFEOPS_INLINE Hit& counter(Hits& hits, size_t i) const {
    if (i == 0) return at_zero ? hits[Condition::zero_argument] : hits.latent;
    return hits[i == 1 ? Condition::negative_argument : Condition::below_eps];
  }

 private:
  const ElementPolicy<Real> policy;
  const bool at_zero;
};

template <class Real, class E, DivisionKind kKind>
struct UnaryBackward {
  static constexpr size_t kInputs = 2, kOutputs = 1, kCounters = 4;

  explicit SAFEOPS_INLINE UnaryBackward(const CellArguments& arguments)
      : policy(arguments.policy) {}

  SAFEOPS_INLINE auto suspect(const Real* in) const { return in[1] < policy.limit; }
  SAFEOPS_INLINE void plain(const Real* in, Real* out) const {
    out[0] = slope_times<Real, kKind>(in[0], in[1]);
  }
  template <class LaneMask>
  SAFEOPS_INLINE void guarded(const Real* in, Real* out, LaneMask* met) const {
    const auto singular = singular_argument(policy, in[1], met);
    met[3] = singular & !(in[0] == Real(0));
    out[0] = policy.filled(singular, out[0]);
  }
  static SAFEOPS_INLINE Hit& counter(Hits& hits, size_t i) {
    if (i == 3) return hits.raising;
    return hits[i == 0   ? Condition::zero_argument
                : i == 1 ? Condition::negative_argument
                         : Condition::below_eps];
  }

 private:
  const ElementPolicy<Real> policy;
};

SAFEOPS_END_LANES

#endif
