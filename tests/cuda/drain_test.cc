// Hits that kernels left are taken from a device once each, also while kernels run.
#include "core/drain_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/division_emulated.h"

namespace safeops::cases {
namespace {

constexpr int kBlocks = 3;

/// Different numbers in every hit; a hit without a count has no row.
std::vector<Hits> some_hits() {
  std::vector<Hits> all(kBlocks);
  std::uint64_t number = 0;
  for (Hits& hits : all) {
    for (Hit& hit : hits.of) {
      if (++number % 3 != 0) hit.add(number, number * 10);
    }
    hits.raising.add(++number, 7);
    hits.latent.add(++number, 8);
  }
  return all;
}

void drain(std::vector<Hits>& hits, Hits* mapped, Device& device) {
  Hits none;
  device.call(
      [&](const CudaLaunch& launch) {
        return drain_hits_cuda(hits.data(), mapped, static_cast<int>(hits.size()), launch.stream);
      },
      none);
}

TEST(CudaDrain, TakesEveryHitOnce) {
  Device device;
  for (const emulator::Schedule& schedule : schedules()) {
    device.schedule = schedule;
    std::vector<Hits> hits = some_hits(), taken(kBlocks);
    drain(hits, taken.data(), device);
    const std::vector<Hits> expected = some_hits();
    for (int i = 0; i < kBlocks; ++i) {
      EXPECT_EQ(difference(taken[i], expected[i]), "");
      EXPECT_EQ(difference(hits[i], Hits()), "") << "nothing is left";
    }
    drain(hits, taken.data(), device);
    for (const Hits& none : taken) EXPECT_EQ(difference(none, Hits()), "");
  }
}

TEST(CudaDrain, MakesHitsOfAnyMemory) {
  Device device;
  for (const unsigned char byte : {0, 0xFF, 0x5A}) {
    std::vector<Hits> hits(kBlocks);
    std::fill_n(reinterpret_cast<unsigned char*>(hits.data()), sizeof(Hits) * kBlocks, byte);
    drain(hits, nullptr, device);
    for (const Hits& none : hits) EXPECT_EQ(difference(none, Hits()), "");
  }
}

TEST(CudaDrain, NoHitsAreNoWork) {
  Device device;
  std::vector<Hits> none;
  drain(none, nullptr, device);
  std::vector<Hits> one(1), taken(1);
  drain(one, taken.data(), device);
}

TEST(CudaDrain, LosesNothingOfAKernelThatRuns) {
  Random random(730);
  for (const emulator::Schedule& schedule : schedules()) {
    DivisionTrial trial;
    trial.policy = Policy::zero;
    const Operands operands(Element::float32, kThorough ? 40000 : 9000, 1, 0, 20, random);
    const Inputs inputs = operands.inputs(trial);
    const Hits expected = expected_on_device(inputs, trial).hits;
    std::vector<Hits> hits(1);
    Hits sum;
    std::size_t drains = 0;
    const auto take = [&] {
      std::vector<Hits> taken(1);
      Device meanwhile;
      const emulator::Limits limits = emulator::limits();
      const emulator::Schedule running = emulator::schedule();
      drain(hits, taken.data(), meanwhile);
      emulator::limits() = limits;
      emulator::schedule() = running;
      sum.merge(taken[0]);
      ++drains;
    };
    Device device;
    device.schedule = schedule;
    device.schedule.between_blocks = take;
    device.hits = hits.data();
    divide_on(device, inputs, trial);
    take();
    EXPECT_GE(drains, 3u);
    EXPECT_EQ(difference(sum, expected), "");
  }
}

}  // namespace
}  // namespace safeops::cases
