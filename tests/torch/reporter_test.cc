// A C++ program's own sink beside operators, their backward passes and their threads.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "torch/interface.h"

namespace safeops {
namespace {

using at::Tensor;
using diagnostics::Change;
using diagnostics::Reporter;

using Reporters = Interface;

TEST_F(Reporters, AreToldOfForwardAndBackward) {
  ASSERT_TRUE(diagnostics::set_level(2));
  std::vector<Change> changes;
  Reporter reporter([&](const Change& change) { changes.push_back(change); },
                    std::chrono::hours(1));
  const Tensor x = at::zeros({3, 2}, at::kFloat).requires_grad_();
  normalize(x, 2, 1, {}, Policy::zero).sum().backward();
  ASSERT_TRUE(reporter.flush());
  ASSERT_EQ(changes.size(), 2u);
  for (const Change& change : changes) {
    EXPECT_EQ(change.record.op, Operator::normalize);
    EXPECT_EQ(change.record.condition, Condition::zero_norm);
    EXPECT_EQ(change.added, 3u);
    EXPECT_THAT(change.shape, ::testing::ElementsAre(3, 2));
    EXPECT_EQ(change.dtype, "float32");
  }
  EXPECT_EQ(changes[0].record.direction, Direction::forward);
  EXPECT_EQ(changes[1].record.direction, Direction::backward);
}

TEST_F(Reporters, MayCallOperatorsInTheirSink) {
  std::uint64_t divided = 0, normalized = 0;
  Reporter reporter(
      [&](const Change& change) {
        if (change.record.op == Operator::div) {
          divided += change.added;
          return;
        }
        normalized += change.added;
        const PolicyGuard guard(Policy::zero);
        EXPECT_TRUE(same(safeops::div(at::ones({5}), at::zeros({5})), at::zeros({5})));
      },
      std::chrono::hours(1));
  normalize(at::zeros({3, 2}), 2, 1, {}, Policy::zero);
  ASSERT_TRUE(reporter.flush());
  ASSERT_TRUE(reporter.flush());
  EXPECT_EQ(normalized, 3u);
  EXPECT_EQ(divided, 5u);
}

TEST_F(Reporters, CountWhatAllThreadsOfAKernelMet) {
  std::uint64_t told = 0;
  const auto sink = [&](const Change& change) { told += change.added; };
  constexpr std::int64_t kElements = 1 << 20;
  {
    const Reporter reporter(sink, std::chrono::milliseconds(1));
    for (int i = 0; i < 20; ++i) {
      reciprocal(at::zeros({kElements}), {}, Policy::zero);
    }
  }
  EXPECT_EQ(told, 20u * kElements);
}

}  // namespace
}  // namespace safeops
