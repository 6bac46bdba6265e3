// Division and its relatives by the kernels for CUDA: bits and hits of the SIMD kernels.
#include <gtest/gtest.h>

#include <cmath>

#include "cases/division_layouts.h"
#include "cuda/division_emulated.h"

namespace safeops::cases {
namespace {

class CudaDivision : public ::testing::TestWithParam<Element> {
 protected:
  /// Operands at which everything happens that can.
  Operands operands(const DivisionTrial& trial, std::size_t count, std::size_t rarity = 8) {
    return {GetParam(), count, 1, eps_of(trial, GetParam()), rarity, random_};
  }

  Random random_{700};
  Device device_;
};

/// Around the tiles of warps and blocks, for all sizes of elements.
std::vector<std::size_t> counts() {
  if (!kThorough) return {0, 1, 33, 257, 2049};
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i <= 17; ++i) result.push_back(i);
  for (std::size_t block = 32; block <= 16384; block *= 2) {
    for (const std::size_t count : {block - 1, block, block + 1}) result.push_back(count);
  }
  result.push_back(1000);
  result.push_back(70000);
  return result;
}

TEST_P(CudaDivision, EveryCall) {
  std::size_t calls = 0;
  for_every_call(GetParam(), [&](DivisionTrial trial) {
    if (!kThorough && random_.below(6) != 0) return;
    const Operands some = operands(trial, 517);
    expect_right(device_, some.inputs(trial), trial);
    for (Placement& input : trial.input) input.shift = 1;
    expect_right(device_, some.inputs(trial), trial);
    ++calls;
  });
  EXPECT_GE(calls, kThorough ? 150u : 10u);
}

TEST_P(CudaDivision, EveryPairOfLandmarks) {
  std::size_t calls = 0;
  for_every_call(GetParam(), [&](const DivisionTrial& trial) {
    if (!kThorough && random_.below(12) != 0) return;
    const Pairs pairs(GetParam(), eps_of(trial, GetParam()), random_);
    Rows g(GetParam(), pairs.a.rows, 1);
    for (std::size_t i = 0; i < g.rows; ++i) g.set(i, 0, random_.below(4) == 0 ? 0 : 1.25);
    const bool divides = has_divisor(trial.kind);
    const Inputs forward =
        divides ? Inputs{&pairs.a, &pairs.b, nullptr} : Inputs{&pairs.b, nullptr, nullptr};
    expect_right(device_,
                 trial.backward ? Inputs{&g, &pairs.b, divides ? &pairs.a : nullptr} : forward,
                 trial);
    ++calls;
  });
  EXPECT_GE(calls, kThorough ? 150u : 5u);
}

TEST_P(CudaDivision, EveryCountAlignedAndNot) {
  std::size_t call = 0;
  for (const std::size_t count : counts()) {
    for (const std::size_t shift : {0, 1, 3}) {
      for (const bool backward : {false, true}) {
        DivisionTrial trial;
        trial.kind = kDivisionKinds[call % 6];
        trial.policy = kAllPolicies[call++ % 5];
        trial.backward = backward;
        for (Placement& input : trial.input) input = {{}, {}, 1, 0, shift, 0};
        for (Placement& output : trial.output) output = {{}, {}, 1, 0, shift / 2, 0};
        const Operands some = operands(trial, count, 16);
        // Few blocks, so that each comes back for more.
        device_.multiprocessors = count > 5000 ? 1 : 132;
        expect_right(device_, some.inputs(trial), trial);
        ASSERT_FALSE(HasFailure())
            << count << " elements, shift " << shift << ' ' << spelled(trial);
      }
    }
  }
  EXPECT_EQ(call, counts().size() * 6);
}

TEST_P(CudaDivision, WithoutSingularElementsAndWithNothingElse) {
  for (const DivisionKind kind : kDivisionKinds) {
    for (const bool backward : {false, true}) {
      for (const double value : {2.5, 0.0}) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.backward = backward;
        trial.policy = Policy::zero;
        Rows rows(GetParam(), 3000, 1);
        for (std::size_t i = 0; i < rows.rows; ++i) rows.set(i, 0, value);
        Inputs inputs{&rows, nullptr, nullptr};
        if (backward || has_divisor(kind)) inputs[1] = &rows;
        if (backward && has_divisor(kind)) inputs[2] = &rows;
        const DivisionOutcome outcome = expect_right(device_, inputs, trial);
        // What is regular and has a singular slope is a hit of backward only.
        const bool slope_only = kind == DivisionKind::sqrt && !backward;
        EXPECT_EQ(outcome.hits.any(), value == 0 && !slope_only) << spelled(trial);
      }
    }
  }
}

TEST_P(CudaDivision, AnyDimsStridesAndBroadcasting) {
  const int rounds = kThorough ? 300 : 20;
  for (int round = 0; round < rounds; ++round) {
    DivisionTrial trial = random_call(random_);
    const Dims sizes = random_sizes(random_);
    Operands some = operands(trial, product(sizes), 6);
    scatter_operands(trial, some, 1, sizes, random_);
    expect_right(device_, some.inputs(trial), trial);
    ASSERT_FALSE(HasFailure()) << "round " << round << ' ' << spelled(trial);
  }
}

/// Divisors and arguments of which so few are singular that most tiles have none.
Operands regular_operands(Operands some) {
  for (std::size_t i = 0; i < some.b.rows; ++i) some.b.set(i, 0, std::fabs(some.b.at(i, 0)));
  return some;
}

TEST_P(CudaDivision, RowsOfVectors) {
  for (const Dims& sizes : {Dims{40, 24}, Dims{5, 3, 16}, Dims{1, 9, 512}, Dims{70, 21}}) {
    for (const Dims& repeated : {Dims{}, Dims{0}, Dims{sizes.size() - 1}}) {
      for (const std::size_t gap : {0, 8, 3}) {
        for (const DivisionKind kind : kDivisionKinds) {
          for (const bool backward : {false, true}) {
            DivisionTrial trial;
            trial.kind = kind;
            trial.policy = random_.pick(kAllPolicies);
            trial.backward = backward;
            trial.sizes = sizes;
            trial.numbers = gap != 0;
            for (Placement& input : trial.input) input.gap = gap;
            for (Placement& output : trial.output) output.gap = gap;
            Operands some = regular_operands(operands(trial, product(sizes), 2000));
            const std::size_t divisor = backward || has_divisor(kind) ? 1 : 0;
            trial.input[divisor].repeated = repeated;
            repeat(some.b.bits, 1, sizes, repeated);
            expect_right(device_, some.inputs(trial), trial);
            ASSERT_FALSE(HasFailure()) << "gap " << gap << ' ' << spelled(trial);
          }
        }
      }
    }
  }
}

TEST_P(CudaDivision, AsManyDimsAsAreTaken) {
  for (const std::size_t dims : {kMaxCudaDims, kMaxCudaDims - 1}) {
    Dims sizes(dims, 1);
    for (std::size_t d = 0; d < 8; ++d) sizes[d * dims / 8] = 2;
    for (int round = 0; round < 20; ++round) {
      DivisionTrial trial = random_call(random_);
      Operands some = operands(trial, product(sizes), 6);
      scatter_operands(trial, some, 1, sizes, random_);
      expect_right(device_, some.inputs(trial), trial);
      ASSERT_FALSE(HasFailure()) << "round " << round << ' ' << spelled(trial);
    }
  }
}

TEST_P(CudaDivision, NumbersAndSharedOperands) {
  for (const DivisionKind kind : kDivisionKinds) {
    if (!has_divisor(kind)) continue;
    for (const std::size_t count : {100, 3000}) {
      for (const double number : {3.0, 0.0, -0.1}) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.policy = Policy::zero;
        const Operands some = operands(trial, static_cast<std::size_t>(count));
        trial.number[0] = trial.number[1] = number;
        expect_right(device_, {nullptr, &some.b, nullptr}, trial);
        expect_right(device_, {&some.a, nullptr, nullptr}, trial);
        trial.backward = true;
        trial.number[2] = number;
        expect_right(device_, {&some.g, &some.b, nullptr}, trial);
        ASSERT_FALSE(HasFailure()) << spelled(trial) << ' ' << number;
      }
    }
  }
}

TEST_P(CudaDivision, OutputsMayBeInputs) {
  for (const DivisionKind kind : kDivisionKinds) {
    for (const bool backward : {false, true}) {
      for (const std::size_t shift : {0, 1}) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.backward = backward;
        trial.policy = Policy::nan;
        for (Placement& input : trial.input) input.shift = static_cast<std::size_t>(shift);
        trial.in_place[0] = 0;
        const Operands some = operands(trial, 3001);
        expect_right(device_, some.inputs(trial), trial);
      }
    }
  }
}

TEST_P(CudaDivision, NoScheduleShows) {
  for (const DivisionKind kind : kDivisionKinds) {
    for (const bool backward : {false, true}) {
      DivisionTrial trial;
      trial.kind = kind;
      trial.backward = backward;
      trial.policy = Policy::epsilon;
      const Operands some = operands(trial, kThorough ? 20000 : 3000, 30);
      const Inputs inputs = some.inputs(trial);
      device_.multiprocessors = 1;
      const DivisionOutcome first = divide_on(device_, inputs, trial);
      for (const emulator::Schedule& schedule : schedules()) {
        device_.schedule = schedule;
        EXPECT_EQ(difference(divide_on(device_, inputs, trial), first), "");
      }
      device_ = {};
      EXPECT_EQ(difference(divide_on(device_, inputs, trial), first), "") << "more blocks";
    }
  }
}

TEST_P(CudaDivision, AlarmNamesARaisingElement) {
  for (const bool backward : {false, true}) {
    for (const bool raises : {false, true}) {
      DivisionTrial trial;
      trial.backward = backward;
      trial.policy = Policy::raise;
      Rows ones(GetParam(), 5000, 1), divisors(GetParam(), 5000, 1);
      for (std::size_t i = 0; i < ones.rows; ++i) {
        ones.set(i, 0, 1);
        divisors.set(i, 0, raises && (i == 4321 || i == 4900) ? 0 : 2);
      }
      const Inputs inputs =
          backward ? Inputs{&ones, &divisors, &ones} : Inputs{&ones, &divisors, nullptr};
      device_.serial = 77;
      const DivisionOutcome outcome = expect_right(device_, inputs, trial);
      EXPECT_EQ(outcome.hits.raising.count, raises ? 2u : 0u);
      EXPECT_EQ(device_.raised.serial, raises ? 77u : 0u);
      if (raises) {
        EXPECT_EQ(outcome.hits.raising.first, 4321u);
        EXPECT_TRUE(device_.raised.row == 4321 || device_.raised.row == 4900);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaDivision, ::testing::ValuesIn(kElements),
                         [](const auto& instance) { return name(instance.param); });

}  // namespace
}  // namespace safeops::cases
