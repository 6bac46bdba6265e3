// The device that the emulator stands for, as a caller of kernels sees one.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/cuda_launch.h"
#include "emulator/emulator.h"

namespace safeops::cases {

/// ThreadSanitizer slows kernels down a hundredfold: it gets the same calls on fewer sizes.
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
inline constexpr bool kThorough = false;
#else
inline constexpr bool kThorough = true;
#endif

/// Memory for kernels: exactly as long as asked for and all ones, like memory that others used.
class Scratch {
 public:
  /// Gives the same memory once more, as it was left: what a replayed graph finds.
  void rewind() { given_ = 0; }

  static void* allocate(void* self, std::size_t bytes) {
    return static_cast<Scratch*>(self)->add(bytes);
  }

 private:
  static constexpr std::align_val_t kAlignment{256};
  struct Free {
    void operator()(void* memory) const { ::operator delete(memory, kAlignment); }
  };

  void* add(std::size_t bytes) {
    if (given_ == blocks_.size()) {
      blocks_.emplace_back(::operator new(bytes, kAlignment));
      std::memset(blocks_.back().get(), 0xFF, bytes);
    }
    return blocks_[given_++].get();
  }

  std::vector<std::unique_ptr<void, Free>> blocks_;
  std::size_t given_ = 0;
};

struct Device {
  int multiprocessors = 132;
  std::size_t shared_memory = 227 << 10;
  std::uint64_t serial = 0;  ///< of a call that rings an alarm; 0: nobody listens
  CudaRaised raised = {};    ///< what the alarm of the last call left
  emulator::Schedule schedule;
  Scratch* scratch = nullptr;  ///< null: memory of their own for each call
  Hits* hits = nullptr;        ///< null: of their own for each call

  /// Calls run(launch), which returns a status, and adds what it met to `hits`.
  template <class Run>
  void call(const Run& run, Hits& sum) {
    const int stream = 0;
    Hits met;
    Scratch own;
    unsigned long long claimed = 0;
    CudaLaunch launch;
    launch.stream = const_cast<int*>(&stream);
    launch.multiprocessors = multiprocessors;
    launch.shared_memory = shared_memory;
    launch.hits = this->hits != nullptr ? this->hits : &met;
    raised = {};
    if (serial != 0) launch.alarm = {&claimed, &raised, serial};
    launch.allocate = &Scratch::allocate;
    launch.allocator = scratch != nullptr ? scratch : &own;
    if (scratch != nullptr) scratch->rewind();
    emulator::limits() = {shared_memory, &stream};
    emulator::schedule() = schedule;
    EXPECT_EQ(run(launch), 0) << "the status of a launch";
    emulator::limits() = {};
    emulator::schedule() = {};
    EXPECT_EQ(claimed, raised.serial);
    sum.merge(met);
  }
};

/// Every order of blocks, warps and lanes, with two random ones.
inline std::vector<emulator::Schedule> schedules() {
  using emulator::Order;
  return {{Order::ascending, 1, {}},
          {Order::descending, 1, {}},
          {Order::random, 1, {}},
          {Order::random, 2, {}}};
}

}  // namespace safeops::cases
