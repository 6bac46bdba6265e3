// Says what the emulator did, which must not be nothing.
#include <gtest/gtest.h>

#include <cstdio>

#include "emulator/emulator.h"

namespace {

class Count : public ::testing::Environment {
 public:
  void TearDown() override {
    const safeops::emulator::Statistics& all = safeops::emulator::statistics();
    std::printf("emulator: %llu launches, %llu blocks, %llu switches, %llu barriers\n",
                static_cast<unsigned long long>(all.launches),
                static_cast<unsigned long long>(all.blocks),
                static_cast<unsigned long long>(all.switches),
                static_cast<unsigned long long>(all.barriers));
    EXPECT_GT(all.launches, 0u);
    EXPECT_GE(all.blocks, all.launches);
    EXPECT_GE(all.switches, all.blocks);
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new Count);
  return RUN_ALL_TESTS();
}
