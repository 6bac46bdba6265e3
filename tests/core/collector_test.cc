// Hits that wait on a device until the counters are read.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>

#include "core/counters.h"
#include "safeops/reporter.h"

namespace safeops {
namespace {

constexpr std::int64_t kShape[] = {4, 3};

std::mutex mutex;  // a reporter collects on its own thread
Hits waiting;
int calls = 0;
bool waited = false;

void collect_waiting(bool waits) {
  const std::lock_guard lock(mutex);
  ++calls;
  waited = waits;
  count_collected(Operator::softmax, Direction::backward, Device::cuda, waiting);
  waiting = Hits();
}

Hits two_from_row(std::size_t row) {
  Hits hits;
  hits[Condition::empty_row].add(2, row);
  return hits;
}

class Collected : public ::testing::Test {
 protected:
  void SetUp() override {
    diagnostics::reset();
    set_collector(collect_waiting);
    waiting = two_from_row(7);
    calls = 0;
  }
  void TearDown() override {
    set_collector(nullptr);
    diagnostics::reset();
  }
};

TEST_F(Collected, HitsAreInASnapshot) {
  const auto records = diagnostics::snapshot();
  EXPECT_TRUE(waited);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].op, Operator::softmax);
  EXPECT_EQ(records[0].condition, Condition::empty_row);
  EXPECT_EQ(records[0].direction, Direction::backward);
  EXPECT_EQ(records[0].device, Device::cuda);
  EXPECT_EQ(records[0].count, 2u);
  EXPECT_EQ(records[0].first_row, 7u);
}

TEST_F(Collected, HitsAreInAGlanceThatDoesNotWait) {
  safeops_record record;
  waited = true;
  EXPECT_EQ(safeops_glance(&record, 1), 1u);
  EXPECT_FALSE(waited);
  EXPECT_EQ(record.count, 2u);
  EXPECT_EQ(record.dims, -1);
}

TEST_F(Collected, HitsAreNoCallOfThisThread) {
  const std::uint64_t epoch = safeops_hit_epoch;
  diagnostics::snapshot();
  EXPECT_EQ(safeops_hit_epoch, epoch);
  safeops_hit hit;
  EXPECT_EQ(safeops_take_backward_hits(&hit, 1), 0u);
}

TEST_F(Collected, HitsOfBeforeAreForgottenByAReset) {
  diagnostics::reset();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(Collected, HitsAreToldByAReporter) {
  std::uint64_t told = 0;
  diagnostics::Reporter reporter([&](const diagnostics::Change& change) { told += change.added; });
  {
    const std::lock_guard lock(mutex);
    waiting = two_from_row(1);
  }
  EXPECT_TRUE(reporter.flush());
  EXPECT_EQ(told, 2u);  // not those of before it began
}

TEST_F(Collected, HitsAreNotLookedForInAChildOfFork) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(diagnostics::snapshot().empty() && calls == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Collected, AnErrorThatComesLateIsTheLastHitAndCountsNothing) {
  set_collector(nullptr);
  const std::uint64_t epoch = safeops_hit_epoch;
  safeops_hit late = description(
      {Operator::normalize, Direction::forward, Device::cuda, 4, kShape, 2, "float32", true});
  late.first_row = 3;
  announce(late);
  EXPECT_EQ(safeops_hit_epoch, epoch + 1);
  safeops_hit hit;
  ASSERT_TRUE(safeops_last_hit(&hit));
  EXPECT_EQ(hit.serial, epoch + 1);
  EXPECT_EQ(hit.first_row, 3u);
  EXPECT_EQ(hit.raised, 1);
  EXPECT_STREQ(hit.dtype, "float32");
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(Collected, AnErrorOfBackwardKeepsTheSerialOfItsForwardCall) {
  const SerialScope scope(17);
  announce(description(
      {Operator::normalize, Direction::backward, Device::cuda, 4, kShape, 2, "float32", true}));
  safeops_hit hit;
  ASSERT_TRUE(safeops_last_hit(&hit));
  EXPECT_EQ(hit.serial, 17u);
}

}  // namespace
}  // namespace safeops
