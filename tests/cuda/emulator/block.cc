// One block: a fiber per CUDA thread, barriers and warp operations at which they meet.
#include "emulator/block.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cuda_runtime.h"
#include "emulator/fiber.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace safeops::emulator {
namespace {

constexpr unsigned kMaxWarps = kMaxThreads / kWarp;

enum class State : unsigned char { running, at_warp_operation, at_barrier, finished };
constexpr const char* kStateNames[] = {"running", "at a warp operation", "at __syncthreads",
                                       "finished"};

// One fiber orders what it does, which the same thread of two blocks does not: blocks take turns at
// two sets, for ThreadSanitizer to see the races between them.
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
constexpr unsigned kFibers = 2;
#else
constexpr unsigned kFibers = 1;
#endif

constexpr unsigned kMaxTouched = 8;

struct Thread {
  Fiber fiber[kFibers];
  State state = State::finished;
  bool odd_exchange = false;
  Site site;
  bool fenced = false;         ///< since the block began
  void* touched[kMaxTouched];  ///< words of atomic operations since the last fence
  unsigned touched_count = 0;
};

/// Where threads wait for one another. Two generations, for those that arrive at the next while
/// others still depart from the last.
struct Meeting {
  Site site;
  unsigned arrived = 0;
  unsigned generation = 0;
  char* order[2] = {};  ///< addresses by which ThreadSanitizer knows the generations
};

struct Warp {
  Meeting meeting;
  unsigned movable = 0;          ///< lanes that wait for nothing
  std::uint64_t word[2][kWarp];  ///< of two exchanges in turn: one is read while the next is filled
};

Thread threads[kMaxThreads];
Warp warps[kMaxWarps];
Meeting barrier;
unsigned thread_count = 0, warp_count = 0, unfinished = 0, current = 0, fiber_set = 0;
void (*kernel_body)(void*) = nullptr;
void* kernel_arguments = nullptr;
char start_of_block, end_of_thread;
unsigned warp_priority[kMaxWarps], lane_priority[kWarp];
std::uint64_t random_state = 1;

void print_states() {
  constexpr int kMost = 8;
  int shown = 0;
  for (unsigned i = 0; i < thread_count && shown < kMost; ++i) {
    const Thread &thread = threads[i], &before = threads[i == 0 ? 0 : i - 1];
    if (i != 0 && thread.state == before.state && thread.site.line == before.site.line) continue;
    ++shown;
    std::fprintf(stderr, "  from thread %u: %s", i, kStateNames[static_cast<int>(thread.state)]);
    if (thread.site.file != nullptr)
      std::fprintf(stderr, " %s:%d", thread.site.file, thread.site.line);
    std::fputc('\n', stderr);
  }
}

/// Lets everybody who waits at the meeting go on.
void open(Meeting& meeting, State waiting, unsigned begin, unsigned end) {
  meeting.arrived = 0;
  ++meeting.generation;
  for (unsigned i = begin; i < end; ++i) {
    if (threads[i].state != waiting) continue;
    threads[i].state = State::running;
    ++warps[i / kWarp].movable;
  }
}

void wait(State state) {
  threads[current].state = state;
  --warps[current / kWarp].movable;
  Fiber::leave();
}

void meet(Meeting& meeting, State waiting, unsigned begin, unsigned end, Site site) {
  const bool alone = meeting.arrived == 0;
  threads[current].site = site;
  if (!alone && (meeting.site.line != site.line || meeting.site.file != site.file)) {
    threads[current].state = waiting;
    fail(waiting == State::at_barrier ? "threads of a block meet at different __syncthreads"
                                      : "lanes of a warp meet at different warp operations");
  }
  meeting.site = site;
  char* order = meeting.order[meeting.generation % 2];
  Fiber::release(order);
  if (++meeting.arrived == end - begin) {
    open(meeting, waiting, begin, end);
  } else {
    wait(waiting);
  }
  Fiber::acquire(order);
}

/// The life of a thread in one block.
void live() {
  // From the scheduler only: threads of different blocks stay unordered among themselves.
  Fiber::acquire(&start_of_block);
  kernel_body(kernel_arguments);
  Fiber::release(&end_of_thread);
  threads[current].site = {};
  --unfinished;
  wait(State::finished);
}

void shuffle(unsigned* values, unsigned count) {
  for (unsigned i = count; i > 1; --i) std::swap(values[i - 1], values[random_below(i)]);
}

void draw_priorities() {
  if (schedule().order != Order::random) return;
  shuffle(warp_priority, warp_count);
  shuffle(lane_priority, kWarp);
}

void set_priorities() {
  const bool descending = schedule().order == Order::descending;
  for (unsigned i = 0; i < warp_count; ++i) warp_priority[i] = descending ? warp_count - 1 - i : i;
  for (unsigned i = 0; i < kWarp; ++i) lane_priority[i] = descending ? kWarp - 1 - i : i;
  draw_priorities();
}

void run_thread(unsigned index) {
  current = index;
  threadIdx.x = index;
  ++counted().switches;
  threads[index].fiber[fiber_set].enter();
}

/// Each lane that can goes on to where it must wait.
void run_warp(unsigned warp) {
  for (const unsigned lane : lane_priority) {
    const unsigned index = warp * kWarp + lane;
    if (index < thread_count && threads[index].state == State::running) run_thread(index);
  }
}

Warp* first_movable() {
  for (unsigned i = 0; i < warp_count; ++i) {
    if (warps[warp_priority[i]].movable != 0) return &warps[warp_priority[i]];
  }
  return nullptr;
}

/// Addresses for one block. Those of another would order what its threads did before what this
/// block's do; that memory was freed makes ThreadSanitizer forget them.
class MeetingOrder {
 public:
  MeetingOrder() : memory_(static_cast<char*>(std::malloc(kEach * 2 * (warp_count + 1)))) {
    if (memory_ == nullptr) fail("no memory for a block");
    char* next = memory_;
    for (unsigned i = 0; i <= warp_count; ++i) {
      Meeting& meeting = i == 0 ? barrier : warps[i - 1].meeting;
      for (char*& order : meeting.order) {
        order = next;
        next += kEach;
      }
    }
  }
  ~MeetingOrder() { std::free(memory_); }
  MeetingOrder(const MeetingOrder&) = delete;
  MeetingOrder& operator=(const MeetingOrder&) = delete;

 private:
  static constexpr std::size_t kEach = 8;
  char* memory_;
};

void reset() {
  barrier.arrived = 0;
  unfinished = thread_count;
  for (unsigned i = 0; i < warp_count; ++i) {
    warps[i].meeting.arrived = 0;
    warps[i].movable = std::min(kWarp, thread_count - i * kWarp);
  }
  for (unsigned i = 0; i < thread_count; ++i) {
    threads[i].state = State::running;
    threads[i].odd_exchange = false;
    threads[i].site = {};
    threads[i].fenced = false;
    threads[i].touched_count = 0;
  }
}

}  // namespace

void fail(const char* what) {
  std::fprintf(stderr, "emulator: %s, in block (%u, %u, %u)\n", what, blockIdx.x, blockIdx.y,
               blockIdx.z);
  print_states();
  std::fflush(nullptr);
  std::abort();
}

void seed_randomness() { random_state = schedule().seed * 0x9E3779B97F4A7C15u + 1; }

std::size_t random_below(std::size_t bound) {
  // Marsaglia's xorshift64.
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (random_state >> 20) % bound;
}

void prepare_threads(unsigned count, void (*kernel)(void*), void* arguments) {
  thread_count = count;
  warp_count = (count + kWarp - 1) / kWarp;
  kernel_body = kernel;
  kernel_arguments = arguments;
  for (unsigned i = 0; i < count; ++i) {
    for (Fiber& fiber : threads[i].fiber) {
      if (!fiber.started()) fiber.start(&live);
    }
  }
}

// Unfair on purpose: one warp runs as far ahead as barriers let it, or a barrier that is missing
// would not be missed. Whoever is ahead changes at each barrier.
void run_block() {
  const MeetingOrder order;
  fiber_set = (fiber_set + 1) % kFibers;
  reset();
  set_priorities();
  Fiber::release(&start_of_block);
  unsigned generation = barrier.generation;
  while (unfinished != 0) {
    Warp* warp = first_movable();
    if (warp == nullptr) {
      fail(unfinished < thread_count ? "threads wait for others that have finished"
                                     : "threads wait for one another at different places");
    }
    run_warp(static_cast<unsigned>(warp - warps));
    if (barrier.generation == generation) continue;
    generation = barrier.generation;
    draw_priorities();
  }
}

void join_threads() { Fiber::acquire(&end_of_thread); }

void block_barrier(Site site) {
  ++counted().barriers;
  meet(barrier, State::at_barrier, 0, thread_count, site);
}

const std::uint64_t* exchange(unsigned mask, std::uint64_t word, Site site) {
  Thread& self = threads[current];
  const unsigned warp = current / kWarp, begin = warp * kWarp, end = begin + kWarp;
  self.site = site;
  if (mask != kFullMask) fail("a warp operation without the full mask");
  if (end > thread_count) fail("a warp operation in a partial warp");
  ++counted().warp_operations;
  std::uint64_t* words = warps[warp].word[self.odd_exchange];
  self.odd_exchange = !self.odd_exchange;
  words[current % kWarp] = word;
  meet(warps[warp].meeting, State::at_warp_operation, begin, end, site);
  return words;
}

unsigned lane() { return current % kWarp; }

void atomic_operation(void* word) {
  Thread& self = threads[current];
  if (self.fenced) Fiber::release(word);
  if (self.touched_count == kMaxTouched) self.touched_count = 0;
  self.touched[self.touched_count++] = word;
}

void memory_fence() {
  Thread& self = threads[current];
  while (self.touched_count != 0) Fiber::acquire(self.touched[--self.touched_count]);
  self.fenced = true;
}

}  // namespace safeops::emulator
