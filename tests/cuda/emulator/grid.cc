// One launch: what CUDA demands of it, and its blocks one after another.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "cuda_runtime.h"
#include "emulator/block.h"
#include "emulator/fiber.h"

namespace safeops::emulator {
namespace {

constexpr std::uint64_t kMaxBlocks[3] = {0x7FFFFFFF, 0xFFFF, 0xFFFF};

unsigned char* block_memory = nullptr;

[[noreturn]] void refuse(const Grid& grid, const char* what) {
  std::fprintf(stderr,
               "emulator: %s:%d: %s: %u x %u x %u blocks of %u x %u x %u threads with %zu bytes of "
               "shared memory\n",
               grid.site.file, grid.site.line, what, grid.blocks[0], grid.blocks[1], grid.blocks[2],
               grid.threads[0], grid.threads[1], grid.threads[2], grid.shared_memory);
  std::fflush(nullptr);
  std::abort();
}

void check(const Grid& grid) {
  for (int d = 0; d < 3; ++d) {
    if (grid.blocks[d] == 0 || grid.blocks[d] > kMaxBlocks[d])
      refuse(grid, "no such number of blocks");
  }
  // CUDA has blocks of two and three dims; the kernels here do without.
  if (grid.threads[1] != 1 || grid.threads[2] != 1 || grid.threads[0] == 0 ||
      grid.threads[0] > kMaxThreads)
    refuse(grid, "no such number of threads");
  if (grid.shared_memory > limits().shared_memory)
    refuse(grid, "more shared memory than the device has");
  if (grid.shared_memory > grid.granted_shared_memory)
    refuse(grid, "more shared memory than cudaFuncSetAttribute granted");
  if (limits().only_stream != nullptr && grid.stream != limits().only_stream)
    refuse(grid, "a launch on another stream");
}

/// Exactly as large as asked for, so that AddressSanitizer sees where it ends, and of a mapping of
/// its own for ThreadSanitizer, which forgets then what earlier blocks did there.
class BlockMemory {
 public:
  explicit BlockMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for a block");
#else
    void* memory = std::malloc(bytes);
    if (memory == nullptr) fail("no memory for a block");
#endif
    block_memory = static_cast<unsigned char*>(memory);
    // NaN in every format.
    for (std::size_t i = 0; i < bytes; ++i) block_memory[i] = 0xFF;
  }
  ~BlockMemory() {
    if (bytes_ == 0) return;
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
    munmap(block_memory, bytes_);
#else
    std::free(block_memory);
#endif
    block_memory = nullptr;
  }
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

 private:
  std::size_t bytes_;
};

/// Walks all blocks from a first one in equal steps.
struct BlockOrder {
  std::uint64_t total, first = 0, step = 1;

  explicit BlockOrder(std::uint64_t blocks) : total(blocks) {
    if (schedule().order == Order::descending) {
      first = step = total - 1;
    } else if (schedule().order == Order::random) {
      first = random_below(total);
      step = random_below(total);
    }
    while (std::gcd(step, total) != 1) ++step;
  }
  // No product overflows: steps are below 2^63 only, but grids that are run are far smaller.
  std::uint64_t at(std::uint64_t i) const { return (first + i * step) % total; }
};

}  // namespace

Schedule& schedule() {
  static Schedule current;
  return current;
}
Limits& limits() {
  static Limits current;
  return current;
}
Statistics& counted() {
  static Statistics all;
  return all;
}
const Statistics& statistics() { return counted(); }

unsigned char* shared_memory() {
  if (block_memory == nullptr) fail("a kernel launched without shared memory uses some");
  return block_memory;
}

void run_grid(const Grid& grid, void (*kernel)(void*), void* arguments) {
  check(grid);
  ++counted().launches;
  seed_randomness();
  const dim3 blocks(grid.blocks[0], grid.blocks[1], grid.blocks[2]);
  const BlockOrder order(std::uint64_t{blocks.x} * blocks.y * blocks.z);
  // Taken away, so that a launch in between is one undivided.
  std::function<void()> between_blocks;
  std::swap(between_blocks, schedule().between_blocks);
  for (std::uint64_t i = 0; i < order.total; ++i) {
    if (i != 0 && between_blocks) between_blocks();
    const std::uint64_t block = order.at(i);
    gridDim = blocks;
    blockDim = dim3(grid.threads[0], 1, 1);
    blockIdx = {static_cast<unsigned>(block % blocks.x),
                static_cast<unsigned>(block / blocks.x % blocks.y),
                static_cast<unsigned>(block / blocks.x / blocks.y)};
    ++counted().blocks;
    prepare_threads(grid.threads[0], kernel, arguments);
    const BlockMemory memory(grid.shared_memory);
    run_block();
  }
  std::swap(between_blocks, schedule().between_blocks);
  join_threads();
}

}  // namespace safeops::emulator
