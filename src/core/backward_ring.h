#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "safeops/diagnostics.h"

namespace safeops {

/// A bounded queue of backward hits for many writers and readers (D. Vyukov's bounded MPMC queue:
/// every cell carries the turn at which it may be written or read). A push into a full ring is
/// dropped: the op path never waits.
class BackwardRing {
 public:
  BackwardRing() {
    for (std::uint64_t i = 0; i < kCells; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  void push(const safeops_hit& hit) {
    std::uint64_t at = head_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at % kCells];
      const auto ahead = static_cast<std::int64_t>(cell.turn.load(std::memory_order_acquire) - at);
      if (ahead < 0) return;
      if (ahead == 0 && head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        cell.hit = hit;
        cell.turn.store(at + 1, std::memory_order_release);
        return;
      }
      if (ahead != 0) at = head_.load(std::memory_order_relaxed);
    }
  }

  std::uint64_t take(safeops_hit* hits, std::uint64_t capacity) {
    std::uint64_t taken = 0;
    while (taken < capacity && pop(hits[taken])) ++taken;
    return taken;
  }

 private:
  static constexpr std::uint64_t kCells = 4096;
  struct Cell {
    std::atomic<std::uint64_t> turn;
    safeops_hit hit;
  };

  bool pop(safeops_hit& hit) {
    std::uint64_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at % kCells];
      const auto ahead =
          static_cast<std::int64_t>(cell.turn.load(std::memory_order_acquire) - (at + 1));
      if (ahead < 0) return false;
      if (ahead == 0 && tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        hit = cell.hit;
        cell.turn.store(at + kCells, std::memory_order_release);
        return true;
      }
      if (ahead != 0) at = tail_.load(std::memory_order_relaxed);
    }
  }

  Cell cells_[kCells];
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

/// Static storage, so that the op path allocates nothing; trivially destructible, so that a hit may
/// arrive from a thread that outlives static objects.
inline BackwardRing& backward_ring() {
  static BackwardRing ring;
  return ring;
}
static_assert(std::is_trivially_destructible_v<BackwardRing>);

}  // namespace safeops
