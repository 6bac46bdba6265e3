// The vocabulary on one lane of a CUDA thread: the words of lanes_highway-inl.h, on one number. A
// class of its own, and not the number itself, so that float32 never meets fp64 unless a program
// says `widen`.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/element.h"
#include "core/float_format.h"
#include "core/lanes_scalar.h"

SAFEOPS_BEGIN_LANES

inline constexpr bool kFusedMulAdd = true;
inline constexpr unsigned kWarp = 32, kWholeWarp = 0xFFFFFFFF;

// The instructions that have a name for each type.
SAFEOPS_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SAFEOPS_INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
SAFEOPS_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
SAFEOPS_INLINE double square_root(double x) { return __builtin_sqrt(x); }
SAFEOPS_INLINE float absolute(float x) { return __builtin_fabsf(x); }
SAFEOPS_INLINE double absolute(double x) { return __builtin_fabs(x); }
SAFEOPS_INLINE float with_sign(float x, float sign) { return __builtin_copysignf(x, sign); }
SAFEOPS_INLINE double with_sign(double x, double sign) { return __builtin_copysign(x, sign); }
SAFEOPS_INLINE float nearest(float x) { return __builtin_rintf(x); }
SAFEOPS_INLINE double nearest(double x) { return __builtin_rint(x); }
SAFEOPS_INLINE float below(float x) { return __builtin_floorf(x); }
SAFEOPS_INLINE double below(double x) { return __builtin_floor(x); }
SAFEOPS_INLINE float towards_zero(float x) { return __builtin_truncf(x); }
SAFEOPS_INLINE double towards_zero(double x) { return __builtin_trunc(x); }

SAFEOPS_INLINE bool is_set(bool mask) { return mask; }

// `Mask` is what a comparison gives: bool, or a type of its own that `any` means more by.
template <class T, class Mask = bool>
struct Lanes {
  using Scalar = T;
  static constexpr int kLanes = 1;
  T raw;

  Lanes() = default;
  SAFEOPS_INLINE Lanes(T value) : raw(value) {}
  SAFEOPS_INLINE double first() const { return static_cast<double>(raw); }

  friend SAFEOPS_INLINE Lanes operator+(Lanes a, Lanes b) { return a.raw + b.raw; }
  friend SAFEOPS_INLINE Lanes operator-(Lanes a, Lanes b) { return a.raw - b.raw; }
  friend SAFEOPS_INLINE Lanes operator*(Lanes a, Lanes b) { return a.raw * b.raw; }
  friend SAFEOPS_INLINE Lanes operator/(Lanes a, Lanes b) { return a.raw / b.raw; }
  friend SAFEOPS_INLINE Lanes operator-(Lanes a) { return -a.raw; }
  friend SAFEOPS_INLINE Mask operator<(Lanes a, Lanes b) { return Mask{a.raw < b.raw}; }
  friend SAFEOPS_INLINE Mask operator==(Lanes a, Lanes b) { return Mask{a.raw == b.raw}; }
  friend SAFEOPS_INLINE Lanes mul_add(Lanes a, Lanes b, Lanes c) {
    return fused(a.raw, b.raw, c.raw);
  }
  friend SAFEOPS_INLINE Lanes root(Lanes x) { return square_root(x.raw); }
  friend SAFEOPS_INLINE Lanes magnitude(Lanes x) { return absolute(x.raw); }
  friend SAFEOPS_INLINE Lanes copy_sign(Lanes size, Lanes sign) {
    return with_sign(size.raw, sign.raw);
  }
  friend SAFEOPS_INLINE Lanes select(Mask mask, Lanes yes, Lanes no) {
    return is_set(mask) ? yes : no;
  }
  // A NaN stays NaN: every comparison with it is false.
  friend SAFEOPS_INLINE Lanes at_least(Lanes x, Lanes floor) {
    return x.raw < floor.raw ? floor : x;
  }
  friend SAFEOPS_INLINE Mask is_nan(Lanes x) { return Mask{x.raw != x.raw}; }
  // The larger; anything where either is NaN.
  friend SAFEOPS_INLINE Lanes larger_number(Lanes a, Lanes b) { return a.raw < b.raw ? b : a; }
  friend SAFEOPS_INLINE Lanes round_even(Lanes x) { return nearest(x.raw); }
  friend SAFEOPS_INLINE Lanes round_down(Lanes x) { return below(x.raw); }
  friend SAFEOPS_INLINE Lanes round_to_zero(Lanes x) { return towards_zero(x.raw); }
  // power_of_two and scale_by_power as in lanes_scalar.h; for float the range of n is [-252, 254].
  friend SAFEOPS_INLINE Lanes power_of_two(Lanes n) {
    using Bits = typename FloatFormat<T>::Bits;
    constexpr T kBias = T(sizeof(T) == 4 ? 0x1.8p23 : 0x1.8p52) + FloatFormat<T>::kBias;
    return std::bit_cast<T>(
        static_cast<Bits>(std::bit_cast<Bits>(n.raw + kBias) << FloatFormat<T>::kFractionBits));
  }
  friend SAFEOPS_INLINE Lanes scale_by_power(Lanes x, Lanes n) {
    const Lanes half = round_even(n * Lanes(T(0.5)));
    return x * power_of_two(half) * power_of_two(n - half);
  }
  // significand and exponent as in lanes_scalar.h.
  friend SAFEOPS_INLINE Lanes significand(Lanes x) {
    using Bits = typename FloatFormat<T>::Bits;
    const Bits fraction = std::bit_cast<Bits>(x.raw) & FloatFormat<T>::kFraction;
    return std::bit_cast<T>(fraction | std::bit_cast<Bits>(T(1)));
  }
  friend SAFEOPS_INLINE Lanes exponent(Lanes x) {
    using Bits = typename FloatFormat<T>::Bits;
    constexpr T kPlace = T(FloatFormat<T>::kFraction) + T(1);  // its last bit is worth 1
    const Bits biased = std::bit_cast<Bits>(x.raw) >> FloatFormat<T>::kFractionBits;
    return std::bit_cast<T>(biased | std::bit_cast<Bits>(kPlace)) -
           (kPlace + FloatFormat<T>::kBias);
  }
};

template <class Real>
using WideOf = Lanes<double>;

SAFEOPS_INLINE Lanes<double> widen(Lanes<double> x) { return x; }
SAFEOPS_INLINE Lanes<double> widen(Lanes<float> x) { return static_cast<double>(x.raw); }
template <class Real>
SAFEOPS_INLINE Real narrow(Lanes<double> x) {
  return static_cast<typename Real::Scalar>(x.raw);
}

template <class Real, class F, class... P>
SAFEOPS_INLINE Lanes<double> on_value(F f, Lanes<double> x, P... p) {
  return widen(f(narrow<Real>(x), narrow<Real>(p)...));
}
template <class Real>
SAFEOPS_INLINE Lanes<double> rounded_to(Lanes<double> x) {
  return widen(narrow<Real>(x));
}

// f(operands...) of numbers where the mask is set, x elsewhere.
template <class T, class F, class... V>
SAFEOPS_INLINE Lanes<T> with_set_lanes(bool mask, Lanes<T> x, F f, V... operands) {
  return mask ? Lanes<T>(f(operands.raw...)) : x;
}

SAFEOPS_END_LANES
