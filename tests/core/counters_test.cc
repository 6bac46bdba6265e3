#include "core/counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace safeops {
namespace {

constexpr std::int64_t kShape[] = {4, 3};

Call call_of(Direction direction) {
  return {Operator::normalize, direction, Device::cpu, 4, kShape, 2, "float32", false};
}

Hits hits_of(Condition condition, std::uint64_t count, std::size_t first) {
  Hits hits;
  hits[condition].add(count, first);
  return hits;
}

class Counters : public ::testing::Test {
 protected:
  void SetUp() override {
    diagnostics::set_level(1);
    diagnostics::reset();
    epoch_ = safeops_hit_epoch;
  }
  void TearDown() override {
    diagnostics::set_level(1);
    diagnostics::reset();
  }

  static std::uint64_t counted(Condition condition, Direction direction) {
    for (const diagnostics::Record& record : diagnostics::snapshot()) {
      if (record.condition == condition && record.direction == direction) return record.count;
    }
    return 0;
  }
  std::uint64_t moved() const { return safeops_hit_epoch - epoch_; }

  std::uint64_t epoch_ = 0;
};

TEST_F(Counters, StartEmptyAndAddPerConditionAndDirection) {
  EXPECT_TRUE(diagnostics::snapshot().empty());
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 2, 1));
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 3, 0));
  settle(call_of(Direction::forward), hits_of(Condition::below_eps, 1, 3));
  settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 5, 2));
  const std::vector<diagnostics::Record> records = diagnostics::snapshot();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].condition, Condition::zero_norm);
  EXPECT_EQ(records[0].direction, Direction::forward);
  EXPECT_EQ(records[0].count, 5u);
  EXPECT_EQ(records[0].first_row, 1u) << "the first row of the first call, not the lowest of all";
  EXPECT_EQ(records[1].direction, Direction::backward);
  EXPECT_EQ(records[1].count, 5u);
  EXPECT_EQ(records[1].first_row, 2u);
  EXPECT_EQ(records[2].condition, Condition::below_eps);
  EXPECT_EQ(records[2].count, 1u);
  EXPECT_EQ(records[2].op, Operator::normalize);
  EXPECT_EQ(records[2].device, Device::cpu);
}

TEST_F(Counters, EveryConditionHasItsOwn) {
  for (int i = 0; i < kConditions; ++i) {
    settle(call_of(Direction::backward),
           hits_of(static_cast<Condition>(i), 10u + static_cast<unsigned>(i), 0));
  }
  for (int i = 0; i < kConditions; ++i) {
    EXPECT_EQ(counted(static_cast<Condition>(i), Direction::backward),
              10u + static_cast<unsigned>(i));
    EXPECT_EQ(counted(static_cast<Condition>(i), Direction::forward), 0u);
  }
}

TEST_F(Counters, ResetForgetsEverything) {
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 2, 1));
  settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 2, 1));
  diagnostics::reset();
  EXPECT_TRUE(diagnostics::snapshot().empty());
  safeops_hit hit;
  EXPECT_EQ(safeops_take_backward_hits(&hit, 1), 0u);
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 3));
  EXPECT_EQ(diagnostics::snapshot().front().first_row, 3u);
}

TEST_F(Counters, OnlyHitsMoveTheEpoch) {
  settle(call_of(Direction::forward), Hits());
  settle(call_of(Direction::forward), hits_of(Condition::rescued, 4, 0));
  settle(call_of(Direction::backward), hits_of(Condition::nonfinite_input, 4, 0));
  EXPECT_EQ(moved(), 0u);
  EXPECT_EQ(counted(Condition::rescued, Direction::forward), 4u);
  Hits two = hits_of(Condition::zero_norm, 1, 0);
  two[Condition::below_eps].add(1, 1);
  settle(call_of(Direction::forward), two);
  EXPECT_EQ(moved(), 1u) << "once per call, not per condition";
  settle(call_of(Direction::backward), hits_of(Condition::below_eps, 9, 0));
  EXPECT_EQ(moved(), 2u);
}

TEST_F(Counters, LevelZeroCountsNothing) {
  ASSERT_TRUE(diagnostics::set_level(0));
  EXPECT_EQ(settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 2, 1)), 0u);
  settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 2, 1));
  EXPECT_TRUE(diagnostics::snapshot().empty());
  EXPECT_EQ(moved(), 0u);
  safeops_hit hit;
  EXPECT_EQ(safeops_take_backward_hits(&hit, 1), 0u);
}

TEST_F(Counters, OtherLevelsAreRefused) {
  for (const int level : {0, 1, 2, 3}) {
    EXPECT_TRUE(diagnostics::set_level(level));
    EXPECT_EQ(diagnostics::level(), level);
    EXPECT_EQ(safeops_level(), level);
  }
  for (const int level : {-1, 4, 100}) {
    EXPECT_FALSE(diagnostics::set_level(level));
    EXPECT_EQ(safeops_set_level(level), 0);
    EXPECT_EQ(diagnostics::level(), 3);
  }
}

TEST_F(Counters, LevelTwoKeepsShapeAndDtypeOfTheFirstOffender) {
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 0));
  safeops_record records[4];
  ASSERT_EQ(safeops_snapshot(records, 4), 1u);
  EXPECT_EQ(records[0].dims, -1);
  EXPECT_STREQ(records[0].dtype, "");

  diagnostics::reset();
  ASSERT_TRUE(diagnostics::set_level(2));
  const std::int64_t other[] = {7, 8, 9};
  Call later = call_of(Direction::forward);
  later.shape = other;
  later.dims = 3;
  later.dtype = "bfloat16";
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 2));
  settle(later, hits_of(Condition::zero_norm, 1, 0));
  ASSERT_EQ(safeops_snapshot(records, 4), 1u);
  EXPECT_EQ(records[0].dims, 2);
  EXPECT_EQ(records[0].shape[0], 4);
  EXPECT_EQ(records[0].shape[1], 3);
  EXPECT_STREQ(records[0].dtype, "float32");
  EXPECT_EQ(records[0].first_row, 2u);

  diagnostics::reset();
  settle(later, hits_of(Condition::zero_norm, 1, 0));
  ASSERT_EQ(safeops_snapshot(records, 4), 1u);
  EXPECT_EQ(records[0].dims, 3);
  EXPECT_STREQ(records[0].dtype, "bfloat16");
}

TEST_F(Counters, LevelThreeDescribesAsLevelTwoDoes) {
  ASSERT_TRUE(diagnostics::set_level(3));
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 2));
  safeops_record record;
  ASSERT_EQ(safeops_snapshot(&record, 1), 1u);
  EXPECT_EQ(record.dims, 2);
  EXPECT_STREQ(record.dtype, "float32");
}

TEST_F(Counters, LongShapesAndNamesAreCutAndTerminated) {
  ASSERT_TRUE(diagnostics::set_level(2));
  const std::int64_t shape[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  Call call = call_of(Direction::forward);
  call.shape = shape;
  call.dims = 10;
  call.dtype = "a_dtype_of_more_than_sixteen_letters";
  settle(call, hits_of(Condition::zero_norm, 1, 0));
  safeops_hit hit;
  ASSERT_EQ(safeops_last_hit(&hit), 1);
  EXPECT_EQ(hit.dims, 10);
  EXPECT_EQ(hit.shape[7], 8);
  EXPECT_STREQ(hit.dtype, "a_dtype_of_more");
}

TEST_F(Counters, SnapshotKeepsWithinItsCapacity) {
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 0));
  settle(call_of(Direction::forward), hits_of(Condition::below_eps, 1, 0));
  safeops_record records[2] = {};
  records[1].count = 77;
  EXPECT_EQ(safeops_snapshot(records, 1), 1u);
  EXPECT_EQ(records[1].count, 77u);
  EXPECT_EQ(safeops_snapshot(records, 0), 0u);
}

TEST_F(Counters, LastHitSummarizesTheCallOnItsThread) {
  Call call = call_of(Direction::forward);
  call.raises = true;
  Hits hits = hits_of(Condition::zero_norm, 1, 3);
  hits[Condition::below_eps].add(2, 1);
  hits[Condition::rescued].add(50, 0);
  const ForwardWatch watch;
  const std::uint64_t serial = settle(call, hits);
  EXPECT_NE(serial, 0u);
  EXPECT_EQ(watch.serial(), serial);
  settle(call, hits_of(Condition::rescued, 1, 0));
  safeops_hit hit;
  ASSERT_EQ(safeops_last_hit(&hit), 1);
  EXPECT_EQ(hit.serial, serial);
  EXPECT_EQ(hit.count, 3u) << "hits without notices";
  EXPECT_EQ(hit.first_row, 1u);
  EXPECT_EQ(hit.rows, 4u);
  EXPECT_EQ(hit.dims, 2);
  EXPECT_EQ(hit.shape[0], 4);
  EXPECT_EQ(hit.condition, static_cast<int>(Condition::below_eps))
      << "the condition with most rows";
  EXPECT_EQ(hit.direction, static_cast<int>(Direction::forward));
  EXPECT_EQ(hit.raised, 1);
  EXPECT_STREQ(hit.dtype, "float32");
  int seen_elsewhere = -1;
  std::thread([&] { seen_elsewhere = safeops_last_hit(&hit); }).join();
  EXPECT_EQ(seen_elsewhere, 0);
}

TEST_F(Counters, SerialsAreUniqueAndBackwardHitsCarryThem) {
  const std::uint64_t first =
      settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 0));
  const std::uint64_t second =
      settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 0));
  EXPECT_NE(first, second);
  EXPECT_EQ(settle(call_of(Direction::forward), hits_of(Condition::rescued, 1, 0)), 0u);
  {
    const SerialScope outer(first);
    {
      const SerialScope inner(second);
      EXPECT_EQ(settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 1, 0)), 0u);
    }
    settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 2, 0));
  }
  settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 3, 0));
  safeops_hit hits[4];
  ASSERT_EQ(safeops_take_backward_hits(hits, 2), 2u);
  EXPECT_EQ(hits[0].serial, second);
  EXPECT_EQ(hits[0].count, 1u);
  EXPECT_EQ(hits[1].serial, first);
  EXPECT_EQ(hits[1].count, 2u);
  ASSERT_EQ(safeops_take_backward_hits(hits, 4), 1u);
  EXPECT_EQ(hits[0].serial, 0u) << "outside every scope the forward call is unknown";
  EXPECT_EQ(safeops_take_backward_hits(hits, 4), 0u);
}

TEST_F(Counters, AFullRingLosesAttributionButNoCount) {
  constexpr std::uint64_t kCalls = 20000;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    const SerialScope scope(i + 1);
    settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 2, 0));
  }
  EXPECT_EQ(counted(Condition::zero_norm, Direction::backward), 2 * kCalls);
  std::vector<safeops_hit> hits(kCalls);
  const std::uint64_t taken = safeops_take_backward_hits(hits.data(), kCalls);
  EXPECT_GT(taken, 1000u);
  EXPECT_LT(taken, kCalls);
  for (std::uint64_t i = 0; i < taken; ++i) ASSERT_EQ(hits[i].serial, i + 1) << "oldest first";
  settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 2, 0));
  EXPECT_EQ(safeops_take_backward_hits(hits.data(), kCalls), 1u) << "room again after reading";
}

TEST_F(Counters, EightThreadsLoseNoHit) {
  constexpr std::uint64_t kThreads = 8, kCalls = 100000;
  std::atomic<bool> done{false};
  std::uint64_t taken = 0, reads = 0;
  std::thread reader([&] {
    safeops_hit hits[64];
    for (; !done; ++reads) {
      for (const diagnostics::Record& record : diagnostics::snapshot())
        EXPECT_LE(record.count, 3 * kThreads * kCalls);
      taken += safeops_take_backward_hits(hits, std::size(hits));
    }
  });
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    writers.emplace_back([t] {
      const Direction direction = t % 2 == 0 ? Direction::forward : Direction::backward;
      const SerialScope scope(t + 1);
      Hits hits = hits_of(Condition::zero_norm, 3, t);
      hits[Condition::rescued].add(1, t);
      for (std::uint64_t i = 0; i < kCalls; ++i) settle(call_of(direction), hits);
    });
  }
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    EXPECT_EQ(counted(Condition::zero_norm, direction), 3 * kThreads / 2 * kCalls);
    EXPECT_EQ(counted(Condition::rescued, direction), kThreads / 2 * kCalls);
  }
  EXPECT_EQ(moved(), kThreads * kCalls);
  EXPECT_GT(taken, 0u);
  EXPECT_GT(reads, 0u);
}

TEST_F(Counters, AResetMeanwhileMakesNoCountNegative) {
  std::atomic<bool> done{false};
  std::thread writer([&] {
    while (!done) {
      settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 2));
      diagnostics::reset();
    }
  });
  std::uint64_t largest = 0, seen = 0;
  for (int i = 0; i < 20000 || seen < 100; ++i) {
    for (const diagnostics::Record& record : diagnostics::snapshot()) {
      largest = std::max(largest, record.count);
      ++seen;
    }
  }
  done = true;
  writer.join();
  EXPECT_LE(largest, moved());
}

TEST_F(Counters, SerialsOfConcurrentCallsAreDistinct) {
  constexpr std::size_t kThreads = 4, kCalls = 20000;
  std::vector<std::vector<std::uint64_t>> serials(kThreads);
  std::vector<std::thread> threads;
  for (std::vector<std::uint64_t>& mine : serials) {
    threads.emplace_back([&mine] {
      for (std::size_t i = 0; i < kCalls; ++i) {
        mine.push_back(settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 0)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  for (const std::vector<std::uint64_t>& mine : serials) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), kThreads * kCalls);
  EXPECT_EQ(all.count(0), 0u);
}

TEST(DiagnosticsNames, AreThoseOfTheDocumentsAndEndInNull) {
  const char* const conditions[] = {"zero_norm",        "below_eps",     "empty_row",
                                    "zero_denominator", "zero_argument", "negative_argument",
                                    "nonfinite_input",  "rescued",       "finite_min_row"};
  for (int i = 0; i < kConditions; ++i) {
    EXPECT_STREQ(safeops_condition_name(i), conditions[i]);
    EXPECT_EQ(name(static_cast<Condition>(i)), conditions[i]);
    EXPECT_EQ(safeops_condition_is_hit(i), i < kHitConditions ? 1 : 0);
  }
  const char* const operators[] = {"normalize",  "softmax", "log_softmax", "logsumexp", "div",
                                   "reciprocal", "rsqrt",   "sqrt",        "log"};
  for (int i = 0; i < kOperators; ++i) {
    EXPECT_STREQ(safeops_operator_name(i), operators[i]);
    EXPECT_EQ(name(static_cast<Operator>(i)), operators[i]);
  }
  EXPECT_STREQ(safeops_direction_name(0), "forward");
  EXPECT_STREQ(safeops_direction_name(1), "backward");
  EXPECT_STREQ(safeops_device_name(0), "cpu");
  EXPECT_STREQ(safeops_device_name(1), "cuda");
  for (const int past : {-1, 100}) {
    EXPECT_EQ(safeops_operator_name(past), nullptr);
    EXPECT_EQ(safeops_condition_name(past), nullptr);
    EXPECT_EQ(safeops_direction_name(past), nullptr);
    EXPECT_EQ(safeops_device_name(past), nullptr);
    EXPECT_EQ(safeops_condition_is_hit(past), 0);
  }
  EXPECT_EQ(safeops_operator_name(kOperators), nullptr);
  EXPECT_EQ(safeops_condition_name(kConditions), nullptr);
}

}  // namespace
}  // namespace safeops
