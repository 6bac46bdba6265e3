// A child of fork counts its own, whatever its parent was in the middle of.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/backward_ring.h"
#include "core/counters.h"
#include "safeops/reporter.h"

namespace safeops {
namespace {

constexpr std::int64_t kShape[] = {4, 3};

std::uint64_t hit(Direction direction, std::uint64_t count, std::size_t row = 0) {
  Hits hits;
  hits[Condition::zero_norm].add(count, row);
  return settle({Operator::normalize, direction, Device::cpu, 4, kShape, 2, "float32", false},
                hits);
}

// 0, or the number of the first expectation that did not hold. No assertion of the framework: its
// locks may be held by threads that the child does not have.
int count_in_child(std::uint64_t epoch) {
  safeops_hit hits[64];
  if (!diagnostics::snapshot().empty()) return 1;
  if (safeops_last_hit(hits) != 0) return 2;
  if (safeops_take_backward_hits(hits, 64) != 0) return 3;
  if (safeops_hit_epoch < epoch) return 4;
  const std::uint64_t before = safeops_hit_epoch;
  const std::uint64_t serial = hit(Direction::forward, 3, 2);
  if (serial <= before) return 5;
  const SerialScope scope(serial);
  // Through every cell of the ring.
  for (std::uint64_t i = 0; i < BackwardRing::kCells; ++i) {
    hit(Direction::backward, 1);
    if (safeops_take_backward_hits(hits, 64) != 1 || hits[0].serial != serial) return 6;
  }
  for (std::uint64_t i = 0; i < 2 * BackwardRing::kCells; ++i) hit(Direction::backward, 1);
  std::uint64_t held = 0;
  while (safeops_take_backward_hits(hits, 1) != 0) ++held;
  if (held != BackwardRing::kCells) return 7;
  safeops_record records[3];
  if (safeops_snapshot(records, 3) != 2) return 8;
  if (records[0].count != 3 || records[0].first_row != 2) return 9;
  if (records[1].count != 3 * BackwardRing::kCells) return 10;
  if (records[0].dims != 2 || records[1].dims != 2) return 11;
  return 0;
}

template <class Work>
int exit_code_of_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs fails
    _exit(work());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class ChildOfFork : public ::testing::Test {
 protected:
  void SetUp() override {
    diagnostics::set_level(1);
    diagnostics::reset();
  }
  void TearDown() override { SetUp(); }
};

TEST_F(ChildOfFork, StartsEmptyWhileTheParentsThreadsHit) {
  diagnostics::set_level(2);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> calls{0};
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t) {
    writers.emplace_back([&] {
      for (std::uint64_t mine = 0; !done; ++mine, ++calls) {
        hit(Direction::forward, 1);
        hit(Direction::backward, 1);
      }
    });
  }
  safeops_hit discarded[64];
  std::uint64_t epoch = 0;
  for (int i = 0; i < 50; ++i) {
    hit(Direction::forward, 1);
    // Room in the ring, so that the fork finds threads inside it.
    while (safeops_take_backward_hits(discarded, 64) == 64) {
    }
    epoch = std::atomic_ref<std::uint64_t>(safeops_hit_epoch).load();
    const int code = exit_code_of_child([&] { return count_in_child(epoch); });
    EXPECT_EQ(code, 0);
    if (code != 0) break;
  }
  done = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(diagnostics::snapshot().at(1).count, calls) << "the parent counts on";
}

TEST_F(ChildOfFork, IsSilentWithTheParentsReporterAndMayMakeItsOwn) {
  std::atomic<std::uint64_t> told{0};
  const auto sink = [&](const diagnostics::Change& change) { told += change.added; };
  diagnostics::Reporter reporter(sink, std::chrono::milliseconds(1));
  hit(Direction::forward, 5);
  ASSERT_TRUE(reporter.flush());
  ASSERT_EQ(told, 5u);
  for (int i = 0; i < 50; ++i) {
    hit(Direction::forward, 1);
    const int code = exit_code_of_child([&] {
      told = 0;
      hit(Direction::forward, 2);
      if (reporter.flush()) return 1;
      if (!reporter.last_failure().empty()) return 2;
      {
        diagnostics::Reporter own(sink, std::chrono::hours(1));
        hit(Direction::forward, 3);
        if (!own.flush() || told != 3) return 3;
        hit(Direction::forward, 4);
      }
      if (told != 7) return 4;
      reporter.~Reporter();
      return told == 7 ? 0 : 5;
    });
    ASSERT_EQ(code, 0);
  }
  EXPECT_TRUE(reporter.flush());
  EXPECT_EQ(told, 55u);
}

}  // namespace
}  // namespace safeops
