// softmax, log_softmax and logsumexp by the kernels for CUDA: within the bounds of wide arithmetic,
// and the hits of the SIMD kernels.
#include <gtest/gtest.h>

#include "cases/softmax_check.h"
#include "cases/softmax_rows.h"
#include "cuda/row_sizes.h"

namespace safeops::cases {
namespace {

class CudaSoftmax : public ::testing::TestWithParam<Element> {
 protected:
  static SoftmaxTrial on(Device& device, SoftmaxTrial trial) {
    const SoftmaxKind kind = trial.kind;
    trial.elsewhere = [&device, kind](const RowArguments& arguments, bool backward, Hits& hits) {
      const auto& kernel = backward ? softmax_backward_on_cuda : softmax_forward_on_cuda;
      ASSERT_NE(kernel.function, nullptr);
      device.call(
          [&](const CudaLaunch& launch) { return kernel.function(arguments, kind, launch); }, hits);
    };
    return trial;
  }

  static void expect_same_hits(const Outcome& a, const Outcome& b) {
    Outcome left, right;
    left.hits = a.hits;
    right.hits = b.hits;
    EXPECT_EQ(difference(left, right), "");
  }

  /// Holds a device against the SIMD kernels' hits and, where that does not take too long, against
  /// wide arithmetic.
  SoftmaxBoth expect_right(const Rows& x, const Rows& g, const SoftmaxTrial& trial) {
    const SoftmaxBoth outcome = both(x, g, on(device_, trial));
    const SoftmaxBoth expected = both(x, g, trial);
    expect_same_hits(outcome.forward, expected.forward);
    expect_same_hits(outcome.backward, expected.backward);
    if (x.bits.size() <= most_checked_) {
      const Report report = check_both(x, g, outcome, trial);
      // Half an ulp of a logarithm that `largest` cancels may be all that the bound of logsumexp
      // allows: the SIMD kernels miss it by as much.
      if (!report.good() && GetParam() == Element::float64 &&
          trial.kind == SoftmaxKind::logsumexp) {
        EXPECT_LE(report.worst, check_both(x, g, expected, trial).worst) << report.failure;
      } else {
        EXPECT_EQ(report.failure, "");
      }
    }
    EXPECT_EQ(outcome.forward.disturbed + outcome.backward.disturbed, 0u);
    return outcome;
  }

  Rows logits(std::size_t rows, std::size_t length) {
    return eventful_logits(GetParam(), rows, length, random_);
  }
  Rows gradients(std::size_t rows, std::size_t length) {
    Rows g = random_rows(GetParam(), rows, length, Fill::uniform, 1.0, random_);
    for (std::size_t r = 3; r < rows; r += 4) {
      for (std::size_t i = 0; i < length; ++i) g.set(r, i, 0.0);
    }
    return g;
  }

  Random random_{720};
  Device device_;
  std::size_t most_checked_ = 2500;
};

SoftmaxTrial arranged(const Arrangement& arrangement) {
  SoftmaxTrial trial;
  trial.input = trial.second = trial.output = arrangement;
  return trial;
}

SoftmaxTrial laid_out(RowLayout::Kind kind) {
  SoftmaxTrial trial;
  set_kind(trial, kind);
  return trial;
}

constexpr RowLayout::Kind kLayouts[] = {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side};

TEST_P(CudaSoftmax, EveryLengthInEveryLayout) {
  std::size_t calls = 0;
  for_every_layout([&](const Arrangement& arrangement, std::size_t length) {
    SoftmaxTrial trial = arranged(arrangement);
    trial.kind = kSoftmaxKinds[calls % 3];
    trial.policy = kAllPolicies[calls % 5];
    const std::size_t count = rows_of(length, random_);
    expect_right(logits(count, length), gradients(count, length), trial);
    ++calls;
  });
  EXPECT_GE(calls, row_lengths().size() * 6 - 2);
}

TEST_P(CudaSoftmax, EveryPolicyMaskedAndNotInEveryWalk) {
  std::size_t calls = 0;
  for (const std::size_t length : kWalkLengths) {
    const std::size_t count = length > 5000 ? 2 : 8;
    for (const RowLayout::Kind layout : kLayouts) {
      for (const SoftmaxKind kind : kSoftmaxKinds) {
        for (const Policy policy : kAllPolicies) {
          // Long rows take long, and differ in how they are added only.
          if (random_.below(!kThorough ? 10 : length > 5000 ? 4 : 1) != 0) continue;
          SoftmaxTrial trial = laid_out(layout);
          trial.kind = kind;
          trial.policy = policy;
          Rows x = logits(count, length);
          expect_right(x, gradients(count, length), trial);
          const Mask mask = random_mask(count, length, random_);
          spoil_masked(x, mask, random_);
          trial.mask = &mask;
          trial.mask_arrangement.transposed = random_.below(2) == 0;
          trial.mask_arrangement.stretch = 1 + random_.below(2);
          expect_right(x, gradients(count, length), trial);
          ASSERT_FALSE(HasFailure()) << length << ' ' << spelled(trial);
          ++calls;
        }
      }
    }
  }
  EXPECT_GE(calls, kThorough ? 6u * 30 : 5u);
}

TEST_P(CudaSoftmax, EveryRangeOfLogits) {
  for (const double range : logit_ranges(GetParam())) {
    for (const Logits fill : kLogits) {
      for (const SoftmaxKind kind : kSoftmaxKinds) {
        for (const std::size_t length : {5, 90, 700}) {
          if (!kThorough && random_.below(12) != 0) continue;
          SoftmaxTrial trial;
          trial.kind = kind;
          const auto each = static_cast<std::size_t>(length);
          const Rows x = random_logits(GetParam(), 4, each, fill, range, random_);
          expect_right(x, gradients(4, each), trial);
          ASSERT_FALSE(HasFailure()) << length << ' ' << range << ' ' << spelled(trial);
        }
      }
    }
  }
  EXPECT_GT(emulator::statistics().launches, 0u);
}

TEST_P(CudaSoftmax, LongRowsAreAsAccurate) {
  most_checked_ = 100000;
  for (const std::size_t length : {9000, 70000}) {
    if (!kThorough && length > 9000) continue;
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      for (const RowLayout::Kind layout : kLayouts) {
        SoftmaxTrial trial = laid_out(layout);
        trial.kind = kind;
        if (layout == RowLayout::Kind::side_by_side && length > 9000) continue;
        const Rows x = random_logits(GetParam(), 1, static_cast<std::size_t>(length),
                                     Logits::cluster, 10.0, random_);
        expect_right(x, gradients(1, x.length), trial);
        ASSERT_FALSE(HasFailure()) << length << ' ' << spelled(trial);
      }
    }
  }
}

// A split row is replayed until it has ended: as often as its rarest branch needs.
TEST_P(CudaSoftmax, SplitRowsEndInEveryBranch) {
  const std::size_t length = 8193;
  const double most = largest(GetParam());
  const double levels[] = {-kInfinity, -most, most, 1100.0, kNaN, kInfinity, 0.0};
  Rows x(GetParam(), std::size(levels), length);
  for (std::size_t r = 0; r < x.rows; ++r) {
    fill_logits(x, r, Logits::cluster, 10.0, random_);
    for (std::size_t i = 0; i < length; ++i) {
      const bool all = !std::isfinite(levels[r]) ? levels[r] < 0 : i % 3 == 1;
      if (all || i == 4000) x.set(r, i, levels[r]);
    }
  }
  const Rows g = gradients(x.rows, length);
  for (const SoftmaxKind kind : kSoftmaxKinds) {
    for (const Policy policy : kAllPolicies) {
      if (!kThorough && policy != Policy::epsilon) continue;
      SoftmaxTrial trial;
      trial.kind = kind;
      trial.policy = policy;
      device_.shared_memory = 16 << 10;
      const SoftmaxBoth split = expect_right(x, g, trial);
      device_ = {};
      EXPECT_EQ(difference(both(x, g, on(device_, trial)), split), "");
      ASSERT_FALSE(HasFailure()) << spelled(trial);
    }
  }
}

// The shares of 64 slices are staged at a time.
TEST_P(CudaSoftmax, RowsOfManySlices) {
  const bool long_enough = kThorough && GetParam() == Element::float32;
  const std::size_t length = long_enough ? 600000 : 9000;
  most_checked_ = length;
  device_.shared_memory = 16 << 10;
  for (const SoftmaxKind kind : kSoftmaxKinds) {
    SoftmaxTrial trial;
    trial.kind = kind;
    const Rows x = random_logits(GetParam(), 1, length, Logits::cluster, 10.0, random_);
    expect_right(x, gradients(1, length), trial);
  }
}

TEST_P(CudaSoftmax, ResultsMayBeOfAnotherType) {
  if (format(GetParam()).bytes != 2) {
    expect_right(logits(3, 30), gradients(3, 30), {});
    return;
  }
  for (const std::size_t length : kWalkLengths) {
    for (const RowLayout::Kind layout : kLayouts) {
      for (const SoftmaxKind kind : kSoftmaxKinds) {
        SoftmaxTrial trial = laid_out(layout);
        trial.kind = kind;
        trial.result = Element::float32;
        const std::size_t count = length > 5000 ? 2 : 8;
        const Rows x = logits(count, length);
        const Rows g = random_rows(Element::float32, count, length, Fill::uniform, 1.0, random_);
        expect_right(x, g, trial);
        ASSERT_FALSE(HasFailure()) << length << ' ' << spelled(trial);
      }
    }
  }
}

TEST_P(CudaSoftmax, AnyNumberOfRows) {
  for (const std::size_t length : {1, 5, 33, 256}) {
    for (std::size_t count = 1; count <= 40; count += kThorough ? 1 : 7) {
      SoftmaxTrial trial;
      trial.policy = Policy::zero;
      trial.kind = kSoftmaxKinds[count % 3];
      const auto each = static_cast<std::size_t>(length);
      expect_right(logits(count, each), gradients(count, each), trial);
      ASSERT_FALSE(HasFailure()) << count << " rows of " << length;
    }
  }
}

TEST_P(CudaSoftmax, MoreRowsThanThreadsAtATime) {
  device_.multiprocessors = 1;
  for (const auto& [count, length] : std::vector<std::pair<std::size_t, std::size_t>>{
           {20000, 2}, {3000, 9}, {700, 70}, {300, 300}, {60, 2100}}) {
    for (const RowLayout::Kind layout : kLayouts) {
      const std::size_t taken = kThorough ? count : count / 20 + 1;
      expect_right(logits(taken, length), gradients(taken, length), laid_out(layout));
      ASSERT_FALSE(HasFailure()) << count << " rows of " << length;
    }
  }
}

TEST_P(CudaSoftmax, KeptDimsMayLieAnyhow) {
  const std::vector<std::vector<std::size_t>> shapes = {{3, 20}, {3, 4, 5}, {2, 3, 2, 5}, {60, 1}};
  for (const std::vector<std::size_t>& kept : shapes) {
    for (const RowLayout::Kind layout : kLayouts) {
      for (const std::size_t length : {3, 20, 66}) {
        SoftmaxTrial trial = laid_out(layout);
        trial.kind = random_.pick(kSoftmaxKinds);
        set_kept(trial, kept);
        for (Arrangement* each : {&trial.input, &trial.second, &trial.output}) {
          each->gap = random_.below(3);
          each->shift = random_.below(5);
          each->reversed = random_.below(2) == 0;
        }
        Mask mask(60, static_cast<std::size_t>(length), true);
        trial.mask = &mask;
        trial.mask_arrangement.same_along_first = random_.below(2) == 0;
        expect_right(logits(60, static_cast<std::size_t>(length)),
                     gradients(60, static_cast<std::size_t>(length)), trial);
        ASSERT_FALSE(HasFailure()) << kept.size() << " kept dims, length " << length;
      }
    }
  }
}

TEST_P(CudaSoftmax, OutputMayBeTheInputOrMissing) {
  for (const std::size_t length : kWalkLengths) {
    for (const RowLayout::Kind layout : kLayouts) {
      const std::size_t count = length > 5000 ? 2 : 9;
      const Rows x = logits(count, length), g = gradients(count, length);
      SoftmaxTrial trial = laid_out(layout);
      const SoftmaxBoth apart = expect_right(x, g, trial);
      trial.in_place = true;
      EXPECT_EQ(difference(both(x, g, on(device_, trial)), apart), "");
      trial.in_place = false;
      trial.inspect = true;
      const Outcome inspected = forward(x, on(device_, trial));
      EXPECT_EQ(inspected.values, untouched(x));
      expect_same_hits(inspected, apart.forward);
      ASSERT_FALSE(HasFailure()) << length;
    }
  }
}

// Neither the other rows, alignment, schedule nor device; length, type and kind of layout may.
TEST_P(CudaSoftmax, NothingButARowShowsInItsResult) {
  for (const std::size_t length : {3, 40, 500, 3000, 9000, 70000}) {
    if (!kThorough && length > 9000) continue;
    for (const RowLayout::Kind layout : kLayouts) {
      SoftmaxTrial trial = laid_out(layout);
      trial.kind = random_.pick(kSoftmaxKinds);
      const std::size_t count = length > 2000 ? 2 : 9;
      const Rows x = logits(count, static_cast<std::size_t>(length));
      const Rows g = gradients(count, x.length);
      device_ = {};
      const SoftmaxBoth first = expect_right(x, g, trial);
      SoftmaxTrial shifted = trial;
      shifted.input.shift = shifted.second.shift = shifted.output.shift = 1;
      EXPECT_EQ(difference(both(x, g, on(device_, shifted)), first), "");
      const std::vector<Device> others = devices();
      for (std::size_t d = 0; d < others.size();
           d += !kThorough || is_slow(layout, x.length) ? 5 : 1) {
        device_ = others[d];
        device_.schedule = schedules()[d % schedules().size()];
        EXPECT_EQ(difference(both(x, g, on(device_, trial)), first), "");
        ASSERT_FALSE(HasFailure())
            << spelled(trial) << ' ' << length << " elements, " << device_.multiprocessors
            << " multiprocessors with " << device_.shared_memory;
      }
      const SoftmaxBoth alone = both(x.row(count - 1), g.row(count - 1), on(device_, trial));
      EXPECT_TRUE(alone.forward.values.same_row(0, first.forward.values, count - 1));
      EXPECT_TRUE(alone.backward.values.same_row(0, first.backward.values, count - 1));
      EXPECT_TRUE(same_number(alone.forward.saved[0], first.forward.saved[count - 1]));
    }
  }
}

// A graph that is replayed launches on memory that holds what the last replay left.
TEST_P(CudaSoftmax, AReplayComputesAnew) {
  for (const std::size_t length : {500, 9000, 70000}) {
    if (!kThorough && length > 9000) continue;
    const auto each = static_cast<std::size_t>(length);
    for (const std::size_t shared_memory : {16, 227}) {
      Scratch scratch;
      for (int replay = 0; replay < 3; ++replay) {
        SoftmaxTrial trial;
        trial.kind = kSoftmaxKinds[replay];
        const Rows x = logits(2, each), g = gradients(2, each);
        device_ = {};
        device_.shared_memory = static_cast<std::size_t>(shared_memory) << 10;
        const SoftmaxBoth fresh = expect_right(x, g, trial);
        device_.scratch = &scratch;
        for (int again = 0; again < 2; ++again)
          EXPECT_EQ(difference(both(x, g, on(device_, trial)), fresh), "");
        scratch = {};
        ASSERT_FALSE(HasFailure()) << spelled(trial) << ' ' << length << " elements";
      }
    }
  }
}

TEST_P(CudaSoftmax, AlarmNamesARaisingRow) {
  for (const std::size_t length : {2, 40, 1000, 2050}) {
    for (const bool raises : {false, true}) {
      Rows x = random_logits(GetParam(), 30, static_cast<std::size_t>(length), Logits::uniform, 1.0,
                             random_);
      for (std::size_t r = 17; raises && r < 30; r += 8) {
        for (std::size_t i = 0; i < x.length; ++i) x.set(r, i, -kInfinity);
      }
      device_.serial = 5;
      SoftmaxTrial trial;
      trial.policy = Policy::raise;
      const Outcome outcome = forward(x, on(device_, trial));
      EXPECT_EQ(outcome.hits.raising.count, raises ? 2u : 0u);
      EXPECT_EQ(outcome.hits.raising.first, raises ? 17u : kNoRow);
      EXPECT_EQ(device_.raised.serial, raises ? 5u : 0u);
      EXPECT_TRUE(!raises || device_.raised.row == 17 || device_.raised.row == 25);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaSoftmax, ::testing::ValuesIn(kElements),
                         [](const auto& instance) { return name(instance.param); });

}  // namespace
}  // namespace safeops::cases
