// Where operands lie changes no bit and no hit, and nothing but the outputs is written.
#include <gtest/gtest.h>

#include "cases/division_everywhere.h"
#include "cases/division_layouts.h"

namespace safeops::cases {
namespace {

class DivisionLayout : public EveryTarget {};

/// Counts around blocks of vectors, staged elements and parts of threads.
std::vector<std::size_t> counts() {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i <= 70; ++i) result.push_back(i);
  for (const std::size_t block : {128, 256, 512, 1024, 4096, 16384}) {
    for (const std::size_t count : {block - 1, block, block + 1}) result.push_back(count);
  }
  result.push_back(2 * 16384 + 7);
  return result;
}

TEST_F(DivisionLayout, EveryCountAndAlignment) {
  Random random(220);
  std::size_t compared = 0;
  for (const Element element : kElements) {
    for (const std::size_t count : counts()) {
      for (int repeat = 0; repeat < 4; ++repeat) {
        DivisionTrial trial = random_call(random);
        const Operands operands(element, count, 1, eps_of(trial, element), 8, random);
        const Inputs inputs = operands.inputs(trial);
        const DivisionOutcome reference = divide(inputs, trial);
        if (count < 1200) {
          ASSERT_EQ(check_division(inputs, reference, trial).failure, "") << count;
        }
        for (Placement& input : trial.input) input.shift = random.below(33);
        for (Placement& output : trial.output) output.shift = random.below(33);
        // With no guard AddressSanitizer sees what is behind the last element.
        if (random.below(2) == 0) {
          for (Placement& input : trial.input) input.guard = 0;
          for (Placement& output : trial.output) output.guard = 0;
        }
        for (const bool streams : {false, true}) {
          trial.streams = streams;
          for (const std::int64_t target : supported_targets()) {
            use_target(target);
            const DivisionOutcome outcome = divide(inputs, trial);
            if (target == supported_targets().front()) {
              ASSERT_EQ(difference(outcome, reference), "") << count << ' ' << spelled(trial);
            }
            ASSERT_EQ(outcome.disturbed, 0u) << count << ' ' << spelled(trial);
            ++compared;
          }
          use_target(0);
        }
      }
    }
  }
  EXPECT_EQ(compared, 4 * counts().size() * 4 * 2 * supported_targets().size());
}

TEST_F(DivisionLayout, OutputsThatAreNotAlignedTogetherStream) {
  Random random(221);
  for (const Element element : kElements) {
    for (const DivisionKind kind : {DivisionKind::quotient, DivisionKind::truncated}) {
      DivisionTrial trial;
      trial.kind = kind;
      trial.backward = true;
      const Operands operands(element, 777, 1, 0, 8, random);
      const DivisionOutcome reference = divide(operands.inputs(trial), trial);
      trial.streams = true;
      for (std::size_t first = 0; first < 34; ++first) {
        for (std::size_t second = 0; second < 34; ++second) {
          trial.output[0].shift = first;
          trial.output[1].shift = second;
          ASSERT_EQ(difference(divide(operands.inputs(trial), trial), reference), "")
              << name(element) << ' ' << first << ' ' << second;
        }
      }
    }
  }
}

TEST_F(DivisionLayout, AnyDimsStridesAndBroadcasting) {
  Random random(222);
  std::size_t compared = 0;
  for (int round = 0; round < 1600; ++round) {
    const Element element = random.pick(kElements);
    DivisionTrial trial = random_call(random);
    const Dims sizes = random_sizes(random);
    Operands operands(element, product(sizes), 1, eps_of(trial, element), 6, random);
    scatter_operands(trial, operands, 1, sizes, random);
    const Inputs inputs = operands.inputs(trial);
    if (element == Element::float64 && product(sizes) > 1000) continue;
    const Report report = check_everywhere(inputs, trial);
    ASSERT_EQ(report.failure, "") << "round " << round;
    compared += report.elements;
  }
  EXPECT_GT(compared, 100000u);
}

TEST_F(DivisionLayout, ManyDims) {
  Random random(223);
  for (const std::size_t dims : {12, 40, 64}) {
    Dims sizes(dims, 1);
    for (std::size_t d = 0; d < 8; ++d) sizes[d * dims / 8] = 2;
    for (int round = 0; round < 20; ++round) {
      DivisionTrial trial = random_call(random);
      Operands operands(Element::float32, product(sizes), 1, 0, 6, random);
      scatter_operands(trial, operands, 1, sizes, random);
      ASSERT_EQ(check_everywhere(operands.inputs(trial), trial).failure, "") << dims;
    }
  }
}

TEST_F(DivisionLayout, AnOutputMayBeAnInput) {
  Random random(224);
  std::size_t compared = 0;
  for (const Element element : kElements) {
    for (const DivisionKind kind : kDivisionKinds) {
      for (const bool backward : {false, true}) {
        for (const std::size_t count : {1, 15, 64, 333, 20000}) {
          DivisionTrial trial;
          trial.kind = kind;
          trial.backward = backward;
          trial.policy = random.pick(kAllPolicies);
          const Operands operands(element, static_cast<std::size_t>(count), 1, 0, 8, random);
          const Inputs inputs = operands.inputs(trial);
          const DivisionOutcome reference = divide(inputs, trial);
          for (std::size_t input = 0; input < kElementInputs && inputs[input] != nullptr; ++input) {
            for (std::size_t output = 0; output < outputs_of(trial); ++output) {
              DivisionTrial there = trial;
              there.in_place[output] = input;
              there.streams = random.below(2) == 0;
              for (Placement& placement : there.input) placement.step = 1 + random.below(2);
              ASSERT_EQ(difference(divide(inputs, there), reference), "")
                  << name(element) << ' ' << spelled(there) << " output " << output << " is input "
                  << input;
              ++compared;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 4u * 5 * (3 * (2 + 6) + 3 * (1 + 2)));
}

TEST_F(DivisionLayout, GradientsThatAreNotWantedAreNotWritten) {
  Random random(225);
  for (const Element element : kElements) {
    for (const DivisionKind kind :
         {DivisionKind::quotient, DivisionKind::truncated, DivisionKind::floored}) {
      for (const std::size_t count : {3, 100, 5000}) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.backward = true;
        trial.policy = Policy::epsilon;
        const Operands operands(element, static_cast<std::size_t>(count), 1, 1e-12, 8, random);
        const DivisionOutcome both = divide(operands.inputs(trial), trial);
        for (const std::size_t wanted : {0, 1}) {
          trial.wanted[0] = wanted == 0;
          trial.wanted[1] = wanted == 1;
          const DivisionOutcome one = divide(operands.inputs(trial), trial);
          EXPECT_EQ(one.output[wanted].bits, both.output[wanted].bits);
          EXPECT_EQ(difference(one.hits, both.hits), "");
          EXPECT_EQ(one.disturbed, 0u);
        }
        trial.wanted[0] = true;
        trial.wanted[1] = false;
        const Inputs without = {&operands.g, &operands.b, nullptr};
        EXPECT_EQ(check_everywhere(without, trial).failure, "");
      }
    }
  }
}

TEST_F(DivisionLayout, NumbersOfHitsFollowThePermutedOutput) {
  for (const Element element : kElements) {
    Rows a(element, 24, 1), b(element, 24, 1);
    for (std::size_t i = 0; i < 24; ++i) {
      a.set(i, 0, 1);
      b.set(i, 0, i == 7 || i == 9 || i == 22 ? 0 : 2);
    }
    DivisionTrial trial;
    trial.sizes = Dims{2, 3, 4};
    trial.output[0].order = {2, 0, 1};
    trial.walk = {1, 0, 2};
    EXPECT_EQ(divide({&a, &b, nullptr}, trial).hits[Condition::zero_denominator].first, 7u);
    trial.numbers = false;
    // Element 9 is (0, 2, 1), which is walked as 2 + 3 * (0 + 2 * 1).
    const DivisionOutcome walked = divide({&a, &b, nullptr}, trial);
    EXPECT_EQ(walked.hits[Condition::zero_denominator].first, 8u);
    EXPECT_EQ(walked.hits.raising.count, 3u);
  }
}

// Few hits, so that the lowest number is not met at once.
TEST_F(DivisionLayout, TheLowestNumberIsFoundWhereverItLies) {
  Random random(226);
  for (int round = 0; round < 400; ++round) {
    const Element element = random.pick(kElements);
    const Dims sizes = {1 + random.below(9), 1 + random.below(60), 1 + random.below(40)};
    Operands operands(element, product(sizes), 1, 0, 6, random);
    std::fill(operands.b.bits.begin(), operands.b.bits.end(), encode(element, 1.0));
    for (std::size_t zeros = 1 + random.below(4); zeros-- > 0;)
      operands.b.set(random.below(operands.b.rows), 0, 0.0);
    DivisionTrial trial = random_call(random);
    scatter_operands(trial, operands, 1, sizes, random);
    for (Placement& input : trial.input) input.repeated.clear();
    trial.numbers = random.below(4) != 0;
    const Inputs inputs = operands.inputs(trial);
    const bool divides = has_divisor(trial.kind);
    Hits expected;
    for (std::size_t i = 0; i < operands.b.rows; ++i) {
      const double a = divides ? operands.a.at(i, 0) : 0, b = operands.b.at(i, 0);
      add_hits(expected, trial,
               divides ? condition_of_quotient(a, b, threshold_of(trial, element))
                       : condition_of_argument(b, threshold_of(trial, element)),
               number_of(trial, sizes, i), operands.g.at(i, 0) == 0);
    }
    for (const std::int64_t target : supported_targets()) {
      use_target(target);
      ASSERT_EQ(difference(divide(inputs, trial).hits, expected), "") << "round " << round;
    }
  }
}

}  // namespace
}  // namespace safeops::cases
