#pragma once

#include <cstddef>
#include <vector>

#include "cases/mask.h"
#include "cases/outcome.h"
#include "cases/random_rows.h"

namespace safeops::cases {

/// Lengths on every side of each boundary in the walks of a softmax.
inline const std::vector<std::size_t> kSoftmaxLengths = {
    1,  2,  3,  4,  5,  6,  7,   8,   9,   10,  11,  12,   13,   14,   15,   16,   17,
    18, 19, 20, 63, 64, 65, 255, 256, 257, 513, 781, 1000, 1023, 8191, 8192, 8193, 20000};

enum class Logits {
  uniform,  ///< in (-range, range)
  cluster,  ///< about -range or range, so that all terms count
  ladder,   ///< from range down through every size of term, to those that are subnormal and 0
};
inline constexpr Logits kLogits[] = {Logits::uniform, Logits::cluster, Logits::ladder};

inline void fill_logits(Rows& rows, std::size_t row, Logits fill, double range, Random& random) {
  const double center = random.below(2) == 0 ? range : -range;
  const double depth = rows.element == Element::float64 ? 760 : 110;
  const auto length = static_cast<double>(rows.length);
  for (std::size_t i = 0; i < rows.length; ++i) {
    double value = random.symmetric();
    switch (fill) {
      case Logits::uniform:
        value *= range;
        break;
      case Logits::cluster:
        value = center + value * 5;
        break;
      case Logits::ladder:
        value = range - depth * (static_cast<double>(i) + value) / length;
        break;
    }
    const double top = largest(rows.element);
    rows.set(row, i, std::clamp(value, -top, top));
  }
}

inline Rows random_logits(Element element, std::size_t rows, std::size_t length, Logits fill,
                          double range, Random& random) {
  Rows result(element, rows, length);
  for (std::size_t r = 0; r < rows; ++r) fill_logits(result, r, fill, range, random);
  return result;
}

/// Ranges of logits: terms alike, terms that underflow, and numbers past those where one float32
/// resolves a factor of e. 1024 is where float32 changes its method.
inline std::vector<double> logit_ranges(Element element) {
  switch (element) {
    case Element::float16:
      return {1, 10, 87, 700, 1023, 1024, 6e4};
    case Element::bfloat16:
    case Element::float32:
      return {1e-30, 1, 10, 87, 700, 1023.5, 1024, 1300, 1e4, 1e6, 1e30, 3e38};
    case Element::float64:
      return {1e-300, 1, 10, 87, 700, 1023.5, 1e4, 1e6, 1e30, 1e308};
  }
  return {};
}

/// Rows of very different sizes; among them rows that are empty, not finite, or nothing but finite
/// minima, and regular rows with some elements -inf. The last of many rows is empty.
inline Rows eventful_logits(Element element, std::size_t rows, std::size_t length, Random& random) {
  Rows x(element, rows, length);
  for (std::size_t r = 0; r < rows; ++r) {
    fill_logits(x, r, random.pick(kLogits), random.pick({1.0, 10.0, 87.0, 700.0, 4000.0}), random);
    const std::size_t at = random.below(length);
    if (r % 13 == 11 || (r + 1 == rows && r > 3)) {
      for (std::size_t i = 0; i < length; ++i) x.set(r, i, -kInfinity);
    } else if (r % 17 == 15) {
      x.set(r, at, kNaN);
    } else if (r % 19 == 9) {
      x.set(r, at, kInfinity);
    } else if (r % 23 == 7) {
      for (std::size_t i = 0; i < length; ++i)
        x.set(r, i, i % 3 == 1 ? -kInfinity : -largest(element));
    } else if (r % 5 == 4) {
      for (std::size_t i = 0; i < length; i += 3) x.set(r, i, -kInfinity);
    }
  }
  return x;
}

/// Mostly true; some rows take part not at all, in one element, or as a whole.
inline Mask random_mask(std::size_t rows, std::size_t length, Random& random) {
  Mask mask(rows, length, true);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t kind = random.below(8);
    if (kind == 0) continue;
    if (kind <= 2) mask.set_row(r, false);
    if (kind == 2) mask.set(r, random.below(length), true);
    if (kind <= 2) continue;
    for (std::size_t i = 0; i < length; ++i) mask.set(r, i, random.below(4) != 0);
  }
  return mask;
}

/// What a mask hides may be anything.
inline void spoil_masked(Rows& x, const Mask& mask, Random& random) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < x.length; ++i) {
      if (!mask.at(r, i)) x.set(r, i, random.pick({kNaN, kInfinity, -kInfinity, 3.0, 1e4}));
    }
  }
}

}  // namespace safeops::cases
