#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "torch/cuda_backend.h"

namespace safeops {

/// What kernels leave on one device: their hits, and the alarm of policy `raise`. Its addresses
/// stay, so that captured launches may hold them.
class CudaDevice {
 public:
  CudaDevice(CudaBackend& backend, int index);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  /// Where kernels of an operator count; below level 1 all into one that is never read.
  Hits* hits(Operator op, Direction direction);
  Hits* uncounted_hits() { return &memory_->uncounted; }

  CudaAlarm alarm(std::uint64_t serial) { return {&memory_->claimed, &mapped_->raised, serial}; }

  /// Takes what rang the alarm, if anything did since it was taken last. It stands for all that has
  /// run until then; what runs after the return rings again. Not while the current stream is
  /// captured.
  std::optional<CudaRaised> take_raised();

  /// Whether take_raised() would find something now; a load.
  bool has_raised() const;

  /// Brings the hits into the counters. With `waits` for the work of the current stream. Nothing
  /// happens while that is captured.
  void collect(bool waits);

  /// The condition that most rows met when hits of the operator were collected last, if ever.
  std::optional<Condition> last_condition(Operator op, Direction direction) const;

  bool is_capturing() { return backend_.is_capturing(index_); }

  int multiprocessors() const { return multiprocessors_; }
  std::size_t shared_memory() const { return shared_memory_; }

  /// Hits for one call that waits for its kernel.
  class OwnHits {
   public:
    explicit OwnHits(CudaDevice& device);
    ~OwnHits();
    OwnHits(const OwnHits&) = delete;
    OwnHits& operator=(const OwnHits&) = delete;
    /// For a kernel to count in; whoever takes it must read() what it counted.
    Hits* on_device() {
      is_clean_ = false;
      return place_.on_device;
    }
    /// Waits for the stream.
    Hits read(void* stream);

   private:
    friend class CudaDevice;
    struct Place {
      Hits *on_device = nullptr, *mapped = nullptr;
    };
    CudaDevice& device_;
    Place place_;
    bool is_clean_ = true;
  };

 private:
  /// The Hits of a place as they were drained, with a row wherever there is a count.
  Hits taken_from(std::size_t place);

  static constexpr int kDirections = 2, kCounted = kOperators * kDirections;

  struct Memory {
    Hits counted[kCounted];
    Hits uncounted;
    unsigned long long claimed;
  };
  struct Mapped {
    CudaRaised raised;
    Hits drained[kCounted];
  };

  CudaBackend& backend_;
  const int index_;
  const int multiprocessors_;
  const std::size_t shared_memory_;
  void* const stream_;
  Memory* const memory_;
  Mapped* const mapped_;
  mutable std::mutex mutex_;  // of what follows, and of mapped_->drained
  std::array<std::optional<Condition>, kCounted> last_condition_;
  std::array<Hits, kCounted> last_taken_;  // rows alone
  std::vector<OwnHits::Place> free_places_;
};

}  // namespace safeops
