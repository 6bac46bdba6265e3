#pragma once

#include <cstddef>

namespace safeops {

/// Runs a body over [0, tasks) in any order, on any number of threads, each task once. The body
/// must not throw.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual void run(std::size_t tasks,
                   void (*body)(void* context, std::size_t begin, std::size_t end),
                   void* context) = 0;
};

/// Everything on the calling thread.
class SerialExecutor final : public Executor {
 public:
  void run(std::size_t tasks, void (*body)(void*, std::size_t, std::size_t),
           void* context) override {
    if (tasks != 0) body(context, 0, tasks);
  }
};

}  // namespace safeops
