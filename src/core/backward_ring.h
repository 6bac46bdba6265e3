#pragma once

#include <algorithm>
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
  /// Backward hits that one pass of a deep model may leave before a reader comes: the reader runs
  /// with the next eager call. 2.3 MB, of which memory is taken for cells that were used.
  static constexpr std::uint64_t kCells = 16384;

  void push(const safeops_hit& hit) {
    std::uint64_t at = head_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at % kCells];
      const std::int64_t ahead = cell.ahead_of(lap(at));
      if (ahead < 0) return;
      if (ahead == 0 && head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        cell.hit = hit;
        cell.turn.store(lap(at) + 1, std::memory_order_release);
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

  /// Empties the ring and frees cells that were claimed and never filled. For one thread alone.
  void clear() {
    const std::uint64_t used = std::min(head_.load(std::memory_order_relaxed), kCells);
    for (std::uint64_t i = 0; i < used; ++i) cells_[i].turn.store(0, std::memory_order_relaxed);
    head_.store(0, std::memory_order_relaxed);
    tail_.store(0, std::memory_order_relaxed);
  }

 private:
  struct Cell {
    // Even: may be written in the lap of half this number. Odd: may be read.
    std::atomic<std::uint64_t> turn{0};
    safeops_hit hit = {};

    std::int64_t ahead_of(std::uint64_t wanted) const {
      return static_cast<std::int64_t>(turn.load(std::memory_order_acquire) - wanted);
    }
  };

  // Twice the number of times that the position went around. Counted in laps and not in positions,
  // a cell starts at 0: the ring needs no constructor to run before the first hit.
  static std::uint64_t lap(std::uint64_t at) { return at / kCells * 2; }

  bool pop(safeops_hit& hit) {
    std::uint64_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at % kCells];
      const std::int64_t ahead = cell.ahead_of(lap(at) + 1);
      if (ahead < 0) return false;
      if (ahead == 0 && tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        hit = cell.hit;
        cell.turn.store(lap(at) + 2, std::memory_order_release);
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
  static constinit BackwardRing ring;
  return ring;
}
static_assert(std::is_trivially_destructible_v<BackwardRing>);

}  // namespace safeops
