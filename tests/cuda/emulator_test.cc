// The emulator on kernels of its own: good ones give the same under every schedule, and each kind
// of bad one ends the process with the line that is wrong.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }
#endif

namespace safeops::emulator {
namespace {

/// Runs body under every schedule, with two random ones, and restores the first.
template <class Body>
void under_every_schedule(const Body& body) {
  for (const Schedule& each :
       {Schedule{Order::ascending, 1, {}}, Schedule{Order::descending, 1, {}},
        Schedule{Order::random, 1, {}}, Schedule{Order::random, 2, {}}}) {
    schedule() = each;
    body();
    ASSERT_FALSE(::testing::Test::HasFailure()) << kOrderNames[static_cast<int>(each.order)];
  }
  schedule() = {};
}

cudaLaunchConfig_t configuration(unsigned blocks, unsigned threads, std::size_t shared = 0) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  return config;
}

template <class... Parameters, class... Arguments>
void launch(unsigned blocks, unsigned threads, std::size_t shared, void (*kernel)(Parameters...),
            Arguments... arguments) {
  const cudaLaunchConfig_t config = configuration(blocks, threads, shared);
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
}

__global__ void number_threads(unsigned* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * 1000 + threadIdx.x;
}

TEST(Emulator, RunsEveryThreadOfEveryBlockOnce) {
  under_every_schedule([] {
    std::vector<unsigned> out(5 * 70, 0);
    launch(5, 70, 0, &number_threads, out.data());
    for (unsigned i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i / 70 * 1000 + i % 70);
  });
}

__global__ void number_blocks(unsigned* out) {
  out[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] += threadIdx.x + 1;
}

TEST(Emulator, RunsGridsOfThreeDims) {
  under_every_schedule([] {
    std::vector<unsigned> out(7 * 3 * 4, 0);
    cudaLaunchConfig_t config = configuration(1, 1);
    config.gridDim = dim3(7, 3, 4);
    ASSERT_EQ(cudaLaunchKernelEx(&config, &number_blocks, out.data()), cudaSuccess);
    EXPECT_EQ(out, std::vector<unsigned>(7 * 3 * 4, 1));
  });
}

__global__ void butterfly(double* out) {
  double sum = threadIdx.x + 1;
  for (int lanes = 16; lanes != 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, lanes);
  const float third = __shfl_sync(0xFFFFFFFF, static_cast<float>(threadIdx.x), 3);
  const int first_of_eight = __shfl_sync(0xFFFFFFFF, static_cast<int>(threadIdx.x), 0, 8);
  __syncwarp();
  out[threadIdx.x] = sum + 1e4 * third + 1e6 * first_of_eight;
}

TEST(Emulator, ShufflesWithinWarps) {
  under_every_schedule([] {
    std::vector<double> out(96);
    launch(1, 96, 0, &butterfly, out.data());
    for (unsigned i = 0; i < 96; ++i) {
      const unsigned first = i / 32 * 32;
      ASSERT_EQ(out[i], first * 32 + 528 + 1e4 * (first + 3) + 1e6 * (i / 8 * 8)) << i;
    }
  });
}

__global__ void votes(unsigned* out) {
  const bool third = threadIdx.x % 3 == 0;
  out[3 * threadIdx.x] = __ballot_sync(0xFFFFFFFF, third);
  out[3 * threadIdx.x + 1] = static_cast<unsigned>(__any_sync(0xFFFFFFFF, threadIdx.x == 40));
  out[3 * threadIdx.x + 2] = static_cast<unsigned>(__popc(out[3 * threadIdx.x]) * 100 +
                                                   __ffs(static_cast<int>(threadIdx.x)));
}

TEST(Emulator, VotesWithinWarps) {
  under_every_schedule([] {
    std::vector<unsigned> out(3 * 64);
    launch(1, 64, 0, &votes, out.data());
    EXPECT_EQ(out[0], 0x49249249u);
    EXPECT_EQ(out[3 * 63], 0x92492492u);
    EXPECT_EQ(out[1], 0u);
    EXPECT_EQ(out[3 * 32 + 1], 1u);
    EXPECT_EQ(out[3 * 12 + 2], 1100u + 3);
  });
}

/// Sums of the threads' numbers, round after round through the same shared memory.
template <bool kFirst, bool kSecond>
__global__ void rounds(unsigned* out) {
  SAFEOPS_SHARED_MEMORY(memory);
  unsigned* shared = reinterpret_cast<unsigned*>(memory);
  for (unsigned round = 0; round < 3; ++round) {
    shared[threadIdx.x] = threadIdx.x + round;
    if (kFirst) __syncthreads();
    unsigned sum = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) sum += shared[i];
    out[round * blockDim.x + threadIdx.x] = sum;
    if (kSecond) __syncthreads();
  }
}

std::vector<unsigned> run_rounds(void (*kernel)(unsigned*)) {
  std::vector<unsigned> out(3 * 128);
  launch(1, 128, 128 * sizeof(unsigned), kernel, out.data());
  return out;
}

TEST(Emulator, BarriersOrderSharedMemory) {
  under_every_schedule([] {
    const std::vector<unsigned> out = run_rounds(&rounds<true, true>);
    for (unsigned i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 8128 + 128 * (i / 128));
  });
}

__global__ void read_unset(unsigned* out) {
  SAFEOPS_SHARED_MEMORY(memory);
  out[blockIdx.x * blockDim.x + threadIdx.x] = memory[threadIdx.x];
}

TEST(Emulator, SharedMemoryIsUnsetForEveryBlock) {
  std::vector<unsigned> out(96);
  launch(3, 32, 32, &read_unset, out.data());
  EXPECT_EQ(out, std::vector<unsigned>(96, 0xFF));
}

__global__ void count_all(unsigned long long* words) {
  atomicAdd(&words[0], 2ull);
  atomicMin(&words[1], 1000ull - blockIdx.x * blockDim.x - threadIdx.x);
  if (atomicCAS(&words[2], 0ull, 1ull + threadIdx.x) == 0) atomicAdd(&words[3], 1ull);
  atomicExch(&words[4], 7ull);
}

TEST(Emulator, AtomicsCount) {
  under_every_schedule([] {
    unsigned long long words[5] = {0, 5000, 0, 0, 1};
    launch(4, 50, 0, &count_all, static_cast<unsigned long long*>(words));
    EXPECT_EQ(words[0], 400u);
    EXPECT_EQ(words[1], 801u);
    EXPECT_NE(words[2], 0u);
    EXPECT_EQ(words[3], 1u);
    EXPECT_EQ(words[4], 7u);
  });
}

/// The block that finishes last adds up what all left.
__global__ void last_block_adds(unsigned long long* parts, unsigned long long* finished,
                                unsigned long long* sum) {
  parts[blockIdx.x] = blockIdx.x + 1;
  __threadfence();
  if (atomicAdd(finished, 1ull) + 1 != gridDim.x) return;
  __threadfence();
  for (unsigned i = 0; i < gridDim.x; ++i) *sum += parts[i];
}

TEST(Emulator, FencesOrderBlocks) {
  under_every_schedule([] {
    std::vector<unsigned long long> parts(10);
    unsigned long long finished = 0, sum = 0;
    launch(10, 1, 0, &last_block_adds, parts.data(), &finished, &sum);
    EXPECT_EQ(sum, 55u);
  });
}

TEST(Emulator, LaunchesBetweenTheBlocksOfALaunch) {
  std::vector<unsigned long long> parts(10), seen;
  unsigned long long finished = 0, sum = 0;
  schedule().between_blocks = [&] {
    std::vector<unsigned> numbers(100, 0);
    launch(2, 50, 0, &number_threads, numbers.data());
    EXPECT_EQ(numbers[99], 1049u);
    seen.push_back(finished);
  };
  launch(10, 1, 0, &last_block_adds, parts.data(), &finished, &sum);
  schedule() = {};
  EXPECT_EQ(sum, 55u);
  EXPECT_EQ(seen, (std::vector<unsigned long long>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Emulator, CountsWhatItDoes) {
  const Statistics before = statistics();
  run_rounds(&rounds<true, true>);
  EXPECT_EQ(statistics().launches, before.launches + 1);
  EXPECT_EQ(statistics().blocks, before.blocks + 1);
  EXPECT_EQ(statistics().barriers, before.barriers + 6 * 128);
  EXPECT_GE(statistics().switches, before.switches + 6 * 127);
}

__global__ void barrier_in_branch() {
  if (threadIdx.x < 64) __syncthreads();
  __syncthreads();
}
__global__ void return_before_barrier() {
  if (threadIdx.x == 5) return;
  __syncthreads();
}
__global__ void shuffle_in_branch(int* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFF, 1, 1);
  } else {
    out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFF, 2, 1);
  }
}
__global__ void shuffle_after_return(int* out) {
  if (threadIdx.x == 31) return;
  out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFF, 1, 1);
}
__global__ void half_shuffles_half_waits(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFF, 1, 1);
  __syncthreads();
}
__global__ void shuffle(unsigned mask, int* out) { out[threadIdx.x] = __shfl_xor_sync(mask, 1, 1); }
__global__ void nothing() {}
__global__ void nothing_with_memory() {}

class EmulatorDeath : public ::testing::Test {
 protected:
  // After a fork ThreadSanitizer sees nothing of a process that had threads, or fibers.
  EmulatorDeath() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  int out_[64] = {};
};

TEST_F(EmulatorDeath, NamesBarriersThatDiverge) {
  EXPECT_DEATH(launch(1, 128, 0, &barrier_in_branch),
               "different __syncthreads(.|\n)*_test.cc:[0-9]+");
  EXPECT_DEATH(launch(1, 64, 0, &return_before_barrier),
               "have finished(.|\n)*at __syncthreads [^\n]*_test.cc:[0-9]+");
}

TEST_F(EmulatorDeath, NamesWarpOperationsThatDiverge) {
  EXPECT_DEATH(launch(1, 32, 0, &shuffle_in_branch, +out_), "different warp operations");
  EXPECT_DEATH(launch(1, 32, 0, &shuffle_after_return, +out_), "have finished");
  EXPECT_DEATH(launch(1, 32, 0, &half_shuffles_half_waits, +out_), "at different places");
}

TEST_F(EmulatorDeath, RefusesPartialWarpsAndMasks) {
  EXPECT_DEATH(launch(1, 32, 0, &shuffle, 0xFFFFu, +out_), "without the full mask");
  EXPECT_DEATH(launch(1, 40, 0, &shuffle, 0xFFFFFFFFu, +out_), "partial warp");
}

TEST_F(EmulatorDeath, RefusesLaunchesThatCudaRefuses) {
  EXPECT_DEATH(launch(0, 32, 0, &nothing), "no such number of blocks");
  EXPECT_DEATH(launch(1, 0, 0, &nothing), "no such number of threads");
  EXPECT_DEATH(launch(1, 1056, 0, &nothing), "_test.cc:[0-9]+: no such number of threads");
  EXPECT_DEATH(launch(1, 32, 50000, &nothing), "than cudaFuncSetAttribute granted");
  EXPECT_DEATH(launch(1, 32, 300000, &nothing), "than the device has");
  cudaLaunchConfig_t tall = configuration(1, 32);
  tall.gridDim.y = 65536;
  EXPECT_DEATH(cudaLaunchKernelEx(&tall, &nothing), "no such number of blocks");
  const int mine = 0;
  limits().only_stream = &mine;
  EXPECT_DEATH(launch(1, 32, 0, &nothing), "another stream");
  limits() = {};
}

TEST_F(EmulatorDeath, RefusesSharedMemoryThatWasNotAskedFor) {
  EXPECT_DEATH(launch(1, 32, 0, &read_unset, reinterpret_cast<unsigned*>(out_)),
               "without shared memory");
}

#if defined(SAFEOPS_EMULATOR_ADDRESS_SANITIZER)
__global__ void overrun(unsigned char* out) {
  SAFEOPS_SHARED_MEMORY(memory);
  memory[threadIdx.x + 1] = 0;
  out[threadIdx.x] = memory[threadIdx.x];
}

TEST_F(EmulatorDeath, SharedMemoryEndsWhereItWasAskedTo) {
  unsigned char out[32];
  EXPECT_DEATH(launch(1, 32, 32, &overrun, +out), "heap-buffer-overflow");
}
#endif

__global__ void add_plainly(unsigned* sum) {
  if (threadIdx.x == 0) *sum += 1;
}
/// A barrier orders the threads of a block, not those of two.
__global__ void add_after_barrier(unsigned* sum) {
  __syncthreads();
  if (threadIdx.x == 7) *sum += 1;
  __syncthreads();
}
__global__ void fence_too_late(unsigned* part, unsigned long long* finished, unsigned* out) {
  if (blockIdx.x == 0) *part = 1;
  const bool last = atomicAdd(finished, 1ull) + 1 == gridDim.x;
  __threadfence();
  if (last) *out = *part;
}
__global__ void read_without_fence(unsigned* part, unsigned long long* finished, unsigned* out) {
  if (blockIdx.x == 0) *part = 1;
  if (atomicAdd(finished, 1ull) + 1 == gridDim.x) *out = *part;
}

#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
TEST_F(EmulatorDeath, ThreadSanitizerSeesRacesWithinABlock) {
  EXPECT_DEATH(run_rounds(&rounds<false, true>), "data race");
  EXPECT_DEATH(run_rounds(&rounds<true, false>), "data race");
}

TEST_F(EmulatorDeath, ThreadSanitizerSeesRacesBetweenBlocks) {
  unsigned sum = 0, part = 0;
  unsigned long long finished = 0;
  EXPECT_DEATH(launch(2, 32, 0, &add_plainly, &sum), "data race");
  EXPECT_DEATH(launch(2, 32, 0, &add_after_barrier, &sum), "data race");
  EXPECT_DEATH(launch(2, 1, 0, &fence_too_late, &part, &finished, &sum), "data race");
  EXPECT_DEATH(launch(2, 1, 0, &read_without_fence, &part, &finished, &sum), "data race");
}
#else
TEST(Emulator, ShowsThatABarrierIsMissing) {
  under_every_schedule([] {
    const std::vector<unsigned> good = run_rounds(&rounds<true, true>);
    EXPECT_NE(run_rounds(&rounds<false, true>), good) << "the first";
    EXPECT_NE(run_rounds(&rounds<true, false>), good) << "the second";
  });
}

TEST(Emulator, RunsWhatThreadSanitizerWouldRefuse) {
  unsigned sum = 0, part = 0, out = 0;
  unsigned long long finished = 0;
  launch(2, 32, 0, &add_plainly, &sum);
  launch(2, 32, 0, &add_after_barrier, &sum);
  EXPECT_EQ(sum, 4u);
  launch(2, 1, 0, &read_without_fence, &part, &finished, &out);
  EXPECT_EQ(out, 1u);
  finished = 0;
  launch(2, 1, 0, &fence_too_late, &part, &finished, &out);
  EXPECT_EQ(out, 1u);
}
#endif

TEST(Emulator, GrantsSharedMemoryPerKernel) {
  EXPECT_EQ(cudaFuncSetAttribute(&nothing_with_memory, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 60000),
            cudaSuccess);
  launch(1, 32, 60000, &nothing_with_memory);
  limits().shared_memory = 64 << 10;
  EXPECT_EQ(cudaFuncSetAttribute(&nothing_with_memory, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 70000),
            cudaErrorInvalidValue);
  limits() = {};
}

}  // namespace
}  // namespace safeops::emulator
