// normalize by the kernels for CUDA: bits, saved norms and hits of the SIMD kernels.
#include <gtest/gtest.h>

#include "cases/fused_multiply_add.h"
#include "cases/normalize_check.h"
#include "cuda/row_sizes.h"

namespace safeops::cases {
namespace {

constexpr double kOrders[] = {2, 1, kInfinity};

/// Rows of every size, among them rows of zeros, of infinities, of NaN, and about eps.
Rows eventful_rows(Element element, std::size_t rows, std::size_t length, Random& random) {
  Rows x(element, rows, length);
  const std::vector<double> sizes = scales(element);
  for (std::size_t r = 0; r < rows; ++r) {
    const double scale = random.below(2) == 0 ? 1.0 : sizes[random.below(sizes.size())];
    fill_row(x, r, random.pick(kFills), scale, random);
    const std::size_t at = random.below(length);
    switch (random.below(12)) {
      case 0:
        for (std::size_t i = 0; i < length; ++i) x.set(r, i, i % 2 == 0 ? 0.0 : -0.0);
        break;
      case 1:
        x.set(r, at, kNaN);
        break;
      case 2:
        x.set(r, at, random.below(2) == 0 ? kInfinity : -kInfinity);
        break;
      case 3:
        for (std::size_t i = 0; i < length; ++i) x.set(r, i, 0.0);
        x.set(r, at, random.symmetric() * 2e-12);
        break;
      default:
        break;
    }
  }
  return x;
}

class CudaNormalize : public ::testing::TestWithParam<Element> {
 protected:
  struct Both {
    Outcome forward, backward;
  };

  static Trial on(Device& device, Trial trial) {
    const NormOrder order = order_of(trial.p);
    trial.elsewhere = [&device, order](const RowArguments& arguments, bool backward, Hits& hits) {
      const auto& kernel = backward ? normalize_backward_on_cuda : normalize_forward_on_cuda;
      ASSERT_NE(kernel.function, nullptr);
      device.call(
          [&](const CudaLaunch& launch) { return kernel.function(arguments, order, launch); },
          hits);
    };
    return trial;
  }

  /// Forward, and backward on the norms that it saved, under the same policy.
  static Both run(const Rows& x, const Rows& g, Trial trial, Policy policy,
                  std::optional<double> eps = std::nullopt) {
    Both both;
    trial.policy = resolved(policy, eps, x.element, false);
    both.forward = forward(x, trial);
    trial.policy = resolved(policy, eps, x.element, true);
    both.backward = backward(g, x, both.forward.saved, trial);
    return both;
  }

  static void expect_same(const Both& a, const Both& b) {
    EXPECT_EQ(difference(a.forward, b.forward), "") << "forward";
    EXPECT_EQ(difference(a.backward, b.backward), "") << "backward";
  }

  /// Holds a device against the SIMD kernels, whose bits are promised where the target has a fused
  /// multiply-add, and against wide arithmetic where that does not take too long.
  Both expect_right(const Rows& x, const Rows& g, Trial trial, Policy policy,
                    std::optional<double> eps = std::nullopt) {
    const Both outcome = run(x, g, on(device_, trial), policy, eps);
    if (has_fused_multiply_add(current_target()))
      expect_same(outcome, run(x, g, trial, policy, eps));
    if (x.bits.size() <= 1200) {
      trial.policy = resolved(policy, eps, x.element, false);
      EXPECT_EQ(check_forward(x, outcome.forward, trial).failure, "");
      trial.policy = resolved(policy, eps, x.element, true);
      EXPECT_EQ(check_backward(g, x, outcome.backward, trial).failure, "");
    }
    EXPECT_EQ(outcome.forward.disturbed + outcome.backward.disturbed, 0u);
    return outcome;
  }

  Rows rows(std::size_t count, std::size_t length) {
    return eventful_rows(GetParam(), count, length, random_);
  }

  Random random_{710};
  Device device_;
};

Trial arranged(const Arrangement& arrangement) {
  Trial trial;
  trial.input = trial.second = trial.output = arrangement;
  return trial;
}

TEST_P(CudaNormalize, EveryLengthInEveryLayout) {
  std::size_t calls = 0;
  for_every_layout([&](const Arrangement& arrangement, std::size_t length) {
    Trial trial = arranged(arrangement);
    trial.p = kOrders[calls % 3];
    const std::size_t count = rows_of(length, random_);
    const Policy policy = kAllPolicies[calls++ % 5];
    expect_right(rows(count, length), rows(count, length), trial, policy);
  });
  EXPECT_GE(calls, row_lengths().size() * 6 - 2);
}

TEST_P(CudaNormalize, EveryPolicyAndOrderInEveryWalk) {
  std::size_t calls = 0;
  for (const std::size_t length : kWalkLengths) {
    for (const RowLayout::Kind kind :
         {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side}) {
      for (const double p : kOrders) {
        for (const Policy policy : kAllPolicies) {
          // Long rows take long, and differ in how they are added only.
          if (random_.below(!kThorough ? 10 : length > 5000 ? 4 : 1) != 0) continue;
          for (const std::optional<double>& eps :
               {std::optional<double>(), std::optional<double>(0.5)}) {
            Arrangement arrangement;
            arrangement.kind = kind;
            Trial trial = arranged(arrangement);
            trial.p = p;
            const std::size_t count = length > 5000 ? 2 : 11;
            expect_right(rows(count, length), rows(count, length), trial, policy, eps);
            ASSERT_FALSE(HasFailure()) << length << " elements, p " << p << ' ' << name(policy);
            ++calls;
          }
        }
      }
    }
  }
  EXPECT_GE(calls, kThorough ? 6u * 60 : 10u);
}

TEST_P(CudaNormalize, AnyNumberOfRows) {
  for (const std::size_t length : {1, 5, 33, 256}) {
    for (std::size_t count = 1; count <= 40; count += kThorough ? 1 : 7) {
      const Rows x = rows(count, static_cast<std::size_t>(length));
      expect_right(x, rows(count, x.length), {}, Policy::nan);
      ASSERT_FALSE(HasFailure()) << count << " rows of " << length;
    }
  }
}

TEST_P(CudaNormalize, MoreRowsThanThreadsAtATime) {
  device_.multiprocessors = 1;
  for (const auto& [count, length] : std::vector<std::pair<std::size_t, std::size_t>>{
           {20000, 2}, {3000, 9}, {700, 70}, {300, 300}, {60, 2100}}) {
    for (const RowLayout::Kind kind :
         {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side}) {
      Arrangement arrangement;
      arrangement.kind = kind;
      const std::size_t taken = kThorough ? count : count / 20 + 1;
      expect_right(rows(taken, length), rows(taken, length), arranged(arrangement), Policy::zero);
      ASSERT_FALSE(HasFailure()) << count << " rows of " << length;
    }
  }
}

TEST_P(CudaNormalize, KeptDimsMayLieAnyhow) {
  const std::vector<std::vector<std::size_t>> shapes = {{3, 20}, {3, 4, 5}, {2, 3, 2, 5}, {60, 1}};
  for (const std::vector<std::size_t>& kept : shapes) {
    for (const RowLayout::Kind kind :
         {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side}) {
      for (const std::size_t length : {3, 20, 300}) {
        Trial trial;
        for (Arrangement* each : {&trial.input, &trial.second, &trial.output}) {
          each->kind = kind;
          each->kept = kept;
          each->gap = random_.below(3);
          each->shift = random_.below(5);
          each->reversed = random_.below(2) == 0;
          each->step_outermost = kind == RowLayout::Kind::side_by_side && random_.below(2) == 0;
        }
        const Rows x = rows(60, static_cast<std::size_t>(length));
        expect_right(x, rows(60, x.length), trial, Policy::epsilon);
        ASSERT_FALSE(HasFailure()) << kept.size() << " kept dims, length " << length;
      }
    }
  }
}

TEST_P(CudaNormalize, OutputMayBeTheInputOrMissing) {
  for (const std::size_t length : kWalkLengths) {
    for (const RowLayout::Kind kind :
         {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side}) {
      Arrangement arrangement;
      arrangement.kind = kind;
      const std::size_t count = length > 5000 ? 2 : 9;
      const Rows x = rows(count, length), g = rows(count, length);
      Trial trial = arranged(arrangement);
      trial.in_place = true;
      expect_right(x, g, trial, Policy::zero);
      trial.in_place = false;
      trial.inspect = true;
      expect_right(x, g, trial, Policy::zero);
      trial.inspect = trial.save = false;
      const Outcome unsaved = forward(x, on(device_, trial));
      EXPECT_EQ(unsaved.saved, std::vector<double>(count, kNeverSaved));
      ASSERT_FALSE(HasFailure()) << length;
    }
  }
}

// A split row is replayed until it has ended: as often as its rarest branch needs.
TEST_P(CudaNormalize, SplitRowsEndInEveryBranch) {
  const std::size_t length = 8193;
  const double least = smallest_normal(GetParam()), most = largest(GetParam());
  const double levels[] = {0.0,  1.0,   least, smallest_subnormal(GetParam()),
                           most, 1e-12, kNaN,  kInfinity};
  Rows x(GetParam(), std::size(levels), length), g = x;
  for (std::size_t r = 0; r < x.rows; ++r) {
    fill_row(g, r, Fill::uniform, r % 2 == 0 ? 1.0 : 1e-6, random_);
    fill_row(x, r, Fill::equal, 1.0, random_);
    for (std::size_t i = 0; i < length; ++i) {
      const bool sets = std::isfinite(levels[r]) || i == 4000;
      if (sets) x.set(r, i, std::copysign(levels[r], x.at(r, i)));
    }
  }
  for (const double p : kOrders) {
    for (const Policy policy : kAllPolicies) {
      if (!kThorough && policy != Policy::epsilon) continue;
      Trial trial;
      trial.p = p;
      device_.shared_memory = 16 << 10;
      const Both split = expect_right(x, g, trial, policy);
      device_ = {};
      expect_same(run(x, g, on(device_, trial), policy), split);
      ASSERT_FALSE(HasFailure()) << "p " << p << ' ' << name(policy);
    }
  }
}

// The shares of 64 slices are staged at a time.
TEST_P(CudaNormalize, RowsOfManySlices) {
  const std::size_t length = kThorough ? 600000 : 9000;
  device_.shared_memory = 16 << 10;
  for (const double p : kOrders) {
    if (p != 2 && GetParam() != Element::float32) continue;
    Trial trial;
    trial.p = p;
    const Rows x = random_rows(GetParam(), 2, length, Fill::uniform, 1.0, random_);
    expect_right(x, random_rows(GetParam(), 2, length, Fill::uniform, 1.0, random_), trial,
                 Policy::zero);
  }
}

TEST_P(CudaNormalize, NoRowsAreNoWork) {
  const Rows none(GetParam(), 0, 5);
  const std::uint64_t before = emulator::statistics().launches;
  expect_right(none, none, {}, Policy::nan);
  EXPECT_EQ(emulator::statistics().launches, before);
  expect_right(rows(1, 5), rows(1, 5), {}, Policy::nan);
}

TEST_P(CudaNormalize, NeitherScheduleNorDeviceShows) {
  for (const std::size_t length : {3, 40, 500, 3000, 9000, 70000}) {
    if (!kThorough && length > 9000) continue;
    for (const RowLayout::Kind kind :
         {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side}) {
      Arrangement arrangement;
      arrangement.kind = kind;
      const std::size_t count = length > 2000 ? 2 : 9;
      const Rows x = rows(count, static_cast<std::size_t>(length)), g = rows(count, x.length);
      device_ = {};
      const Both first = expect_right(x, g, arranged(arrangement), Policy::zero);
      const std::vector<Device> others = devices();
      for (std::size_t d = 0; d < others.size();
           d += !kThorough || is_slow(kind, x.length) ? 5 : 1) {
        device_ = others[d];
        device_.schedule = schedules()[d % schedules().size()];
        expect_same(run(x, g, on(device_, arranged(arrangement)), Policy::zero), first);
        ASSERT_FALSE(HasFailure()) << length << " elements, " << device_.multiprocessors
                                   << " multiprocessors with " << device_.shared_memory;
      }
    }
  }
}

// A graph that is replayed launches on memory that holds what the last replay left.
TEST_P(CudaNormalize, AReplayComputesAnew) {
  for (const std::size_t length : {500, 9000, 70000}) {
    if (!kThorough && length > 9000) continue;
    const auto each = static_cast<std::size_t>(length);
    for (const std::size_t shared_memory : {16, 227}) {
      device_ = {};
      device_.shared_memory = static_cast<std::size_t>(shared_memory) << 10;
      Scratch scratch;
      for (int replay = 0; replay < 3; ++replay) {
        device_.scratch = &scratch;
        expect_right(rows(2, each), rows(2, each), {}, Policy::zero);
        ASSERT_FALSE(HasFailure()) << "replay " << replay << " of " << length << " elements";
      }
    }
  }
}

TEST_P(CudaNormalize, AlarmNamesARaisingRow) {
  for (const std::size_t length : {2, 40, 1000, 2050}) {
    for (const bool raises : {false, true}) {
      const auto each = static_cast<std::size_t>(length);
      Rows x = random_rows(GetParam(), 30, each, Fill::equal, 1.0, random_);
      const Rows g = random_rows(GetParam(), 30, each, Fill::equal, 1.0, random_);
      for (std::size_t r = 17; raises && r < 30; r += 8) {
        for (std::size_t i = 0; i < each; ++i) x.set(r, i, 0);
      }
      device_.serial = 5;
      const Both outcome = expect_right(x, g, {}, Policy::raise);
      EXPECT_EQ(outcome.backward.hits.raising.count, raises ? 2u : 0u);
      EXPECT_EQ(outcome.forward.hits.raising.first, raises ? 17u : kNoRow);
      EXPECT_EQ(device_.raised.serial, raises ? 5u : 0u);
      EXPECT_TRUE(!raises || device_.raised.row == 17 || device_.raised.row == 25);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaNormalize, ::testing::ValuesIn(kElements),
                         [](const auto& instance) { return name(instance.param); });

}  // namespace
}  // namespace safeops::cases
