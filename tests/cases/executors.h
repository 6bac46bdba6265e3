#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "core/executor.h"

namespace safeops::cases {

/// Threads that take chunks of a fixed size as they come.
class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(std::size_t threads, std::size_t chunk) : threads_(threads), chunk_(chunk) {}

  void run(std::size_t tasks, void (*body)(void*, std::size_t, std::size_t),
           void* context) override {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t begin; (begin = next.fetch_add(chunk_)) < tasks;) {
        body(context, begin, std::min(tasks, begin + chunk_));
      }
    };
    std::vector<std::thread> pool;
    for (std::size_t i = 1; i < threads_; ++i) pool.emplace_back(work);
    work();
    for (std::thread& thread : pool) thread.join();
  }

 private:
  std::size_t threads_;
  std::size_t chunk_;
};

/// Chunks from the last to the first on the calling thread: an order that no loop over ascending
/// rows survives by luck.
class ReversedExecutor final : public Executor {
 public:
  explicit ReversedExecutor(std::size_t chunk) : chunk_(chunk) {}

  void run(std::size_t tasks, void (*body)(void*, std::size_t, std::size_t),
           void* context) override {
    for (std::size_t chunks = (tasks + chunk_ - 1) / chunk_; chunks-- > 0;) {
      body(context, chunks * chunk_, std::min(tasks, (chunks + 1) * chunk_));
    }
  }

 private:
  std::size_t chunk_;
};

}  // namespace safeops::cases
