// The bits of an element are a function of the element: not of threads, parts or neighbours.
#include <gtest/gtest.h>

#include "cases/division_everywhere.h"
#include "cases/division_numbers.h"
#include "cases/executors.h"

namespace safeops::cases {
namespace {

class DivisionDeterminism : public EveryTarget {};

TEST_F(DivisionDeterminism, ThreadsAndPartsDoNotShow) {
  Random random(230);
  std::size_t compared = 0;
  for (const Element element : kElements) {
    for (const DivisionKind kind : kDivisionKinds) {
      for (const bool backward : {false, true}) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.backward = backward;
        trial.policy = random.pick(kAllPolicies);
        const Operands operands(element, 50001, 1, eps_of(trial, element), 500, random);
        const Inputs inputs = operands.inputs(trial);
        const DivisionOutcome serial = divide(inputs, trial);
        ThreadExecutor one(1, 1), two(2, 1), eight(8, 1);
        ReversedExecutor reversed(2);
        for (Executor* executor : std::initializer_list<Executor*>{&one, &two, &eight, &reversed}) {
          trial.executor = executor;
          ASSERT_EQ(difference(divide(inputs, trial), serial), "")
              << name(element) << ' ' << spelled(trial);
          ++compared;
        }
      }
    }
  }
  EXPECT_EQ(compared, 4u * 6 * 2 * 4);
}

TEST_F(DivisionDeterminism, PartsOfPermutedAndBroadcastOperandsDoNotShow) {
  Random random(231);
  for (const Element element : kElements) {
    for (const bool backward : {false, true}) {
      DivisionTrial trial;
      trial.backward = backward;
      trial.sizes = Dims{37, 101, 17};
      Operands operands(element, 37 * 101 * 17, 1, 0, 500, random);
      repeat(operands.b.bits, 1, *trial.sizes, {0, 2});
      const Inputs inputs = operands.inputs(trial);
      const DivisionOutcome plain = divide(inputs, trial);
      trial.input[1].repeated = {0, 2};
      trial.input[0].order = {2, 0, 1};
      trial.output[0].order = {1, 2, 0};
      trial.output[1].order = {2, 1, 0};
      trial.walk = {0, 2, 1};
      ReversedExecutor reversed(1);
      ThreadExecutor four(4, 1);
      for (Executor* executor : std::initializer_list<Executor*>{&reversed, &four}) {
        trial.executor = executor;
        ASSERT_EQ(difference(divide(inputs, trial), plain), "") << name(element);
      }
    }
  }
}

TEST_F(DivisionDeterminism, FirstHitsAreTheLowestOfAllParts) {
  constexpr std::size_t kCount = 100000;
  for (const Element element : kElements) {
    Rows b(element, kCount, 1);
    for (std::size_t i = 0; i < kCount; ++i) b.set(i, 0, 1);
    for (const std::size_t zero : {99999, 70000, 33333}) b.set(zero, 0, 0);
    DivisionTrial trial;
    ReversedExecutor reversed(1);
    trial.executor = &reversed;
    const Hits hits = divide({nullptr, &b, nullptr}, trial).hits;
    EXPECT_EQ(hits[Condition::zero_denominator].count, 3u);
    EXPECT_EQ(hits[Condition::zero_denominator].first, 33333u);
    EXPECT_EQ(hits.raising.first, 33333u);
    trial.kind = DivisionKind::sqrt;
    EXPECT_EQ(divide({&b, nullptr, nullptr}, trial).hits.latent.first, 33333u);
    EXPECT_EQ(divide({&b, nullptr, nullptr}, trial).hits.latent.count, 3u);
  }
}

TEST_F(DivisionDeterminism, AnElementAloneEqualsTheElementInItsBatch) {
  Random random(232);
  std::size_t compared = 0;
  for (const Element element : kElements) {
    for (const DivisionKind kind : kDivisionKinds) {
      for (const bool backward : {false, true}) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.backward = backward;
        trial.policy = random.pick(kAllPolicies);
        const Operands operands(element, 333, 1, eps_of(trial, element), 6, random);
        const Inputs inputs = operands.inputs(trial);
        const DivisionOutcome batch = divide(inputs, trial);
        for (std::size_t i = 0; i < 333; ++i) {
          Rows alone[kElementInputs];
          Inputs one = {};
          for (std::size_t k = 0; k < kElementInputs; ++k) {
            if (inputs[k] == nullptr) continue;
            alone[k] = inputs[k]->row(i);
            one[k] = &alone[k];
          }
          const DivisionOutcome single = divide(one, trial);
          for (std::size_t k = 0; k < outputs_of(trial); ++k) {
            ASSERT_TRUE(single.output[k].same_row(0, batch.output[k], i))
                << name(element) << ' ' << spelled(trial) << ": " << spelled(inputs, i);
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 4u * 333 * (3 * (1 + 2) + 3 * 2));
}

}  // namespace
}  // namespace safeops::cases
