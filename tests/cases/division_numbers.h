#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "cases/division_case.h"
#include "cases/random_rows.h"

namespace safeops::cases {

/// Numbers at which something can happen: zeros, infinities, NaN, ends of ranges, those around eps.
inline std::vector<double> landmarks(Element element, double eps) {
  const double least = smallest_subnormal(element), normal = smallest_normal(element);
  std::vector<double> result = {
      0.0, 1.0, 2.0, least, 3 * least, normal, normal - least, largest(element), kInfinity};
  if (eps > 0) {
    const double at = rounded(element, eps);
    for (const double near : {at, rounded(element, at * 0.99), rounded(element, at * 1.01)})
      result.push_back(near);
  }
  const std::size_t positive = result.size();
  for (std::size_t i = 0; i < positive; ++i) result.push_back(-result[i]);
  result.push_back(kNaN);
  return result;
}

/// One in `rarity` numbers is a landmark, the others have any significand, exponent and sign.
inline Rows eventful_numbers(Element element, std::size_t count, std::size_t parts, double eps,
                             std::size_t rarity, Random& random) {
  const std::vector<double> marks = landmarks(element, eps);
  Rows rows(element, count, parts);
  for (std::uint64_t& bits : rows.bits) {
    bits = encode(element, random.below(rarity) == 0 ? marks[random.below(marks.size())]
                                                     : any_magnitude(element, random));
  }
  return rows;
}

/// Every pair of landmarks, and of landmarks and others: a beside b.
struct Pairs {
  Rows a, b;

  Pairs(Element element, double eps, Random& random) {
    std::vector<double> values = landmarks(element, eps);
    for (int i = 0; i < 12; ++i) values.push_back(any_magnitude(element, random));
    a = b = Rows(element, values.size() * values.size(), 1);
    for (std::size_t i = 0; i < a.rows; ++i) {
      a.set(i, 0, values[i / values.size()]);
      b.set(i, 0, values[i % values.size()]);
    }
  }
};

/// The operands of a call of one kind and direction, of the same numbers.
struct Operands {
  Rows g, a, b;

  Operands(Element element, std::size_t count, std::size_t parts, double eps, std::size_t rarity,
           Random& random)
      : g(eventful_numbers(element, count, parts, eps, rarity, random)),
        a(eventful_numbers(element, count, parts, eps, rarity, random)),
        b(eventful_numbers(element, count, parts, eps, rarity, random)) {}

  Inputs inputs(const DivisionTrial& trial) const {
    const bool divides = has_divisor(trial.kind);
    if (!trial.backward) return divides ? Inputs{&a, &b, nullptr} : Inputs{&b, nullptr, nullptr};
    return {&g, &b, divides ? &a : nullptr};
  }
};

}  // namespace safeops::cases
