// The caller's floating-point modes change nothing in a kernel, and a kernel changes nothing in
// them.
#include <gtest/gtest.h>

#if defined(__x86_64__)

#include "cases/control_word.h"
#include "cases/executors.h"
#include "cases/normalize_check.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

/// Rows that every mode would spoil: subnormal, zero, ordinary, not finite.
Rows delicate_rows(Element element, std::size_t length) {
  Random random(60);
  Rows x = random_rows(element, 24, length, Fill::uniform, 1.0, random);
  for (std::size_t r = 0; r < 24; ++r) {
    if (r % 4 == 1) fill_row(x, r, Fill::uniform, smallest_normal(element) / 4, random);
    if (r % 4 == 2) {
      for (std::size_t i = 0; i < length; ++i)
        x.set(r, i, i == length / 2 ? smallest_subnormal(element) : 0.0);
    }
    if (r == 7) fill_row(x, r, Fill::uniform, 0.0, random);
    if (r == 11) x.set(r, 0, kNaN);
    if (r == 15) x.set(r, length - 1, kInfinity);
  }
  return x;
}

template <class Body>
void for_all_kernels(const Body& body) {
  std::size_t calls = 0;
  for (const Element element : kElements) {
    for (const RowLayout::Kind kind :
         {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side}) {
      for (const std::size_t length : {2, 16, 40, 300}) {
        for (const Road road : {Road::dispatched, Road::plain, Road::any}) {
          if (road == Road::any && kind == RowLayout::Kind::side_by_side) continue;
          Trial trial;
          trial.road = road;
          trial.p = calls % 3 == 0 ? 1 : calls % 3 == 1 ? 2 : kInfinity;
          trial.policy = resolve(Policy::zero, 0, true);
          trial.input.kind = trial.second.kind = trial.output.kind = kind;
          body(delicate_rows(element, static_cast<std::size_t>(length)), trial);
          ++calls;
        }
      }
    }
  }
  EXPECT_EQ(calls, 4u * 4 * (3 + 2));
}

TEST(FloatEnvironment, ModesOfTheCallerDoNotShowAndSurvive) {
  for_all_kernels([](const Rows& x, const Trial& trial) {
    const Outcome out = forward(x, trial);
    const Outcome grad = backward(x, x, out.saved, trial);
    ASSERT_EQ(check_forward(x, out, trial).failure, "");
    for (const Mode& mode : kModes) {
      unsigned after_forward, after_backward;
      Outcome out_there, grad_there;
      {
        const ControlWord word(mode.control);
        out_there = forward(x, trial);
        after_forward = _mm_getcsr();
        grad_there = backward(x, x, out_there.saved, trial);
        after_backward = _mm_getcsr();
      }
      EXPECT_EQ(after_forward & ~kStatus, mode.control) << mode.name;
      EXPECT_EQ(after_backward & ~kStatus, mode.control) << mode.name;
      EXPECT_EQ(out_there.values, out.values) << mode.name;
      EXPECT_EQ(grad_there.values, grad.values) << mode.name;
      EXPECT_EQ(
          std::memcmp(out_there.saved.data(), out.saved.data(), out.saved.size() * sizeof(double)),
          0);
      EXPECT_EQ(std::memcmp(&out_there.hits, &out.hits, sizeof(Hits)), 0) << mode.name;
      EXPECT_EQ(std::memcmp(&grad_there.hits, &grad.hits, sizeof(Hits)), 0) << mode.name;
    }
    ASSERT_FALSE(::testing::Test::HasFailure())
        << name(x.element) << " length " << x.length << " p " << trial.p;
  });
}

TEST(FloatEnvironment, ModesOfWorkersDoNotShowAndSurvive) {
  for (const Element element : kElements) {
    Random random(61);
    const Rows x = random_rows(element, 3000, 40, Fill::uniform, smallest_normal(element), random);
    Trial trial;
    trial.policy = resolve(Policy::zero, 0, true);
    const Outcome out = forward(x, trial), grad = backward(x, x, out.saved, trial);
    FlushingExecutor flushing;
    trial.executor = &flushing;
    EXPECT_EQ(forward(x, trial).values, out.values);
    EXPECT_EQ(backward(x, x, out.saved, trial).values, grad.values);
    EXPECT_TRUE(flushing.kept_);
    EXPECT_GT(flushing.chunks_, 1u);
  }
}

// One row in many slices: the slice totals are combined outside the chunks.
TEST(FloatEnvironment, ModesOfTheCallerDoNotShowInSplitRows) {
  for (const Element element : {Element::float32, Element::float64}) {
    Random random(62);
    const Rows x = random_rows(element, 1, 100000, Fill::uniform, smallest_normal(element), random);
    Trial trial;
    trial.policy = resolve(Policy::zero, 0, true);
    const Outcome out = forward(x, trial), grad = backward(x, x, out.saved, trial);
    for (const Mode& mode : kModes) {
      const ControlWord word(mode.control);
      const Outcome out_there = forward(x, trial), grad_there = backward(x, x, out.saved, trial);
      EXPECT_EQ(out_there.values, out.values) << mode.name;
      EXPECT_EQ(grad_there.values, grad.values) << mode.name;
    }
  }
}

}  // namespace
}  // namespace safeops::cases

#endif
