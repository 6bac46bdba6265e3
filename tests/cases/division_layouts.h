#pragma once

#include <cstddef>
#include <vector>

#include "cases/division_numbers.h"

namespace safeops::cases {

inline DivisionTrial random_call(Random& random) {
  DivisionTrial trial;
  trial.kind = random.pick(kDivisionKinds);
  trial.backward = random.below(2) == 0;
  trial.policy = random.pick(kAllPolicies);
  return trial;
}

inline Dims shuffled(std::size_t dims, Random& random) {
  Dims order(dims);
  for (std::size_t d = 0; d < dims; ++d) order[d] = d;
  for (std::size_t d = dims; d-- > 1;) std::swap(order[d], order[random.below(d + 1)]);
  return order;
}

inline Dims random_sizes(Random& random) {
  Dims sizes(random.below(7));
  for (std::size_t& size : sizes)
    size = random.below(5) == 0 ? 1 : 1 + random.below(sizes.size() < 3 ? 40 : 6);
  if (!sizes.empty() && random.below(40) == 0) sizes[random.below(sizes.size())] = 0;
  if (!sizes.empty() && random.below(3) == 0) sizes.back() = 1 + random.below(300);
  while (product(sizes) > 6000) sizes.pop_back();
  return sizes;
}

/// Any layout of every operand. Inputs are made to agree along the dims that are broadcast.
inline void scatter_operands(DivisionTrial& trial, Operands& operands, std::size_t parts,
                             const Dims& sizes, Random& random) {
  trial.sizes = sizes;
  if (random.below(2) == 0) trial.walk = shuffled(sizes.size(), random);
  trial.numbers = random.below(2) == 0;
  trial.streams = random.below(2) == 0;
  const auto place = [&](Placement& placement) {
    if (random.below(2) == 0) placement.order = shuffled(sizes.size(), random);
    if (random.below(3) == 0) placement.step = 1 + random.below(3);
    if (random.below(3) == 0) placement.gap = random.below(4);
    placement.shift = random.below(9);
    placement.guard = random.below(2) * 64;
  };
  Rows* const forward[] = {&operands.a, &operands.b, nullptr};
  Rows* const backward[] = {&operands.g, &operands.b, &operands.a};
  for (std::size_t k = 0; k < kElementInputs; ++k) {
    place(trial.input[k]);
    Rows* const rows = trial.backward            ? backward[k]
                       : has_divisor(trial.kind) ? forward[k]
                       : k == 0                  ? &operands.b
                                                 : nullptr;
    if (rows == nullptr || random.below(2) == 0) continue;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (random.below(3) == 0) trial.input[k].repeated.push_back(d);
    }
    repeat(rows->bits, parts, sizes, trial.input[k].repeated);
  }
  for (Placement& output : trial.output) place(output);
}

}  // namespace safeops::cases
