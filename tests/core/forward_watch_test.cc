// How a node learns which forward call it belongs to, singularities included that only backward
// counts.
#include <gtest/gtest.h>

#include <thread>

#include "core/counters.h"

namespace safeops {
namespace {

constexpr std::int64_t kShape[] = {4, 3};

Call call_of(Direction direction) {
  return {Operator::sqrt, direction, Device::cpu, 12, kShape, 2, "float32", false};
}

Hits hits_of(Condition condition, std::uint64_t count, std::size_t first) {
  Hits hits;
  hits[condition].add(count, first);
  return hits;
}

Hits latent_hits(std::uint64_t count, std::size_t first) {
  Hits hits;
  hits.latent.add(count, first);
  return hits;
}

class ForwardWatches : public ::testing::Test {
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
  std::uint64_t moved() const { return safeops_hit_epoch - epoch_; }

  std::uint64_t epoch_ = 0;
};

TEST_F(ForwardWatches, AWatchTellsWhetherACallOnItsThreadHit) {
  EXPECT_EQ(ForwardWatch().serial(), 0u);
  settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 0));
  const ForwardWatch watch;
  EXPECT_EQ(watch.serial(), 0u) << "hits before do not count";
  settle(call_of(Direction::forward), hits_of(Condition::rescued, 1, 0));
  settle(call_of(Direction::backward), hits_of(Condition::zero_norm, 1, 0));
  EXPECT_EQ(watch.serial(), 0u);
  std::thread([] {
    settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 0));
  }).join();
  EXPECT_EQ(watch.serial(), 0u);
  const std::uint64_t serial =
      settle(call_of(Direction::forward), hits_of(Condition::zero_norm, 1, 0));
  EXPECT_EQ(watch.serial(), serial);
  EXPECT_EQ(watch.serial(), serial) << "asking changes nothing";
}

TEST_F(ForwardWatches, LatentHitsAreNeitherCountedNorSeen) {
  settle(call_of(Direction::forward), latent_hits(2, 5));
  EXPECT_TRUE(diagnostics::snapshot().empty());
  EXPECT_EQ(moved(), 0u);
  safeops_hit hit;
  EXPECT_EQ(safeops_take_backward_hits(&hit, 1), 0u);
}

TEST_F(ForwardWatches, AWatchGivesALatentCallASerialAndMakesItTheLastHit) {
  Call call = call_of(Direction::forward);
  const ForwardWatch watch;
  EXPECT_EQ(settle(call, latent_hits(2, 5)), 0u);
  const std::uint64_t serial = watch.serial();
  EXPECT_EQ(serial, safeops_hit_epoch);
  EXPECT_EQ(moved(), 1u);
  EXPECT_EQ(watch.serial(), serial) << "given once";
  EXPECT_EQ(moved(), 1u);
  safeops_hit hit;
  ASSERT_EQ(safeops_last_hit(&hit), 1);
  EXPECT_EQ(hit.serial, serial);
  EXPECT_EQ(hit.count, 0u);
  EXPECT_EQ(hit.first_row, 5u);
  EXPECT_EQ(hit.op, static_cast<int>(Operator::sqrt));
  EXPECT_EQ(hit.condition, static_cast<int>(Condition::zero_argument));
  EXPECT_STREQ(hit.dtype, "float32");
  EXPECT_TRUE(diagnostics::snapshot().empty());
  const SerialScope scope(serial);
  call.direction = Direction::backward;
  settle(call, hits_of(Condition::zero_argument, 2, 5));
  ASSERT_EQ(safeops_take_backward_hits(&hit, 1), 1u);
  EXPECT_EQ(hit.serial, serial);
}

TEST_F(ForwardWatches, ALatentCallIsForgottenByTheNextWatchAndTheNextCall) {
  settle(call_of(Direction::forward), latent_hits(1, 0));
  EXPECT_EQ(ForwardWatch().serial(), 0u) << "it came before";
  const ForwardWatch watch;
  settle(call_of(Direction::backward), latent_hits(1, 0));
  EXPECT_EQ(watch.serial(), 0u) << "backward has none";
  std::thread([] { settle(call_of(Direction::forward), latent_hits(1, 0)); }).join();
  EXPECT_EQ(watch.serial(), 0u) << "another thread's";
  EXPECT_EQ(moved(), 0u);
}

TEST_F(ForwardWatches, HitsBesideLatentOnesAreTheHitsOfTheCall) {
  Hits hits = latent_hits(7, 0);
  hits[Condition::negative_argument].add(2, 3);
  const ForwardWatch watch;
  const std::uint64_t serial = settle(call_of(Direction::forward), hits);
  EXPECT_EQ(watch.serial(), serial);
  EXPECT_EQ(moved(), 1u);
  safeops_hit hit;
  ASSERT_EQ(safeops_last_hit(&hit), 1);
  EXPECT_EQ(hit.count, 2u);
  EXPECT_EQ(hit.first_row, 3u);
  EXPECT_EQ(hit.condition, static_cast<int>(Condition::negative_argument));
  ASSERT_TRUE(diagnostics::set_level(0));
  const ForwardWatch silent;
  settle(call_of(Direction::forward), latent_hits(1, 0));
  EXPECT_EQ(silent.serial(), 0u) << "nothing at level 0";
}

TEST(HitsMerge, LatentHitsAddUpAndCountAsSomething) {
  Hits hits = latent_hits(2, 9);
  EXPECT_TRUE(hits.any());
  hits.merge(latent_hits(3, 4));
  hits.merge(Hits());
  EXPECT_EQ(hits.latent.count, 5u);
  EXPECT_EQ(hits.latent.first, 4u);
  EXPECT_FALSE(Hits().any());
}

}  // namespace
}  // namespace safeops
