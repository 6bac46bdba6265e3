#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "core/resolution.h"

namespace safeops {

/// Storage types of half precision. Arithmetic never happens in them.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

constexpr float to_real(float x) { return x; }
constexpr double to_real(double x) { return x; }
constexpr float to_real(bfloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
constexpr float to_real(float16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = x.bits & 0x7FFFu;
  if (magnitude >= 0x7C00u)
    return std::bit_cast<float>(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  // A float16 magnitude read as float32 bits is too small by 2^112, subnormals included; the
  // product is exact.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

constexpr void from_real(float x, float& out) { out = x; }
constexpr void from_real(double x, double& out) { out = x; }
constexpr void from_real(float x, bfloat16& out) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  // Rounding a NaN up could carry into the exponent and give infinity.
  const std::uint32_t rounded = x != x ? bits | 0x400000u : bits + 0x7FFFu + ((bits >> 16) & 1u);
  out.bits = static_cast<std::uint16_t>(rounded >> 16);
}
constexpr void from_real(float x, float16& out) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  } else if (magnitude >= 0x477FF000u) {  // 65520 is half way between the largest float16 and 65536
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 puts the unit in the last place at 2^-24, so the addition itself
    // rounds to nearest even.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  }
  out.bits = static_cast<std::uint16_t>(sign | half);
}

/// What a program must know about the dtype it stores, all exact in fp64.
/// `lowest_norm` and `highest_norm` bound the norms whose square is a normal number of the dtype.
template <class E>
struct ElementTraits;
template <>
struct ElementTraits<float16> {
  using Real = float;
  static constexpr bool kHalf = true;
  static constexpr Element kElement = Element::float16;
  static constexpr double kLowestNorm = 0x1p-7, kHighestNorm = 0x1.ffdffeffeffecp7;
};
template <>
struct ElementTraits<bfloat16> {
  using Real = float;
  static constexpr bool kHalf = true;
  static constexpr Element kElement = Element::bfloat16;
  static constexpr double kLowestNorm = 0x1p-63, kHighestNorm = 0x1.feffbfdfebf1fp63;
};
template <>
struct ElementTraits<float> {
  using Real = float;
  static constexpr bool kHalf = false;
  static constexpr Element kElement = Element::float32;
  static constexpr double kLowestNorm = 0x1p-63, kHighestNorm = 0x1.fffffeffffffcp63;
};
template <>
struct ElementTraits<double> {
  using Real = double;
  static constexpr bool kHalf = false;
  static constexpr Element kElement = Element::float64;
  static constexpr double kLowestNorm = 0x1p-511, kHighestNorm = 0x1.fffffffffffffp511;
};

constexpr double lowest_finite(Element element) {
  switch (element) {
    case Element::float16:
      return -65504;
    case Element::bfloat16:
      return -0x1.fep127;
    case Element::float32:
      return std::numeric_limits<float>::lowest();
    case Element::float64:
      break;
  }
  return std::numeric_limits<double>::lowest();
}

/// f(E()) for the type E of elements that are stored so.
template <class F>
constexpr auto with_element(Element element, const F& f) {
  switch (element) {
    case Element::float16:
      return f(float16());
    case Element::bfloat16:
      return f(bfloat16());
    case Element::float32:
      return f(float());
    case Element::float64:
      break;
  }
  return f(double());
}

}  // namespace safeops
