#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cases/rows.h"

namespace safeops::cases {

/// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine, unlike the standard
/// distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  /// Uniform in (-1, 1), never 0.
  double symmetric() { return std::ldexp(static_cast<double>(next() >> 12) + 0.5, -51) - 1.0; }
  /// In [low, high].
  int between(int low, int high) {
    return low + static_cast<int>(below(static_cast<std::size_t>(high - low) + 1));
  }
  template <std::size_t kCount, class Value>
  Value pick(const Value (&values)[kCount]) {
    return values[below(kCount)];
  }

 private:
  std::uint64_t state_;
};

/// Around every edge of a walk: vectors, batches of rows, the sixteen virtual lanes, slices of
/// 8192.
inline constexpr std::size_t kLengths[] = {1,   2,   3,   4,   5,    7,    8,    9,    15,   16,
                                           17,  31,  32,  33,  63,   64,   65,   127,  128,  129,
                                           255, 256, 257, 513, 1000, 4099, 8191, 8192, 8193, 20000};

enum class Fill {
  uniform,         ///< (-1, 1)
  wide_exponents,  ///< every magnitude of the format alike
  spike,           ///< one element towers over the rest
  equal,           ///< all of one magnitude: ties for p = inf
  sparse,          ///< mostly zeros, of both signs
};
inline constexpr Fill kFills[] = {Fill::uniform, Fill::wide_exponents, Fill::spike, Fill::equal,
                                  Fill::sparse};

/// A finite value of any magnitude that the format has, subnormals included.
inline double any_magnitude(Element element, Random& random) {
  const Format f = format(element);
  const int exponent = random.between(f.min_exponent - f.precision + 1, f.max_exponent);
  const double value = rounded(element, std::ldexp(random.symmetric() * 0.49 + 1.5, exponent));
  return random.below(2) == 0 ? value : -value;
}

/// `scale` multiplies all but wide_exponents, which has every scale already.
inline void fill_row(Rows& rows, std::size_t row, Fill fill, double scale, Random& random) {
  const std::size_t spike = random.below(rows.length);
  const double magnitude = random.symmetric() * scale;
  for (std::size_t i = 0; i < rows.length; ++i) {
    double value = random.symmetric() * scale;
    switch (fill) {
      case Fill::uniform:
        break;
      case Fill::wide_exponents:
        value = any_magnitude(rows.element, random);
        break;
      case Fill::spike:
        value *= i == spike ? 1.0 : 0x1p-12;
        break;
      case Fill::equal:
        value = std::copysign(magnitude, value);
        break;
      case Fill::sparse:
        if (i != spike && random.below(4) != 0) value = std::copysign(0.0, value);
        break;
    }
    rows.set(row, i, value);
  }
}

inline Rows random_rows(Element element, std::size_t rows, std::size_t length, Fill fill,
                        double scale, Random& random) {
  Rows result(element, rows, length);
  for (std::size_t r = 0; r < rows; ++r) fill_row(result, r, fill, scale, random);
  return result;
}

/// Scales from the bottom of the format to its top, at which rows of the lengths above stay finite.
inline std::vector<double> scales(Element element) {
  switch (element) {
    case Element::float16:
      return {6e-8, 1e-6, 1e-3, 1.0, 250.0, 6e4};
    case Element::bfloat16:
    case Element::float32:
      return {1e-44, 1e-40, 1e-30, 1e-12, 1.0, 1e18, 1e25, 3e38};
    case Element::float64:
      return {1e-322, 1e-310, 1e-300, 1e-200, 1e-160, 1e-150,
              1.0,    1e150,  1e160,  1e200,  1e300,  1.7e308};
  }
  return {};
}

/// First, middle and last position of a row.
inline std::vector<std::size_t> positions(std::size_t length) {
  std::vector<std::size_t> result{0};
  if (length > 2) result.push_back(length / 2);
  if (length > 1) result.push_back(length - 1);
  return result;
}

}  // namespace safeops::cases
