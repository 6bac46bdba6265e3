#include "emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// The build says which sanitizer sees the kernels. This file itself is compiled without
// ThreadSanitizer, for which its bookkeeping would be races.
#if defined(SAFEOPS_EMULATOR_ADDRESS_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace safeops::emulator {
namespace {

// Frames grow under sanitizers.
constexpr std::size_t kStackBytes = 256 << 10;

struct Scheduler {
#if defined(SAFEOPS_EMULATOR_UCONTEXT)
  ucontext_t context;
#else
  void* stack_pointer = nullptr;
#endif
  void* sanitizer_fiber = nullptr;
  void* fake_stack = nullptr;
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
};
Scheduler scheduler;
Fiber* running = nullptr;
void (*body_of_fibers)() = nullptr;

#if !defined(SAFEOPS_EMULATOR_UCONTEXT)
// Saves what the System V ABI lets a callee expect: six registers, the stack, and the control words
// of SSE and x87. swapcontext takes ten times as long, for it calls the kernel.
extern "C" void safeops_emulator_switch(void** save_stack_pointer, void* load_stack_pointer);
asm(R"(
.text
.globl safeops_emulator_switch
.type safeops_emulator_switch, @function
safeops_emulator_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  sub $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  add $8, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size safeops_emulator_switch, . - safeops_emulator_switch
)");

std::uint64_t float_control_words() {
  std::uint32_t sse = 0;
  std::uint16_t x87 = 0;
  asm("stmxcsr %0\n\tfnstcw %1" : "=m"(sse), "=m"(x87));
  return sse | std::uint64_t{x87} << 32;
}
#endif

unsigned char* map_stack() {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("emulator: no memory for a stack");
    std::abort();
  }
  // The lowest page is not for use: a stack that grows too deep must not reach another.
  mprotect(memory, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
  return static_cast<unsigned char*>(memory);
}

}  // namespace

void Fiber::release([[maybe_unused]] void* meeting) {
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
  __tsan_release(meeting);
#endif
}

void Fiber::acquire([[maybe_unused]] void* meeting) {
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
  __tsan_acquire(meeting);
#endif
}

void Fiber::start(void (*body)()) {
  body_of_fibers = body;
  stack_ = map_stack();
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
  scheduler.sanitizer_fiber = __tsan_get_current_fiber();
  sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
  prepare_stack();
}

void Fiber::prepare_stack() {
#if defined(SAFEOPS_EMULATOR_UCONTEXT)
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::run, 0);
#else
  // As the switch expects it: the control words, six registers, where to return to; and above that
  // the return address of run(), which never returns, where the ABI wants it to be.
  constexpr std::size_t kSaved = 1 + 6 + 1 + 1;
  auto* top = reinterpret_cast<std::uint64_t*>(stack_ + kStackBytes) - kSaved;
  for (std::size_t i = 0; i < kSaved; ++i) top[i] = 0;
  top[0] = float_control_words();
  top[7] = reinterpret_cast<std::uint64_t>(&Fiber::run);
  stack_pointer_ = top;
#endif
}

void Fiber::run() {
#if defined(SAFEOPS_EMULATOR_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack, &scheduler.stack_bytes);
#endif
  for (;;) body_of_fibers();
}

void Fiber::enter() {
  running = this;
#if defined(SAFEOPS_EMULATOR_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(&scheduler.fake_stack, stack_, kStackBytes);
#endif
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
  __tsan_switch_to_fiber(sanitizer_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(SAFEOPS_EMULATOR_UCONTEXT)
  swapcontext(&scheduler.context, &context_);
#else
  safeops_emulator_switch(&scheduler.stack_pointer, stack_pointer_);
#endif
#if defined(SAFEOPS_EMULATOR_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(scheduler.fake_stack, nullptr, nullptr);
#endif
}

void Fiber::leave() {
  Fiber& self = *running;
#if defined(SAFEOPS_EMULATOR_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(&self.fake_stack_, scheduler.stack, scheduler.stack_bytes);
#endif
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
  __tsan_switch_to_fiber(scheduler.sanitizer_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(SAFEOPS_EMULATOR_UCONTEXT)
  swapcontext(&self.context_, &scheduler.context);
#else
  safeops_emulator_switch(&self.stack_pointer_, scheduler.stack_pointer);
#endif
#if defined(SAFEOPS_EMULATOR_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(self.fake_stack_, &scheduler.stack, &scheduler.stack_bytes);
#endif
}

}  // namespace safeops::emulator
