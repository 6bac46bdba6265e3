// Places and numbers of the elements of a call, against plain index arithmetic.
#include "core/element_cursor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cases/element_memory.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

Dims shuffled(std::size_t dims, Random& random) {
  Dims order(dims);
  for (std::size_t d = 0; d < dims; ++d) order[d] = d;
  for (std::size_t d = dims; d-- > 1;) std::swap(order[d], order[random.below(d + 1)]);
  return order;
}

/// A call of one output, numbered, and one input that repeats along some dims.
struct Walk {
  Dims sizes, walk;
  std::vector<std::int64_t> size, input_stride, output_stride;
  std::vector<ElementNumbering::Step> steps;
  ElementArguments arguments;
  alignas(8) char memory[1] = {};

  explicit Walk(Random& random) : sizes(random.below(5)) {
    for (std::size_t& one : sizes) one = 1 + random.below(6);
    walk = shuffled(sizes.size(), random);
    Placement input, output;
    input.order = shuffled(sizes.size(), random);
    output.order =
        random.below(3) == 0 ? Dims(walk.rbegin(), walk.rend()) : shuffled(sizes.size(), random);
    output.gap = random.below(3);
    output.step = 1 + random.below(2);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (random.below(3) == 0) input.repeated.push_back(d);
    }
    const auto from = strides(input, sizes, 4), to = strides(output, sizes, 4);
    for (const std::size_t dim : walk) {
      size.push_back(static_cast<std::int64_t>(sizes[dim]));
      input_stride.push_back(from[dim]);
      output_stride.push_back(to[dim]);
    }
    std::int64_t numbers = 1;
    for (std::size_t d = sizes.size(); d-- > 0; numbers *= static_cast<std::int64_t>(sizes[d])) {
      if (sizes[d] > 1) steps.push_back({to[d], numbers});
    }
    std::sort(steps.begin(), steps.end(),
              [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    arguments.size = size;
    arguments.input[0] = {memory, input_stride.data()};
    arguments.output[0] = arguments.numbered = {memory, output_stride.data()};
    arguments.numbering.steps = steps;
  }

  /// Of the element that is walked at a position, row-major over `sizes`.
  std::size_t number(std::size_t position) const {
    Dims at(sizes.size());
    for (const std::size_t dim : walk) {
      at[dim] = position % sizes[dim];
      position /= sizes[dim];
    }
    std::size_t result = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d) result = result * sizes[d] + at[d];
    return result;
  }
  std::int64_t offset(std::size_t position, const std::vector<std::int64_t>& stride) const {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < size.size(); ++d) {
      const auto extent = static_cast<std::size_t>(size[d]);
      sum += static_cast<std::int64_t>(position % extent) * stride[d];
      position /= extent;
    }
    return sum;
  }
};

TEST(ElementNumbers, AreThoseOfTheTensorWhateverTheWalk) {
  Random random(300);
  for (int round = 0; round < 2000; ++round) {
    const Walk walk(random);
    const ElementNumbers numbers(walk.arguments);
    for (std::size_t i = 0; i < walk.arguments.elements(); ++i)
      ASSERT_EQ(numbers.number(i), walk.number(i)) << round << ' ' << i;
  }
}

TEST(ElementNumbers, NoLaterElementIsBelowTheLeast) {
  Random random(301);
  std::size_t useful = 0;
  for (int round = 0; round < 2000; ++round) {
    const Walk walk(random);
    const ElementNumbers numbers(walk.arguments);
    std::size_t least = product(walk.sizes);
    for (std::size_t i = walk.arguments.elements(); i-- > 0;) {
      least = std::min(least, walk.number(i));
      ASSERT_LE(numbers.least_from(i), least) << round << ' ' << i;
      useful += numbers.least_from(i) > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(useful, 10000u) << "a bound of 0 tells nothing";
}

TEST(ElementCursor, StartsAnywhereAndGoesOnByRunsAndParts) {
  Random random(302);
  for (int round = 0; round < 2000; ++round) {
    const Walk walk(random);
    const std::size_t elements = walk.arguments.elements();
    std::size_t position = random.below(elements);
    ElementCursor cursor(walk.arguments, position);
    while (position < elements) {
      ASSERT_EQ(cursor.output(0) - walk.memory, walk.offset(position, walk.output_stride));
      ASSERT_EQ(cursor.input(0) - walk.memory, walk.offset(position, walk.input_stride));
      ASSERT_EQ(cursor.output(1), nullptr);
      ASSERT_EQ(cursor.input(2), nullptr);
      const std::size_t run = cursor.run();
      ASSERT_GE(run, 1u);
      const bool whole = walk.size.empty() || run == static_cast<std::size_t>(walk.size[0]);
      if (whole && random.below(2) == 0) {
        const std::size_t runs = 1 + random.below(cursor.runs());
        cursor.advance_runs(runs);
        position += runs * run;
      } else {
        const std::size_t part = 1 + random.below(run);
        cursor.advance(part);
        position += part;
      }
    }
    ASSERT_EQ(position, elements);
  }
}

TEST(ElementArguments, CountElements) {
  ElementArguments arguments;
  EXPECT_EQ(arguments.elements(), 1u);
  const std::int64_t sizes[] = {3, 4, 5}, empty[] = {3, 0};
  arguments.size = sizes;
  EXPECT_EQ(arguments.elements(), 60u);
  arguments.size = empty;
  EXPECT_EQ(arguments.elements(), 0u);
}

}  // namespace
}  // namespace safeops::cases
