// Runs CUDA kernels on the processor: kernel sources are compiled as C++ with this folder before
// the toolkit on the include path. For tests to choose the schedule, and for the shim beside it to
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace safeops::emulator {

enum class Order : unsigned char { ascending, descending, random };
inline constexpr Order kOrders[] = {Order::ascending, Order::descending, Order::random};
inline constexpr const char* kOrderNames[] = {"ascending", "descending", "random"};

/// The order in which blocks, warps and lanes come to run. Nothing of it may show in a result.
struct Schedule {
  Order order = Order::ascending;
  std::uint64_t seed = 1;
  std::function<void()> between_blocks;  ///< what the device does meanwhile; may launch
};
Schedule& schedule();

/// What the device grants; by default an H100's.
struct Limits {
  std::size_t shared_memory = 227 << 10;  ///< bytes of a block, once asked for
  const void* only_stream = nullptr;      ///< launches on another are faults; null: on any
};
Limits& limits();

/// Everything since the process began.
struct Statistics {
  std::uint64_t launches = 0, blocks = 0, switches = 0, barriers = 0, warp_operations = 0;
};
const Statistics& statistics();

/// A line of the kernel, for failure messages.
struct Site {
  const char* file = nullptr;
  int line = 0;
};

/// A launch as the runtime gets it. A violation of what CUDA demands ends the process.
struct Grid {
  unsigned blocks[3];
  unsigned threads[3];
  std::size_t shared_memory;
  const void* stream;
  std::size_t granted_shared_memory;  ///< by cudaFuncSetAttribute, or the default
  Site site;
};
void run_grid(const Grid& grid, void (*kernel)(void* arguments), void* arguments);

inline constexpr unsigned kFullMask = 0xFFFFFFFF;
inline constexpr unsigned kWarp = 32, kMaxThreads = 1024;

/// Dynamic shared memory of the running block: exactly as much as was asked for, all ones.
unsigned char* shared_memory();
void block_barrier(Site site);
/// Gives `word` for this lane and returns those of all lanes; valid until the next warp operation.
const std::uint64_t* exchange(unsigned mask, std::uint64_t word, Site site);
unsigned lane();
/// For ThreadSanitizer: an atomic operation on `word` was made, a fence was reached.
/// What a thread did is ordered before what another does if the one fenced and then made the
/// operation, and the other made one on the same word later and then fenced.
void atomic_operation(void* word);
void memory_fence();
[[noreturn]] void fail(const char* what);

}  // namespace safeops::emulator
