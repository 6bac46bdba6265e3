#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cases/wide.h"
#include "core/resolution.h"

namespace safeops::cases {

inline constexpr Element kElements[] = {Element::float16, Element::bfloat16, Element::float32,
                                        Element::float64};

/// A binary interchange format. Exponents are those of the leading bit; the bias equals
/// max_exponent.
struct Format {
  std::size_t bytes;
  int precision;  ///< significand bits, the hidden one included
  int min_exponent;
  int max_exponent;
};

constexpr Format format(Element element) {
  switch (element) {
    case Element::float16:
      return {2, 11, -14, 15};
    case Element::bfloat16:
      return {2, 8, -126, 127};
    case Element::float32:
      return {4, 24, -126, 127};
    case Element::float64:
      return {8, 53, -1022, 1023};
  }
  return {};
}

constexpr const char* name(Element element) {
  switch (element) {
    case Element::float16:
      return "float16";
    case Element::bfloat16:
      return "bfloat16";
    case Element::float32:
      return "float32";
    case Element::float64:
      return "float64";
  }
  return "";
}

inline double smallest_subnormal(Element element) {
  const Format f = format(element);
  return std::ldexp(1.0, f.min_exponent - (f.precision - 1));
}
inline double smallest_normal(Element element) {
  return std::ldexp(1.0, format(element).min_exponent);
}
inline double largest(Element element) {
  const Format f = format(element);
  return std::ldexp(2.0 - std::ldexp(1.0, 1 - f.precision), f.max_exponent);
}

/// The value of a bit pattern, exactly. Written from the definition of the formats, so that it
/// shares nothing with the conversions under test.
inline double decode(Element element, std::uint64_t bits) {
  const Format f = format(element);
  const int fraction_bits = f.precision - 1;
  const int exponent_bits = static_cast<int>(8 * f.bytes) - 1 - fraction_bits;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << fraction_bits) - 1);
  const std::uint64_t field = bits >> fraction_bits & ((std::uint64_t{1} << exponent_bits) - 1);
  const bool negative = (bits >> (8 * f.bytes - 1) & 1) != 0;
  double magnitude;
  if (field == (std::uint64_t{1} << exponent_bits) - 1) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (field == 0) {
    magnitude = std::ldexp(static_cast<double>(fraction), f.min_exponent - fraction_bits);
  } else {
    const double significand = static_cast<double>(fraction | std::uint64_t{1} << fraction_bits);
    magnitude = std::ldexp(significand, static_cast<int>(field) - f.max_exponent - fraction_bits);
  }
  return negative ? -magnitude : magnitude;
}

inline bool is_nan(Element element, std::uint64_t bits) {
  const Format f = format(element);
  const std::uint64_t infinity = static_cast<std::uint64_t>(2 * f.max_exponent + 1)
                                 << (f.precision - 1);
  return (bits & ~(std::uint64_t{1} << (8 * f.bytes - 1))) > infinity;
}

/// The bit pattern nearest to `value`, ties to even. NaN becomes the positive quiet NaN without
/// payload.
inline std::uint64_t encode(Element element, double value) {
  const Format f = format(element);
  const int fraction_bits = f.precision - 1;
  const std::uint64_t hidden = std::uint64_t{1} << fraction_bits;
  const std::uint64_t infinity = static_cast<std::uint64_t>(2 * f.max_exponent + 1)
                                 << fraction_bits;
  if (std::isnan(value)) return infinity | hidden >> 1;
  const std::uint64_t sign = static_cast<std::uint64_t>(std::signbit(value)) << (8 * f.bytes - 1);
  if (value == 0) return sign;
  if (std::isinf(value)) return sign | infinity;
  int exponent = std::max(std::ilogb(value), f.min_exponent);
  const double scaled = std::ldexp(std::fabs(value), fraction_bits - exponent);
  const double below = std::floor(scaled);
  std::uint64_t significand = static_cast<std::uint64_t>(below);
  const double rest = scaled - below;
  if (rest > 0.5 || (rest == 0.5 && (significand & 1) != 0)) ++significand;
  if (significand == 2 * hidden) {
    significand = hidden;
    ++exponent;
  }
  if (exponent > f.max_exponent) return sign | infinity;
  if (significand < hidden) return sign | significand;
  return sign | static_cast<std::uint64_t>(exponent + f.max_exponent) << fraction_bits |
         (significand - hidden);
}

inline double rounded(Element element, double value) {
  return decode(element, encode(element, value));
}

/// Distance between neighbouring values of the format around `exact`.
template <Number N>
N ulp(Element element, const N& exact) {
  const Format f = format(element);
  const long leading =
      is_zero(exact) ? f.min_exponent : std::max<long>(exponent(exact), f.min_exponent);
  return scaled(N(1.0), leading - (f.precision - 1));
}

/// |computed - exact| in `unit`s. Infinite where one is NaN or infinite and the other is not,
/// except that an exact value past the last rounding interval is infinity in the format.
template <Number N>
double error_in(const N& unit, Element element, double computed, const N& exact) {
  constexpr double wrong = std::numeric_limits<double>::infinity();
  if (is_nan(exact) || std::isnan(computed))
    return is_nan(exact) && std::isnan(computed) ? 0 : wrong;
  if (is_infinite(exact))
    return std::isinf(computed) && std::signbit(computed) == is_negative(exact) ? 0 : wrong;
  if (!std::isinf(computed)) return to_double(abs(N(computed) - exact) / unit);
  // An infinity stands for every number from half an ulp above the largest on.
  const Format f = format(element);
  const N past = scaled(N(1.0), f.max_exponent + 1) - scaled(N(1.0), f.max_exponent - f.precision);
  const N distance = std::signbit(computed) ? past + exact : past - exact;
  return distance <= N(0.0) ? 0 : to_double(distance / unit);
}

/// Error in ulp of the format at `exact`.
template <Number N>
double error_in_ulp(Element element, double computed, const N& exact) {
  if (is_nan(exact) || is_infinite(exact)) return error_in(N(1.0), element, computed, exact);
  return error_in(ulp(element, exact), element, computed, exact);
}

}  // namespace safeops::cases
