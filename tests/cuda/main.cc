// Says what the emulator did, which must not be nothing.
#include <gtest/gtest.h>

#include <cstdio>

#include "cases/fused_multiply_add.h"
#include "emulator/emulator.h"

namespace safeops {
namespace {

class Count : public ::testing::Environment {
 public:
  void TearDown() override {
    const emulator::Statistics& all = emulator::statistics();
    std::printf("emulator: %llu launches, %llu blocks, %llu switches, %llu barriers\n",
                static_cast<unsigned long long>(all.launches),
                static_cast<unsigned long long>(all.blocks),
                static_cast<unsigned long long>(all.switches),
                static_cast<unsigned long long>(all.barriers));
    std::printf("emulator: bits of normalize and division %s\n",
                cases::has_fused_multiply_add(current_target())
                    ? "were held against the SIMD kernels"
                    : "were NOT compared, for the SIMD target has no fused multiply-add");
    EXPECT_GT(all.launches, 0u);
    EXPECT_GE(all.blocks, all.launches);
    EXPECT_GE(all.switches, all.blocks);
  }
};

}  // namespace
}  // namespace safeops

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new safeops::Count);
  return RUN_ALL_TESTS();
}
