// `where`: what takes no part is not read as a number, and how the mask is stored does not show.
#include <gtest/gtest.h>

#include "cases/executors.h"
#include "cases/softmax_check.h"
#include "cases/softmax_rows.h"

namespace safeops::cases {
namespace {

using Kind = RowLayout::Kind;

constexpr Road kRoads[] = {Road::dispatched, Road::plain};
constexpr Kind kKinds[] = {Kind::contiguous, Kind::side_by_side};

template <class Body>
void everywhere(const Body& body) {
  std::size_t calls = 0;
  for (const Element element : kElements) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      for (const Kind layout : kKinds) {
        for (const std::size_t length :
             {1, 2, 4, 5, 16, 33, 150, 256, 257, 800, 8192, 9001, 20000}) {
          if (length > 1000 && (layout == Kind::side_by_side || element == Element::float64))
            continue;
          SoftmaxTrial trial;
          trial.kind = kind;
          set_kind(trial, layout);
          body(element, static_cast<std::size_t>(length), trial);
          ASSERT_FALSE(::testing::Test::HasFailure())
              << name(element) << ' ' << spelled(trial) << " length " << length;
          ++calls;
        }
      }
    }
  }
  EXPECT_EQ(calls, 3u * (4 * 20 + 3 * 3));
}

std::size_t rows_for(std::size_t length) { return length > 1000 ? 6 : length > 100 ? 12 : 36; }

TEST(SoftmaxMask, MaskedElementsAreNeverReadAndHaveNeitherValueNorGradient) {
  Random random(140);
  std::size_t call = 0;
  everywhere([&](Element element, std::size_t length, SoftmaxTrial trial) {
    const std::size_t rows = rows_for(length);
    const Mask mask = random_mask(rows, length, random);
    Rows x = eventful_logits(element, rows, length, random);
    Rows g = random_rows(element, rows, length, Fill::uniform, 1.0, random);
    spoil_masked(x, mask, random);
    if (trial.kind != SoftmaxKind::logsumexp) spoil_masked(g, mask, random);
    trial.mask = &mask;
    for (const Road road : kRoads) {
      trial.road = road;
      trial.policy = kAllPolicies[call++ % 5];
      ASSERT_EQ(check_both(x, g, both(x, g, trial), trial).failure, "");
    }
  });
}

TEST(SoftmaxMask, AnEmptyRowFollowsThePolicyAsAWholeOrWhereElementsTakePart) {
  Random random(146);
  for (const Element element : kElements) {
    for (const std::size_t length : {3, 20, 300, 9000}) {
      const auto each = static_cast<std::size_t>(length);
      Mask mask(2, each, false);
      mask.set(0, 1, true);
      Rows x = random_logits(element, 2, each, Logits::uniform, 1.0, random);
      x.set(0, 1, -kInfinity);
      SoftmaxTrial trial;
      trial.mask = &mask;
      trial.kind = SoftmaxKind::log_softmax;
      trial.eps = 0.25;
      trial.policy = Policy::epsilon;
      const Outcome floored = forward(x, trial);
      EXPECT_EQ(floored.values.at(0, 1), rounded(element, std::log(0.25)));
      EXPECT_EQ(floored.values.at(0, 0), -kInfinity);
      EXPECT_EQ(floored.values.at(1, 1), -kInfinity) << "nothing takes part";
      for (const Policy policy : {Policy::stock, Policy::nan}) {
        for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::log_softmax}) {
          trial.policy = policy;
          trial.kind = kind;
          const Outcome marked = forward(x, trial);
          for (std::size_t i = 0; i < each; ++i) {
            EXPECT_TRUE(std::isnan(marked.values.at(0, i)));
            EXPECT_TRUE(std::isnan(marked.values.at(1, i)));
          }
          EXPECT_EQ(marked.hits[Condition::empty_row].count, 2u);
        }
      }
    }
  }
}

// Unlike an empty row, a NaN row leaves what is masked alone.
TEST(SoftmaxMask, ANaNRowKeepsTheValuesOfItsMaskedElements) {
  everywhere([](Element element, std::size_t length, SoftmaxTrial trial) {
    if (length < 2 || trial.kind == SoftmaxKind::logsumexp) return;
    Random random(141);
    Rows x = random_logits(element, 1, length, Logits::uniform, 1.0, random);
    x.set(0, length - 1, kNaN);
    Mask mask(1, length, true);
    mask.set(0, 0, false);
    trial.mask = &mask;
    for (const Policy policy : kAllPolicies) {
      trial.policy = policy;
      const SoftmaxBoth outcome = both(x, x, trial);
      const bool logarithm = trial.kind == SoftmaxKind::log_softmax;
      ASSERT_EQ(outcome.forward.values.at(0, 0), logarithm ? -kInfinity : 0.0);
      ASSERT_TRUE(std::isnan(outcome.forward.values.at(0, length - 1)));
      ASSERT_EQ(outcome.backward.values.at(0, 0), 0.0);
      ASSERT_EQ(outcome.forward.hits[Condition::nonfinite_input].count, 1u);
    }
  });
}

TEST(SoftmaxMask, AMaskThatIsAllTrueChangesNoBit) {
  Random random(142);
  std::size_t call = 0;
  everywhere([&](Element element, std::size_t length, SoftmaxTrial trial) {
    const std::size_t rows = rows_for(length);
    const Rows x = eventful_logits(element, rows, length, random);
    const Rows g = random_rows(element, rows, length, Fill::uniform, 1.0, random);
    trial.policy = kAllPolicies[call++ % 5];
    const SoftmaxBoth direct = both(x, g, trial);
    const Mask mask(rows, length, true);
    trial.mask = &mask;
    ASSERT_EQ(difference(both(x, g, trial), direct), "");
    trial.mask_arrangement.same_along_rows = trial.mask_arrangement.same_for_all_rows = true;
    ASSERT_EQ(difference(both(x, g, trial), direct), "");
  });
}

// -inf by hand is the other way to say that an element takes no part.
TEST(SoftmaxMask, MaskingEqualsMinusInfinityToTheBit) {
  Random random(143);
  everywhere([&](Element element, std::size_t length, SoftmaxTrial trial) {
    const std::size_t rows = rows_for(length);
    const Mask mask = random_mask(rows, length, random);
    const Rows x = eventful_logits(element, rows, length, random);
    Rows by_hand = x;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < length; ++i) {
        if (!mask.at(r, i)) by_hand.set(r, i, -kInfinity);
      }
    }
    trial.policy = Policy::zero;
    const Outcome plain = forward(by_hand, trial);
    trial.mask = &mask;
    const Outcome masked = forward(x, trial);
    for (std::size_t r = 0; r < rows; ++r) {
      ASSERT_TRUE(same_number(masked.saved[r], plain.saved[r])) << r;
      if (std::isnan(plain.saved[r]) || plain.saved[r] == kInfinity) continue;
      ASSERT_TRUE(masked.values.same_row(r, plain.values, r)) << r;
    }
    ASSERT_EQ(masked.hits[Condition::empty_row].count, plain.hits[Condition::empty_row].count);
    ASSERT_EQ(masked.hits.raising.first, plain.hits.raising.first);
  });
}

TEST(SoftmaxMask, HowAMaskIsStoredDoesNotShow) {
  Random random(144);
  std::size_t arranged = 0;
  everywhere([&](Element element, std::size_t length, SoftmaxTrial dense) {
    const std::size_t rows = rows_for(length);
    const Rows x = eventful_logits(element, rows, length, random);
    const Rows g = random_rows(element, rows, length, Fill::uniform, 1.0, random);
    const std::vector<std::vector<std::size_t>> shapes = {{rows}, {2, rows / 2}, {3, 1, rows / 3}};
    for (const std::vector<std::size_t>& kept : shapes) {
      set_kept(dense, kept);
      for (const bool same_along_rows : {false, true}) {
        for (const int same : {0, 1, 2}) {
          if (length > 300 && random.below(3) != 0) continue;
          Mask mask = random_mask(rows, length, random);
          const std::size_t period = same == 0 ? rows : same == 1 ? rows / kept[0] : 1;
          for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t i = 0; i < length; ++i)
              mask.set(r, i, mask.at(r % period, same_along_rows ? 0 : i));
          }
          dense.mask = &mask;
          dense.mask_arrangement = {};
          const SoftmaxBoth outcome = both(x, g, dense);
          SoftmaxTrial trial = dense;
          MaskArrangement& arrangement = trial.mask_arrangement;
          arrangement.same_along_rows = same_along_rows;
          arrangement.same_along_first = same == 1;
          arrangement.same_for_all_rows = same == 2;
          arrangement.transposed = arranged % 2 == 1;
          arrangement.stretch = 1 + arranged % 3;
          ASSERT_EQ(difference(both(x, g, trial), outcome), "") << "arrangement " << arranged;
          ++arranged;
        }
      }
    }
  });
  EXPECT_GT(arranged, 2500u);
}

// A huge row is split; its mask with it.
TEST(SoftmaxMask, HugeRowsAreMaskedWhateverTheThreads) {
  Random random(145);
  ThreadExecutor threads(3, 1);
  for (const SoftmaxKind kind : kSoftmaxKinds) {
    for (const Element element : {Element::float32, Element::bfloat16, Element::float64}) {
      const std::size_t length = 70001;
      const Rows x = random_logits(element, 2, length, Logits::uniform, 20.0, random);
      const Rows g = random_rows(element, 2, length, Fill::uniform, 1.0, random);
      Mask mask = random_mask(2, length, random);
      for (std::size_t i = 0; i < length; ++i) mask.set(1, i, i / 8192 % 2 == 1);
      SoftmaxTrial trial;
      trial.kind = kind;
      trial.mask = &mask;
      const SoftmaxBoth serial = both(x, g, trial);
      if (element != Element::float64) {
        EXPECT_EQ(check_both(x, g, serial, trial).failure, "");
      }
      trial.executor = &threads;
      EXPECT_EQ(difference(both(x, g, trial), serial), "") << spelled(trial);
    }
  }
}

}  // namespace
}  // namespace safeops::cases
