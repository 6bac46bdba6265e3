// How kernels report hits: by atomics on the one Hits of a launch, made only where something hit.
// Sums and minima commute, so what is left does not depend on the order of the threads.
#pragma once

#include "core/cuda_launch.h"
#include "core/target.h"

SAFEOPS_BEGIN_LANES

// Where a kernel reports to; passed by value.
struct HitSink {
  HitSink() = default;
  explicit HitSink(const CudaLaunch& launch) : hits(launch.hits), alarm(launch.alarm) {}

  Hits* hits = nullptr;
  CudaAlarm alarm;
};

// The types that atomics know are not those of Hit, but have their size.
static_assert(sizeof(Hit::count) == sizeof(unsigned long long) &&
              sizeof(Hit::first) == sizeof(unsigned long long));
template <class Word>
SAFEOPS_INLINE unsigned long long* atomic_word(Word& word) {
  return reinterpret_cast<unsigned long long*>(&word);
}

// `count` rows, the lowest of which is `first`.
SAFEOPS_INLINE void add(Hit& hit, std::uint64_t count, std::uint64_t first) {
  if (count == 0) return;
  // Whoever takes the count meanwhile, and the lowest row after it, has that row, too.
  atomicMin(atomic_word(hit.first), static_cast<unsigned long long>(first));
  __threadfence();
  atomicAdd(atomic_word(hit.count), static_cast<unsigned long long>(count));
}

// Leaves `row` for the host if no row did so since the alarm was set. The serial is written last: a
// host that sees it sees the row.
SAFEOPS_INLINE void ring(const CudaAlarm& alarm, std::uint64_t row) {
  if (alarm.claimed == nullptr) return;
  if (atomicCAS(alarm.claimed, 0ull, static_cast<unsigned long long>(alarm.serial)) != 0) return;
  volatile CudaRaised* const raised = alarm.raised;
  raised->row = row;
  __threadfence_system();
  raised->serial = alarm.serial;
  __threadfence_system();
}

SAFEOPS_INLINE void report(const HitSink& sink, Condition condition, std::uint64_t count,
                           std::uint64_t first) {
  add(sink.hits->of[static_cast<int>(condition)], count, first);
}

// Rows at which policy `raise` must throw; they are counted whatever the policy, as on the CPU.
SAFEOPS_INLINE void report_raising(const HitSink& sink, std::uint64_t count, std::uint64_t first) {
  if (count == 0) return;
  add(sink.hits->raising, count, first);
  // Whoever sets the alarm again before it takes the count misses no call: it finds the alarm rung,
  // or the count.
  __threadfence();
  ring(sink.alarm, first);
}

SAFEOPS_END_LANES
