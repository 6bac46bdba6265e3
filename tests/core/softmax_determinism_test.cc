// The bits of a row are a function of the row: not of threads, chunks, neighbours or vector width.
#include <gtest/gtest.h>

#include <map>

#include "cases/executors.h"
#include "cases/softmax_check.h"
#include "cases/softmax_rows.h"
#include "core/simd_target.h"

namespace safeops::cases {
namespace {

using Kind = RowLayout::Kind;

struct Shape {
  std::size_t rows, length;
  Kind kind = Kind::contiguous;
};

SoftmaxTrial trial_of(SoftmaxKind kind, Kind layout) {
  SoftmaxTrial trial;
  trial.kind = kind;
  trial.policy = Policy::zero;
  set_kind(trial, layout);
  return trial;
}

TEST(SoftmaxDeterminism, ThreadsAndChunksDoNotShow) {
  Random random(160);
  std::size_t compared = 0;
  const Shape shapes[] = {{1, 150000},
                          {3, 100000},
                          {4000, 3},
                          {1500, 40},
                          {300, 300},
                          {17, 9000},
                          {16, 66000},
                          {15, 65536},
                          {3000, 7, Kind::side_by_side},
                          {600, 40, Kind::side_by_side}};
  for (const Shape& shape : shapes) {
    const bool huge = shape.rows * shape.length > 100000;
    for (const Element element : kElements) {
      for (const SoftmaxKind kind : kSoftmaxKinds) {
        if (huge && (element == Element::float16 ||
                     (element != Element::float32 && kind != SoftmaxKind::softmax))) {
          continue;
        }
        SoftmaxTrial trial = trial_of(kind, shape.kind);
        const Rows x = eventful_logits(element, shape.rows, shape.length, random);
        const Rows g = random_rows(element, shape.rows, shape.length, Fill::uniform, 1.0, random);
        Mask mask(shape.rows, shape.length, true);
        if (compared % 2 == 1) {
          mask = random_mask(shape.rows, shape.length, random);
          trial.mask = &mask;
        }
        const SoftmaxBoth serial = both(x, g, trial);
        ThreadExecutor one(1, 1), two(2, 1), eight(8, 1);
        ReversedExecutor reversed(3);
        for (Executor* executor : std::initializer_list<Executor*>{&one, &two, &eight, &reversed}) {
          if (huge && executor != &two && executor != &eight) continue;
          trial.executor = executor;
          ASSERT_EQ(difference(both(x, g, trial), serial), "")
              << name(element) << ' ' << spelled(trial) << ' ' << shape.rows << " x "
              << shape.length;
        }
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 5u * 12 + 5 * 5);
}

TEST(SoftmaxDeterminism, HugeRowsAreRightAndHitOnce) {
  Random random(161);
  ThreadExecutor threads(3, 1);
  const std::size_t length = 70001;
  for (const Element element : kElements) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      SoftmaxTrial trial = trial_of(kind, Kind::contiguous);
      trial.executor = &threads;
      trial.policy = kAllPolicies[random.below(5)];
      Rows x = random_logits(element, 5, length, Logits::uniform, 30.0, random);
      for (std::size_t i = 0; i < length; ++i) {
        x.set(1, i, -kInfinity);
        x.set(2, i, i == 69999 ? -5.0 : -kInfinity);
      }
      x.set(3, 8192, kNaN);
      x.set(4, 65535, kInfinity);
      const Rows g = random_rows(element, 5, length, Fill::uniform, 1.0, random);
      const SoftmaxBoth outcome = both(x, g, trial);
      EXPECT_EQ(check_both(x, g, outcome, trial).failure, "") << spelled(trial);
      for (const Outcome* one : {&outcome.forward, &outcome.backward}) {
        EXPECT_EQ(one->hits[Condition::empty_row].count, 1u);
        EXPECT_EQ(one->hits[Condition::empty_row].first, 1u);
        EXPECT_EQ(one->hits.raising.count, 1u);
        EXPECT_EQ(one->hits[Condition::nonfinite_input].count, 2u);
        EXPECT_EQ(one->hits[Condition::nonfinite_input].first, 3u);
      }
    }
  }
}

TEST(SoftmaxDeterminism, ARowAloneEqualsTheRowInItsBatch) {
  Random random(162);
  std::size_t compared = 0;
  for (const Kind layout : {Kind::contiguous, Kind::side_by_side}) {
    for (const Element element : kElements) {
      for (const SoftmaxKind kind : kSoftmaxKinds) {
        for (const std::size_t length :
             {1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 255, 256, 257, 1000, 65536, 70000}) {
          if (length > 1000 && (layout == Kind::side_by_side || kind != SoftmaxKind::softmax))
            continue;
          SoftmaxTrial trial = trial_of(kind, layout);
          const std::size_t rows = length > 1000 ? 17 : length > 100 ? 20 : 41;
          const Rows x = eventful_logits(element, rows, static_cast<std::size_t>(length), random);
          const Rows g = random_rows(element, rows, x.length, Fill::uniform, 1.0, random);
          const Mask mask = random_mask(rows, x.length, random);
          if (random.below(2) == 0) trial.mask = &mask;
          const SoftmaxBoth batch = both(x, g, trial);
          for (std::size_t r = 0; r<rows; r += length> 1000 ? 8 : 1) {
            const Mask alone_mask = mask.row(r);
            SoftmaxTrial alone_trial = trial;
            if (trial.mask != nullptr) alone_trial.mask = &alone_mask;
            const SoftmaxBoth alone = both(x.row(r), g.row(r), alone_trial);
            ASSERT_TRUE(alone.forward.values.same_row(0, batch.forward.values, r))
                << name(element) << ' ' << length << " row " << r << ' ' << spelled(trial);
            ASSERT_TRUE(same_number(alone.forward.saved[0], batch.forward.saved[r]));
            ASSERT_TRUE(alone.backward.values.same_row(0, batch.backward.values, r))
                << name(element) << ' ' << length << " row " << r << ' ' << spelled(trial);
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 8000u);
}

/// Puts the best target back whatever a test does.
class SoftmaxTargetAgreement : public ::testing::Test {
 protected:
  void TearDown() override { use_target(0); }

  static bool has_fused_multiply_add(std::int64_t target) {
    return std::string(target_name(target)).rfind("AVX", 0) == 0;
  }
};

TEST_F(SoftmaxTargetAgreement, EveryTargetIsAccurateAndThoseAlikeAgreeToTheBit) {
  Random random(163);
  std::size_t compared = 0, checked = 0;
  for (const Kind layout : {Kind::contiguous, Kind::side_by_side}) {
    for (const Element element : kElements) {
      for (const SoftmaxKind kind : kSoftmaxKinds) {
        for (const std::size_t length : kSoftmaxLengths) {
          if (layout == Kind::side_by_side && length > 300) continue;
          if (element == Element::float64 && length > 300 && length != 8193) continue;
          SoftmaxTrial trial = trial_of(kind, layout);
          const std::size_t rows = length > 300 ? 2 : length > 20 ? 7 : 19;
          const Rows x = eventful_logits(element, rows, length, random);
          const Rows g = random_rows(element, rows, length, Fill::uniform, 1.0, random);
          const Mask mask = random_mask(rows, length, random);
          if (random.below(2) == 0) trial.mask = &mask;
          std::map<bool, SoftmaxBoth> seen;
          for (const std::int64_t target : supported_targets()) {
            use_target(target);
            const SoftmaxBoth outcome = both(x, g, trial);
            const auto alike = seen.find(has_fused_multiply_add(target));
            if (alike == seen.end()) {
              ASSERT_EQ(check_both(x, g, outcome, trial).failure, "") << target_name(target);
              seen.emplace(has_fused_multiply_add(target), outcome);
              ++checked;
            } else {
              ASSERT_EQ(difference(outcome, alike->second), "")
                  << target_name(target) << ' ' << name(element) << ' ' << length << ' '
                  << spelled(trial);
              ++compared;
            }
          }
        }
      }
    }
  }
  const std::vector<std::int64_t> targets = supported_targets();
  const auto with_fma = std::count_if(targets.begin(), targets.end(), has_fused_multiply_add);
  EXPECT_GT(checked, 0u);
  EXPECT_EQ(compared > 0, with_fma > 1 || targets.size() - static_cast<std::size_t>(with_fma) > 1);
}

TEST_F(SoftmaxTargetAgreement, TheScalarProgramIsAsAccurateAndHitsTheSame) {
  Random random(164);
  std::size_t checked = 0;
  for (const Kind layout : {Kind::contiguous, Kind::side_by_side}) {
    for (const Element element : kElements) {
      for (const SoftmaxKind kind : kSoftmaxKinds) {
        for (const std::size_t length : {1, 3, 8, 16, 17, 31, 64, 100, 257, 1000, 8193, 20000}) {
          if (length > 1000 && (layout == Kind::side_by_side || element == Element::float64))
            continue;
          SoftmaxTrial trial = trial_of(kind, layout);
          const std::size_t rows = length > 300 ? 2 : 19;
          const Rows x = eventful_logits(element, rows, static_cast<std::size_t>(length), random);
          const Rows g = random_rows(element, rows, x.length, Fill::uniform, 1.0, random);
          const Mask mask = random_mask(rows, x.length, random);
          if (random.below(2) == 0) trial.mask = &mask;
          const SoftmaxBoth outcome = both(x, g, trial);
          trial.road = Road::plain;
          const SoftmaxBoth plain = both(x, g, trial);
          ASSERT_EQ(check_both(x, g, plain, trial).failure, "") << length;
          ASSERT_EQ(std::memcmp(&plain.forward.hits, &outcome.forward.hits, sizeof(Hits)), 0);
          ASSERT_EQ(std::memcmp(&plain.backward.hits, &outcome.backward.hits, sizeof(Hits)), 0);
          ++checked;
        }
      }
    }
  }
  EXPECT_EQ(checked, 4u * 3 * 10 * 2 + 3 * 3 * 2);
}

}  // namespace
}  // namespace safeops::cases
