// The vocabulary on vectors: arithmetic. With memory_highway-inl.h the only file that calls
// Highway.
//
// Lanes<T> is one native vector, LanesPair two vectors of double with as many lanes as one of
// float. Everything is a hidden friend, so that `1.0 / norm` and `x * 0.5` spread the constant.
#if defined(SAFEOPS_CORE_LANES_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_LANES_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_LANES_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_LANES_HIGHWAY_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/element.h"
#include "core/float_format.h"
#include "core/lanes_scalar.h"
#include "hwy/highway.h"

SAFEOPS_BEGIN_LANES

namespace hn = hwy::HWY_NAMESPACE;

// Whether mul_add rounds once. SSE4 has no such instruction.
inline constexpr bool kFusedMulAdd = HWY_NATIVE_FMA;

template <class T>
struct Mask;

template <class T>
struct Lanes {
  using Scalar = T;
  using Tag = hn::CappedTag<T, 64 / sizeof(T)>;
  static constexpr size_t kLanes = hn::MaxLanes(Tag());
  hn::Vec<Tag> raw;

  Lanes() = default;
  HWY_INLINE Lanes(hn::Vec<Tag> vector) : raw(vector) {}
  HWY_INLINE Lanes(T value) : raw(hn::Set(Tag(), value)) {}
  HWY_INLINE double first() const { return static_cast<double>(hn::GetLane(raw)); }

  friend HWY_INLINE Lanes operator+(Lanes a, Lanes b) { return hn::Add(a.raw, b.raw); }
  friend HWY_INLINE Lanes operator-(Lanes a, Lanes b) { return hn::Sub(a.raw, b.raw); }
  friend HWY_INLINE Lanes operator*(Lanes a, Lanes b) { return hn::Mul(a.raw, b.raw); }
  friend HWY_INLINE Lanes operator/(Lanes a, Lanes b) { return hn::Div(a.raw, b.raw); }
  friend HWY_INLINE Lanes operator-(Lanes a) { return hn::Neg(a.raw); }
  friend HWY_INLINE Mask<T> operator<(Lanes a, Lanes b) { return {hn::Lt(a.raw, b.raw)}; }
  // There is no operator!=: hn::Ne is ordered on AVX2 and AVX-512 in 1.0.3, so Ne(NaN, NaN) is
  // false there.
  friend HWY_INLINE Mask<T> operator==(Lanes a, Lanes b) { return {hn::Eq(a.raw, b.raw)}; }
  friend HWY_INLINE Lanes mul_add(Lanes a, Lanes b, Lanes c) {
    return hn::MulAdd(a.raw, b.raw, c.raw);
  }
  friend HWY_INLINE Lanes root(Lanes x) { return hn::Sqrt(x.raw); }
  friend HWY_INLINE Lanes magnitude(Lanes x) { return hn::Abs(x.raw); }
  friend HWY_INLINE Lanes copy_sign(Lanes size, Lanes sign) {
    return hn::CopySign(size.raw, sign.raw);
  }
  friend HWY_INLINE Lanes select(Mask<T> mask, Lanes yes, Lanes no) {
    return hn::IfThenElse(mask.raw, yes.raw, no.raw);
  }
  friend HWY_INLINE Lanes at_least(Lanes x, Lanes floor) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
    // One instruction that gives its second operand where either is NaN or both are zero.
    return hn::Max(floor.raw, x.raw);
#else
    return select(x < floor, floor, x);
#endif
  }
  friend HWY_INLINE Mask<T> is_nan(Lanes x) { return {hn::IsNaN(x.raw)}; }
  // The larger; anything where either is NaN: hn::Max returns its second operand on x86 there, and
  // does something else elsewhere.
  friend HWY_INLINE Lanes larger_number(Lanes a, Lanes b) { return hn::Max(a.raw, b.raw); }
  friend HWY_INLINE Lanes round_even(Lanes x) { return hn::Round(x.raw); }
  friend HWY_INLINE Lanes round_down(Lanes x) { return hn::Floor(x.raw); }
  friend HWY_INLINE Lanes round_to_zero(Lanes x) { return hn::Trunc(x.raw); }
  // power_of_two and scale_by_power as in lanes_scalar.h; for float the range of n is [-252, 254].
  friend HWY_INLINE Lanes power_of_two(Lanes n) {
    constexpr T kBias = T(sizeof(T) == 4 ? 0x1.8p23 : 0x1.8p52) + FloatFormat<T>::kBias;
    const hn::RebindToUnsigned<Tag> bits;
    const auto biased = hn::BitCast(bits, hn::Add(n.raw, hn::Set(Tag(), kBias)));
    return hn::BitCast(Tag(), hn::ShiftLeft<FloatFormat<T>::kFractionBits>(biased));
  }
  friend HWY_INLINE Lanes scale_by_power(Lanes x, Lanes n) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    // One instruction, which this version of Highway does not offer. The result is the same, but
    // for NaN with an infinite n.
    if constexpr (sizeof(T) == 4) {
      return hn::Vec<Tag>{_mm512_scalef_ps(x.raw.raw, n.raw.raw)};
    } else {
      return hn::Vec<Tag>{_mm512_scalef_pd(x.raw.raw, n.raw.raw)};
    }
#else
    const Lanes half = round_even(n * Lanes(T(0.5)));
    return x * power_of_two(half) * power_of_two(n - half);
#endif
  }
  // significand and exponent as in lanes_scalar.h.
  friend HWY_INLINE Lanes significand(Lanes x) {
    using Bits = typename FloatFormat<T>::Bits;
    const hn::RebindToUnsigned<Tag> bits;
    const auto fraction =
        hn::And(hn::BitCast(bits, x.raw), hn::Set(bits, FloatFormat<T>::kFraction));
    return hn::BitCast(Tag(), hn::Or(fraction, hn::Set(bits, std::bit_cast<Bits>(T(1)))));
  }
  friend HWY_INLINE Lanes exponent(Lanes x) {
    using Bits = typename FloatFormat<T>::Bits;
    const hn::RebindToUnsigned<Tag> bits;
    const auto biased = hn::ShiftRight<FloatFormat<T>::kFractionBits>(hn::BitCast(bits, x.raw));
    constexpr T kPlace = T(FloatFormat<T>::kFraction) + T(1);  // its last bit is worth 1
    const auto placed = hn::Or(biased, hn::Set(bits, std::bit_cast<Bits>(kPlace)));
    return Lanes(hn::BitCast(Tag(), placed)) - Lanes(kPlace + FloatFormat<T>::kBias);
  }
};

template <class T>
struct Mask {
  using Tag = typename Lanes<T>::Tag;
  hn::Mask<Tag> raw;

  friend HWY_INLINE Mask operator&(Mask a, Mask b) { return {hn::And(a.raw, b.raw)}; }
  friend HWY_INLINE Mask operator|(Mask a, Mask b) { return {hn::Or(a.raw, b.raw)}; }
  friend HWY_INLINE Mask operator!(Mask a) { return {hn::Not(a.raw)}; }
  friend HWY_INLINE bool any(Mask a) { return !hn::AllFalse(Tag(), a.raw); }
  friend HWY_INLINE size_t count_set(Mask a) { return hn::CountTrue(Tag(), a.raw); }
};

struct MaskPair {
  Mask<double> low, high;

  friend HWY_INLINE MaskPair operator&(MaskPair a, MaskPair b) {
    return {a.low & b.low, a.high & b.high};
  }
  friend HWY_INLINE MaskPair operator|(MaskPair a, MaskPair b) {
    return {a.low | b.low, a.high | b.high};
  }
  friend HWY_INLINE MaskPair operator!(MaskPair a) { return {!a.low, !a.high}; }
  friend HWY_INLINE bool any(MaskPair a) { return any(a.low | a.high); }
};

struct LanesPair {
  using Scalar = double;
  static constexpr size_t kLanes = 2 * Lanes<double>::kLanes;
  Lanes<double> low, high;

  LanesPair() = default;
  HWY_INLINE LanesPair(Lanes<double> low_half, Lanes<double> high_half)
      : low(low_half), high(high_half) {}
  HWY_INLINE LanesPair(double value) : low(value), high(value) {}

  friend HWY_INLINE LanesPair operator+(LanesPair a, LanesPair b) {
    return {a.low + b.low, a.high + b.high};
  }
  friend HWY_INLINE LanesPair operator-(LanesPair a, LanesPair b) {
    return {a.low - b.low, a.high - b.high};
  }
  friend HWY_INLINE LanesPair operator*(LanesPair a, LanesPair b) {
    return {a.low * b.low, a.high * b.high};
  }
  friend HWY_INLINE LanesPair operator/(LanesPair a, LanesPair b) {
    return {a.low / b.low, a.high / b.high};
  }
  friend HWY_INLINE LanesPair operator-(LanesPair a) { return {-a.low, -a.high}; }
  friend HWY_INLINE MaskPair operator<(LanesPair a, LanesPair b) {
    return {a.low < b.low, a.high < b.high};
  }
  friend HWY_INLINE MaskPair operator==(LanesPair a, LanesPair b) {
    return {a.low == b.low, a.high == b.high};
  }
  friend HWY_INLINE LanesPair mul_add(LanesPair a, LanesPair b, LanesPair c) {
    return {mul_add(a.low, b.low, c.low), mul_add(a.high, b.high, c.high)};
  }
  friend HWY_INLINE LanesPair root(LanesPair x) { return {root(x.low), root(x.high)}; }
  friend HWY_INLINE LanesPair magnitude(LanesPair x) {
    return {magnitude(x.low), magnitude(x.high)};
  }
  friend HWY_INLINE LanesPair copy_sign(LanesPair size, LanesPair sign) {
    return {copy_sign(size.low, sign.low), copy_sign(size.high, sign.high)};
  }
  friend HWY_INLINE LanesPair select(MaskPair mask, LanesPair yes, LanesPair no) {
    return {select(mask.low, yes.low, no.low), select(mask.high, yes.high, no.high)};
  }
  friend HWY_INLINE LanesPair at_least(LanesPair x, LanesPair floor) {
    return {at_least(x.low, floor.low), at_least(x.high, floor.high)};
  }
  friend HWY_INLINE LanesPair round_even(LanesPair x) {
    return {round_even(x.low), round_even(x.high)};
  }
  friend HWY_INLINE LanesPair scale_by_power(LanesPair x, LanesPair n) {
    return {scale_by_power(x.low, n.low), scale_by_power(x.high, n.high)};
  }
  friend HWY_INLINE LanesPair significand(LanesPair x) {
    return {significand(x.low), significand(x.high)};
  }
  friend HWY_INLINE LanesPair exponent(LanesPair x) { return {exponent(x.low), exponent(x.high)}; }
};

// fp64 with as many lanes as Real has. On a target with one lane a single vector of double
// suffices.
template <class Real>
using WideOf = std::conditional_t<Real::kLanes == Lanes<double>::kLanes, Lanes<double>, LanesPair>;

HWY_INLINE Lanes<double> widen(Lanes<double> x) { return x; }
HWY_INLINE WideOf<Lanes<float>> widen(Lanes<float> x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::PromoteTo(Lanes<double>::Tag(), x.raw);
#else
  const hn::Half<Lanes<float>::Tag> half;
  const Lanes<double>::Tag wide;
  return {hn::PromoteTo(wide, hn::LowerHalf(half, x.raw)),
          hn::PromoteTo(wide, hn::UpperHalf(half, x.raw))};
#endif
}

template <class Real>
HWY_INLINE Real narrow(WideOf<Real> x) {
  if constexpr (std::is_same_v<Real, Lanes<double>>) {
    return x;
  } else {
#if HWY_TARGET == HWY_SCALAR
    return Lanes<float>(
        static_cast<float>(hn::GetLane(x.raw)));  // hn::DemoteTo clamps infinity here
#else
    const Lanes<float>::Tag tag;
    const hn::Half<Lanes<float>::Tag> half;
    return hn::Combine(tag, hn::DemoteTo(half, x.high.raw), hn::DemoteTo(half, x.low.raw));
#endif
  }
}

template <class Real, class F, class... P>
HWY_INLINE WideOf<Real> on_value(F f, WideOf<Real> x, P... p) {
  return widen(f(narrow<Real>(x), narrow<Real>(p)...));
}
template <class Real>
HWY_INLINE LanesPair rounded_to(LanesPair x) {
  return widen(narrow<Real>(x));
}
template <class Real>
HWY_INLINE Lanes<double> rounded_to(Lanes<double> x) {
  return widen(narrow<Real>(x));
}

// The lanes below n of a condition.
HWY_INLINE Mask<double> first_lanes(Lanes<double>, size_t n) {
  return {hn::FirstN(Lanes<double>::Tag(), n)};
}
HWY_INLINE MaskPair first_lanes(LanesPair, size_t n) {
  constexpr size_t kHalf = Lanes<double>::kLanes;
  const Lanes<double>::Tag tag;
  return {{hn::FirstN(tag, n)}, {hn::FirstN(tag, n < kHalf ? 0 : n - kHalf)}};
}
template <class Real>
HWY_INLINE Mask<typename Real::Scalar> first_elements(size_t n) {
  return {hn::FirstN(typename Real::Tag(), n)};
}

// The mask of per-row values as a mask of elements.
template <class Real, class WideMask>
HWY_INLINE Mask<typename Real::Scalar> narrow_mask(WideMask mask) {
  if constexpr (std::is_same_v<Mask<typename Real::Scalar>, WideMask>) {
    return mask;
  } else {
    const WideOf<Real> one(1.0), zero(0.0);
    return !(narrow<Real>(select(mask, one, zero)) == Real(0));
  }
}

// Folds by halves: lane i with lane i + n / 2, and so on, the same tree on every target.
template <class V, class Combine>
HWY_INLINE double fold_lanes(V vector, Combine combine) {
#if HWY_TARGET == HWY_SCALAR
  (void)combine;
  return hn::GetLane(vector);
#else
  using Tag = hn::DFromV<V>;
  if constexpr (hn::MaxLanes(Tag()) == 1) {
    (void)combine;
    return static_cast<double>(hn::GetLane(vector));
  } else {
    const hn::Half<Tag> half;
    return fold_lanes(combine(hn::LowerHalf(half, vector), hn::UpperHalf(half, vector)), combine);
  }
#endif
}
struct AddVectors {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct LargerVectors {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};
HWY_INLINE double total(Lanes<double> x) { return fold_lanes(x.raw, AddVectors()); }
HWY_INLINE double total(LanesPair x) { return total(x.low + x.high); }
// Of numbers: NaN may vanish.
HWY_INLINE double largest(Lanes<float> x) { return fold_lanes(x.raw, LargerVectors()); }
HWY_INLINE double largest(Lanes<double> x) { return fold_lanes(x.raw, LargerVectors()); }

SAFEOPS_END_LANES

#endif
