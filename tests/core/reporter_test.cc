// What a sink is told: every count once, whatever the sink does.
#include "safeops/reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/counters.h"

namespace safeops {
namespace {

using diagnostics::Change;
using diagnostics::Reporter;
using std::chrono::milliseconds;

constexpr milliseconds kNever = std::chrono::hours(24);
constexpr std::int64_t kShape[] = {4, 3};

void hit(Condition condition, std::uint64_t count, Direction direction = Direction::forward) {
  Hits hits;
  hits[condition].add(count, 1);
  settle({Operator::normalize, direction, Device::cpu, 4, kShape, 2, "float32", false}, hits);
}

// The sum of what was added, per counter. Copies add to the same sums.
class Sums {
 public:
  void operator()(const Change& change) const {
    const std::lock_guard lock(state_->mutex);
    state_->added[{change.record.condition, change.record.direction}] += change.added;
    state_->largest = std::max(state_->largest, change.record.count);
    ++state_->calls;
  }
  std::uint64_t of(Condition condition, Direction direction = Direction::forward) const {
    const std::lock_guard lock(state_->mutex);
    return state_->added[{condition, direction}];
  }
  std::uint64_t calls() const {
    const std::lock_guard lock(state_->mutex);
    return state_->calls;
  }
  std::uint64_t largest() const {
    const std::lock_guard lock(state_->mutex);
    return state_->largest;
  }

 private:
  struct State {
    std::mutex mutex;
    std::map<std::pair<Condition, Direction>, std::uint64_t> added;
    std::uint64_t calls = 0, largest = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class ReporterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    diagnostics::set_level(1);
    diagnostics::reset();
  }
  void TearDown() override { SetUp(); }
};

TEST_F(ReporterTest, TellsHitsAndNoticesOfBothDirectionsOnce) {
  hit(Condition::zero_norm, 100);
  const Sums sums;
  Reporter reporter(sums, kNever);
  EXPECT_TRUE(reporter.flush());
  EXPECT_EQ(sums.calls(), 0u) << "it begins with what is counted from now on";
  hit(Condition::zero_norm, 2);
  hit(Condition::zero_norm, 3);
  hit(Condition::zero_norm, 7, Direction::backward);
  hit(Condition::rescued, 11);
  EXPECT_TRUE(reporter.flush());
  EXPECT_TRUE(reporter.flush());
  EXPECT_EQ(sums.calls(), 3u) << "one change per counter, none without a change";
  EXPECT_EQ(sums.of(Condition::zero_norm), 5u);
  EXPECT_EQ(sums.of(Condition::zero_norm, Direction::backward), 7u);
  EXPECT_EQ(sums.of(Condition::rescued), 11u);
}

TEST_F(ReporterTest, AChangeHoldsTheCounterAsASnapshotDoes) {
  diagnostics::set_level(2);
  hit(Condition::below_eps, 3);
  std::vector<Change> changes;
  Reporter reporter([&](const Change& change) { changes.push_back(change); }, kNever);
  hit(Condition::below_eps, 4);
  ASSERT_TRUE(reporter.flush());
  ASSERT_EQ(changes.size(), 1u);
  const diagnostics::Record& record = changes[0].record;
  EXPECT_EQ(record.op, Operator::normalize);
  EXPECT_EQ(record.condition, Condition::below_eps);
  EXPECT_EQ(record.direction, Direction::forward);
  EXPECT_EQ(record.device, Device::cpu);
  EXPECT_EQ(record.count, 7u);
  EXPECT_EQ(record.first_row, 1u);
  EXPECT_EQ(changes[0].added, 4u);
  EXPECT_THAT(changes[0].shape, ::testing::ElementsAre(4, 3));
  EXPECT_EQ(changes[0].dtype, "float32");
}

TEST_F(ReporterTest, TellsByItselfAfterAPeriod) {
  std::promise<std::uint64_t> told;
  Reporter reporter([&](const Change& change) { told.set_value(change.added); }, milliseconds(1));
  hit(Condition::zero_norm, 6);
  EXPECT_EQ(told.get_future().get(), 6u);
}

TEST_F(ReporterTest, TheDestructorTellsTheRest) {
  const Sums sums;
  {
    const Reporter reporter(sums, kNever);
    hit(Condition::zero_norm, 6);
  }
  EXPECT_EQ(sums.of(Condition::zero_norm), 6u);
  hit(Condition::zero_norm, 6);
  EXPECT_EQ(sums.of(Condition::zero_norm), 6u);
}

TEST_F(ReporterTest, AResetTakesNothingFromTheSink) {
  std::vector<Change> changes;
  Reporter reporter([&](const Change& change) { changes.push_back(change); }, kNever);
  hit(Condition::zero_norm, 5);
  diagnostics::reset();
  hit(Condition::zero_norm, 3);
  ASSERT_TRUE(reporter.flush());
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].added, 8u);
  EXPECT_EQ(changes[0].record.count, 3u);
}

TEST_F(ReporterTest, WhatThrewIsToldAgainAndTheOthersAreNotHeldUp) {
  const Sums sums;
  std::atomic<bool> broken = true;
  const auto sink = [&](const Change& change) {
    if (broken && change.record.condition == Condition::zero_norm) throw std::runtime_error("full");
    if (broken && change.record.condition == Condition::empty_row) throw 1;
    sums(change);
  };
  Reporter reporter(sink, kNever);
  hit(Condition::zero_norm, 2);
  hit(Condition::below_eps, 3);
  EXPECT_FALSE(reporter.flush());
  EXPECT_EQ(sums.of(Condition::below_eps), 3u);
  EXPECT_EQ(sums.of(Condition::zero_norm), 0u);
  EXPECT_EQ(reporter.failures(), 1u);
  EXPECT_EQ(reporter.last_failure(), "full");
  hit(Condition::empty_row, 1);
  EXPECT_FALSE(reporter.flush());
  EXPECT_EQ(reporter.failures(), 3u);
  EXPECT_EQ(reporter.last_failure(), "an exception that is no std::exception");
  broken = false;
  hit(Condition::zero_norm, 5);
  EXPECT_TRUE(reporter.flush());
  EXPECT_EQ(sums.of(Condition::zero_norm), 7u);
  EXPECT_EQ(sums.of(Condition::below_eps), 3u);
  EXPECT_EQ(sums.of(Condition::empty_row), 1u);
  EXPECT_EQ(reporter.failures(), 3u);
}

TEST_F(ReporterTest, ASinkThatBlocksDelaysNeitherOperatorsNorOtherReporters) {
  std::promise<void> entered, release;
  const Sums slow_sums, sums;
  std::atomic<bool> first = true;
  const auto blocks = [&](const Change& change) {
    if (first.exchange(false)) {
      entered.set_value();
      release.get_future().wait();
    }
    slow_sums(change);
  };
  Reporter slow(blocks, milliseconds(1));
  Reporter reporter(sums, kNever);
  hit(Condition::zero_norm, 1);
  entered.get_future().wait();
  for (int i = 0; i < 1000; ++i) hit(Condition::zero_norm, 1);
  EXPECT_EQ(diagnostics::snapshot().front().count, 1001u);
  EXPECT_TRUE(reporter.flush());
  EXPECT_EQ(sums.of(Condition::zero_norm), 1001u);
  EXPECT_EQ(slow_sums.calls(), 0u);
  release.set_value();
  EXPECT_TRUE(slow.flush());
  EXPECT_EQ(slow_sums.of(Condition::zero_norm), 1001u);
  EXPECT_EQ(slow_sums.calls(), 2u) << "what came meanwhile is one change";
}

TEST_F(ReporterTest, ASinkMayHitReadResetAndFlush) {
  const Sums sums;
  Reporter other([](const Change&) {}, kNever);
  Reporter* self = nullptr;
  std::vector<bool> waited;
  const auto sink = [&](const Change& change) {
    sums(change);
    if (change.record.condition != Condition::zero_norm) return;
    hit(Condition::below_eps, 9);
    EXPECT_FALSE(diagnostics::snapshot().empty());
    diagnostics::reset();
    waited = {self->flush(), other.flush()};
  };
  Reporter reporter(sink, kNever);
  self = &reporter;
  hit(Condition::zero_norm, 1);
  EXPECT_TRUE(reporter.flush());
  EXPECT_TRUE(reporter.flush());
  EXPECT_EQ(sums.of(Condition::zero_norm), 1u);
  EXPECT_EQ(sums.of(Condition::below_eps), 9u);
  EXPECT_THAT(waited, ::testing::ElementsAre(false, false));
}

TEST_F(ReporterTest, SinksThatFlushEachOtherDoNotWaitForEachOther) {
  std::unique_ptr<Reporter> reporters[2];
  const Sums sums[2];
  for (int i = 0; i < 2; ++i) {
    const auto sink = [&, i](const Change& change) {
      sums[i](change);
      reporters[1 - i]->flush();
    };
    reporters[i] = std::make_unique<Reporter>(sink, kNever);
  }
  for (int i = 0; i < 200; ++i) {
    hit(Condition::zero_norm, 1);
    reporters[i % 2]->flush();
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(reporters[i]->flush());
    EXPECT_EQ(sums[i].of(Condition::zero_norm), 200u);
  }
}

TEST_F(ReporterTest, ASinkMayDestroyAnotherReporter) {
  const Sums sums;
  auto other = std::make_unique<Reporter>(sums, kNever);
  Reporter reporter([&](const Change&) { other.reset(); }, kNever);
  hit(Condition::zero_norm, 4);
  EXPECT_TRUE(reporter.flush());
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(sums.of(Condition::zero_norm), 4u);
}

TEST_F(ReporterTest, ASinkMayDestroyItsOwnReporter) {
  std::promise<void> destroyed;
  std::atomic<int> calls = 0;
  std::unique_ptr<Reporter> reporter;
  struct AtTheEnd {
    std::promise<void>& promise;
    ~AtTheEnd() { promise.set_value(); }
  };
  auto sink = [&, end = std::shared_ptr<AtTheEnd>(new AtTheEnd{destroyed})](const Change&) {
    ++calls;
    reporter.reset();
  };
  reporter = std::make_unique<Reporter>(std::move(sink), milliseconds(1));
  hit(Condition::zero_norm, 4);
  hit(Condition::below_eps, 4);
  destroyed.get_future().wait();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(reporter, nullptr);
}

TEST_F(ReporterTest, WhatCannotWorkIsRefused) {
  EXPECT_THROW(Reporter{diagnostics::Sink()}, std::invalid_argument);
  for (const milliseconds period : {milliseconds(0), milliseconds(-1)}) {
    EXPECT_THROW(Reporter([](const Change&) {}, period), std::invalid_argument);
  }
  Reporter patient([](const Change&) {}, milliseconds::max());
  EXPECT_TRUE(patient.flush());
}

TEST_F(ReporterTest, EightThreadsLoseNoHitWhileSinksComeAndGo) {
  constexpr std::uint64_t kThreads = 8, kCalls = 1000000, kSinks = 3;
  const Sums sums, whole, throwing;
  std::atomic<std::uint64_t> running = kThreads;
  std::atomic<int> moment = 0;
  const auto throws_often = [&](const Change& change) {
    if (++moment % 3 != 0) throw std::runtime_error("not now");
    throwing(change);
  };
  Reporter beginning_to_end(whole, milliseconds(1));
  Reporter failing(throws_often, milliseconds(1));
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    writers.emplace_back([&, t] {
      const Direction direction = t % 2 == 0 ? Direction::forward : Direction::backward;
      for (std::uint64_t i = 0; i < kCalls; ++i) {
        hit(t < 4 ? Condition::zero_norm : Condition::rescued, 3, direction);
      }
      --running;
    });
  }
  std::thread swaps([&] {
    std::vector<std::unique_ptr<Reporter>> reporters(kSinks);
    for (std::uint64_t i = 0; running != 0; ++i) {
      std::unique_ptr<Reporter>& place = reporters[i % kSinks];
      place = std::make_unique<Reporter>(sums, milliseconds(1 + i % 3));
      if (i % 4 == 0) place->flush();
      if (i % 4 == 1) diagnostics::reset();
    }
  });
  for (std::thread& writer : writers) writer.join();
  swaps.join();
  EXPECT_TRUE(beginning_to_end.flush());
  while (!failing.flush()) {
  }
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const Condition condition : {Condition::zero_norm, Condition::rescued}) {
      EXPECT_EQ(whole.of(condition, direction), 3 * kThreads / 4 * kCalls);
      EXPECT_EQ(throwing.of(condition, direction), 3 * kThreads / 4 * kCalls);
    }
  }
  EXPECT_GT(sums.calls(), 0u);
  EXPECT_LE(whole.largest(), 3 * kThreads / 4 * kCalls) << "no reset makes a count negative";
}

}  // namespace
}  // namespace safeops
