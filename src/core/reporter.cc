#include "safeops/reporter.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/counter_slots.h"
#include "core/counters.h"

namespace safeops::diagnostics {
namespace {

// The state of the reporter whose sink this thread is in.
thread_local const void* telling = nullptr;

// Handlers of the program's signals run on threads that the program knows of.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &outer_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &outer_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t outer_;
};

Change change_of(const safeops_record& raw, std::uint64_t added) {
  Change change{{static_cast<Operator>(raw.op), static_cast<Condition>(raw.condition),
                 static_cast<Direction>(raw.direction), static_cast<Device>(raw.device), raw.count,
                 raw.first_row},
                added,
                {},
                raw.dtype};
  if (raw.dims > 0)
    change.shape.assign(raw.shape, raw.shape + std::min(raw.dims, kSafeopsShapeDims));
  return change;
}

}  // namespace

struct Reporter::State {
  State(Sink to_tell, std::chrono::milliseconds every) : sink(std::move(to_tell)), period(every) {
    for (int slot = 0; slot < kSlots; ++slot) {
      told[static_cast<std::size_t>(slot)] = counted_ever(slot);
    }
  }

  const Sink sink;
  const std::chrono::milliseconds period;
  const std::uint64_t born_after_forks = forks();
  std::array<std::uint64_t, kSlots> told;  // by the thread alone
  std::atomic<std::uint64_t> failures{0};
  std::atomic<bool> abandoned{false};  // the sink destroyed the reporter

  mutable std::mutex mutex;  // of what follows; never held around the sink
  std::condition_variable wake, answer;
  std::uint64_t requests = 0, answered = 0;
  bool stopping = false;
  bool complete = true;  // the last telling was, without an exception
  std::string last_failure;
  std::thread thread;

  bool is_in_child() const { return forks() != born_after_forks; }

  void run() {
    std::unique_lock lock(mutex);
    for (bool last = false; !last;) {
      wake.wait_for(lock, period, [this] { return stopping || requests != answered; });
      last = stopping;
      const std::uint64_t request = requests;
      lock.unlock();
      const bool all = tell();
      lock.lock();
      complete = all;
      answered = request;
      answer.notify_all();
    }
  }

  bool tell() {
    bool all = true;
    // The streams whose work counts are those of other threads.
    collect(/*waits=*/false);
    for (int slot = 0; slot < kSlots && !abandoned; ++slot) {
      std::uint64_t& known = told[static_cast<std::size_t>(slot)];
      if (counted_ever(slot) == known) continue;
      const Standing now = standing(slot);
      if (tell(change_of(now.record, now.ever - known))) {
        known = now.ever;
      } else {
        all = false;
      }
    }
    return all;
  }

  bool tell(const Change& change) {
    std::string message;
    telling = this;
    try {
      sink(change);
      telling = nullptr;
      return true;
    } catch (const std::exception& error) {
      message = error.what();
    } catch (...) {
      message = "an exception that is no std::exception";
    }
    telling = nullptr;
    failures.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock(mutex);
    last_failure = std::move(message);
    return false;
  }
};

Reporter::Reporter(Sink sink, std::chrono::milliseconds period) {
  if (!sink) {
    throw std::invalid_argument(
        "safeops::diagnostics::Reporter: sink must be callable, got an empty function; pass a "
        "function of a const Change&");
  }
  if (period <= period.zero()) {
    throw std::invalid_argument("safeops::diagnostics::Reporter: period must be positive, got " +
                                std::to_string(period.count()) + " ms; leave it out for 100 ms");
  }
  // A wait until past the end of the clock would not wait at all.
  period = std::min<std::chrono::milliseconds>(period, std::chrono::hours(24));
  collect(/*waits=*/true);
  state_ = std::make_shared<State>(std::move(sink), period);
  const SignalsBlocked blocked;
  state_->thread = std::thread([state = state_] { state->run(); });
}

Reporter::~Reporter() {
  // The thread is not here to be joined, and may have held the mutex. Its own reference to the
  // state is never given back, so nothing of it is destroyed.
  if (state_->is_in_child()) return;
  if (telling != state_.get()) collect(/*waits=*/true);
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_one();
  if (telling == state_.get()) {
    state_->abandoned = true;
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

bool Reporter::flush() {
  State& state = *state_;
  if (state.is_in_child() || telling == &state) return false;
  collect(/*waits=*/true);
  std::unique_lock lock(state.mutex);
  const std::uint64_t request = ++state.requests;
  state.wake.notify_one();
  // To wait here could close a circle of sinks that wait for each other.
  if (telling != nullptr) return false;
  state.answer.wait(lock, [&] { return state.answered >= request; });
  return state.complete;
}

std::uint64_t Reporter::failures() const {
  return state_->failures.load(std::memory_order_relaxed);
}

std::string Reporter::last_failure() const {
  if (state_->is_in_child()) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->last_failure;
}

}  // namespace safeops::diagnostics
