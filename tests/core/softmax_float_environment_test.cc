// The caller's floating-point modes change nothing in a softmax, and a softmax changes nothing in
// them.
#include <gtest/gtest.h>

#if defined(__x86_64__)

#include "cases/control_word.h"
#include "cases/softmax_check.h"
#include "cases/softmax_rows.h"

namespace safeops::cases {
namespace {

/// Rows that every mode would spoil: subnormal logits and terms, empty, not finite, ordinary.
Rows delicate_logits(Element element, std::size_t length) {
  Random random(185);
  Rows x = eventful_logits(element, 24, length, random);
  for (std::size_t r = 0; r < 24; r += 4) {
    if (r % 8 == 0) fill_logits(x, r, Logits::uniform, smallest_normal(element) / 4, random);
    if (r % 8 == 4) fill_logits(x, r, Logits::ladder, 0.5, random);
  }
  return x;
}

template <class Body>
void for_all_kernels(const Body& body) {
  std::size_t calls = 0;
  for (const Element element : kElements) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      for (const auto layout : {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side}) {
        for (const std::size_t length : {2, 40, 300, 9000}) {
          if (length > 40 && layout == RowLayout::Kind::side_by_side) continue;
          for (const Road road : {Road::dispatched, Road::plain}) {
            if (length > 300 && (road == Road::plain || element == Element::float16)) continue;
            SoftmaxTrial trial;
            trial.kind = kind;
            trial.road = road;
            trial.policy = Policy::zero;
            set_kind(trial, layout);
            body(delicate_logits(element, static_cast<std::size_t>(length)), trial);
            ASSERT_FALSE(::testing::Test::HasFailure())
                << name(element) << " length " << length << ' ' << spelled(trial);
            ++calls;
          }
        }
      }
    }
  }
  EXPECT_EQ(calls, 4u * 3 * (3 + 2) * 2 + 3 * 3);
}

TEST(SoftmaxFloatEnvironment, ModesOfTheCallerDoNotShowAndSurvive) {
  for_all_kernels([](const Rows& x, const SoftmaxTrial& trial) {
    const SoftmaxBoth outcome = both(x, x, trial);
    for (const Mode& mode : kModes) {
      unsigned after;
      SoftmaxBoth there;
      {
        const ControlWord word(mode.control);
        there = both(x, x, trial);
        after = _mm_getcsr();
      }
      EXPECT_EQ(after & ~kStatus, mode.control) << mode.name;
      EXPECT_EQ(difference(there, outcome), "") << mode.name;
    }
  });
}

TEST(SoftmaxFloatEnvironment, ModesOfWorkersDoNotShowAndSurvive) {
  for_all_kernels([](const Rows& x, SoftmaxTrial trial) {
    if (trial.road == Road::plain) return;
    const SoftmaxBoth outcome = both(x, x, trial);
    FlushingExecutor flushing;
    trial.executor = &flushing;
    EXPECT_EQ(difference(both(x, x, trial), outcome), "");
    EXPECT_TRUE(flushing.kept_);
    EXPECT_GT(flushing.chunks_, 0u);
  });
}

// One row in many slices: what slices found is merged outside the chunks.
TEST(SoftmaxFloatEnvironment, ModesOfTheCallerDoNotShowInSplitRows) {
  Random random(186);
  for (const Element element : {Element::float32, Element::float64, Element::bfloat16}) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      SoftmaxTrial trial;
      trial.kind = kind;
      const Rows x = random_logits(element, 1, 100000, Logits::ladder, 1.0, random);
      const SoftmaxBoth outcome = both(x, x, trial);
      for (const Mode& mode : {kModes[2], kModes[4], kModes[7]}) {
        const ControlWord word(mode.control);
        EXPECT_EQ(difference(both(x, x, trial), outcome), "") << mode.name;
      }
    }
  }
}

}  // namespace
}  // namespace safeops::cases

#endif
