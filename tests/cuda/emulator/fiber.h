#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(SAFEOPS_EMULATOR_UCONTEXT)
#define SAFEOPS_EMULATOR_UCONTEXT
#endif
#if defined(SAFEOPS_EMULATOR_UCONTEXT)
#include <ucontext.h>
#endif

namespace safeops::emulator {

/// A stack that a CUDA thread runs on. The scheduler enters fibers and they leave to it: there is
/// one operating-system thread. Sanitizers are told of every switch. A fiber lives as long as the
/// process, since AddressSanitizer and ThreadSanitizer take long to make one.
class Fiber {
 public:
  /// Runs `body` whenever it is entered, again and again: `body` calls leave().
  void start(void (*body)());
  bool started() const { return stack_ != nullptr; }

  /// From the scheduler: runs until the fiber leaves.
  void enter();
  /// From the running fiber: back to the scheduler.
  static void leave();

  /// For ThreadSanitizer, to which a switch orders nothing: what a fiber did before it released is
  /// seen by whoever acquires afterwards.
  static void release(void* meeting);
  static void acquire(void* meeting);

 private:
#if defined(SAFEOPS_EMULATOR_UCONTEXT)
  ucontext_t context_;
#else
  void* stack_pointer_ = nullptr;
#endif
  unsigned char* stack_ = nullptr;
  [[maybe_unused]] void* sanitizer_fiber_ = nullptr;
  [[maybe_unused]] void* fake_stack_ = nullptr;

  static void run();
  void prepare_stack();
};

}  // namespace safeops::emulator
