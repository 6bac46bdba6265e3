#include "torch/cuda_device.h"

#include <atomic>

#include "core/counters.h"

namespace safeops {
namespace {

int place_of(Operator op, Direction direction) {
  return static_cast<int>(op) * 2 + static_cast<int>(direction);
}

std::optional<Condition> most_frequent(const Hits& hits) {
  std::optional<Condition> most;
  for (int i = 0; i < kHitConditions; ++i) {
    const auto condition = static_cast<Condition>(i);
    if (hits[condition].count > (most ? hits[*most].count : 0)) most = condition;
  }
  return most;
}

// The device writes it, and the other threads of this process.
std::atomic_ref<std::uint64_t> serial_of(CudaRaised& raised) {
  return std::atomic_ref<std::uint64_t>(raised.serial);
}

}  // namespace

CudaDevice::CudaDevice(CudaBackend& backend, int index)
    : backend_(backend),
      index_(index),
      multiprocessors_(backend.multiprocessors(index)),
      shared_memory_(backend.shared_memory(index)),
      stream_(backend.make_stream(index)),
      memory_(static_cast<Memory*>(backend.allocate(index, sizeof(Memory)))),
      mapped_(static_cast<Mapped*>(backend.allocate_mapped(index, sizeof(Mapped)))) {
  backend_.drain(index_, memory_->counted, nullptr, kCounted, stream_);
  backend_.drain(index_, &memory_->uncounted, nullptr, 1, stream_);
  backend_.zero(index_, &memory_->claimed, sizeof(memory_->claimed), stream_);
  backend_.wait_for_stream(index_, stream_);
}

Hits* CudaDevice::hits(Operator op, Direction direction) {
  return &memory_->counted[place_of(op, direction)];
}

bool CudaDevice::has_raised() const {
  return serial_of(mapped_->raised).load(std::memory_order_acquire) != 0;
}

std::optional<CudaRaised> CudaDevice::take_raised() {
  const auto serial = serial_of(mapped_->raised);
  CudaRaised taken{serial.load(std::memory_order_acquire), 0};
  if (taken.serial == 0) return std::nullopt;
  taken.row = mapped_->raised.row;
  std::uint64_t expected = taken.serial;
  if (!serial.compare_exchange_strong(expected, 0)) return std::nullopt;
  // Only now may another kernel write the record. Not behind what is queued on a stream: whatever
  // runs from here on, on any stream, rings again.
  backend_.zero(index_, &memory_->claimed, sizeof(memory_->claimed), stream_);
  backend_.wait_for_stream(index_, stream_);
  return taken;
}

void CudaDevice::collect(bool waits) {
  if (is_capturing()) return;
  if (waits) backend_.wait_for_stream(index_, backend_.current_stream(index_));
  // Should the second of these fail, what was taken is lost, as are the results of the device.
  const std::lock_guard lock(mutex_);
  backend_.drain(index_, memory_->counted, mapped_->drained, kCounted, stream_);
  backend_.wait_for_stream(index_, stream_);
  for (int op = 0; op < kOperators; ++op) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const auto place = static_cast<std::size_t>(place_of(static_cast<Operator>(op), direction));
      const Hits taken = taken_from(place);
      if (!taken.any()) continue;
      count_collected(static_cast<Operator>(op), direction, Device::cuda, taken);
      if (const auto condition = most_frequent(taken)) last_condition_[place] = condition;
    }
  }
}

// A kernel lowers the row and then adds to the count. A drain in between takes the row with the
// count of others, and the next one finds a count without a row.
Hits CudaDevice::taken_from(std::size_t place) {
  Hits taken = mapped_->drained[place];
  for (int i = 0; i < kConditions; ++i) {
    Hit& hit = taken.of[i];
    if (hit.count == 0) continue;
    std::size_t& last = last_taken_[place].of[i].first;
    if (hit.first == kNoRow) hit.first = last;
    last = hit.first;
  }
  return taken;
}

std::optional<Condition> CudaDevice::last_condition(Operator op, Direction direction) const {
  const std::lock_guard lock(mutex_);
  return last_condition_[static_cast<std::size_t>(place_of(op, direction))];
}

CudaDevice::OwnHits::OwnHits(CudaDevice& device) : device_(device) {
  {
    const std::lock_guard lock(device.mutex_);
    if (!device.free_places_.empty()) {
      place_ = device.free_places_.back();
      device.free_places_.pop_back();
      return;
    }
  }
  CudaBackend& backend = device.backend_;
  place_.on_device = static_cast<Hits*>(backend.allocate(device.index_, sizeof(Hits)));
  place_.mapped = static_cast<Hits*>(backend.allocate_mapped(device.index_, sizeof(Hits)));
  backend.drain(device.index_, place_.on_device, nullptr, 1, device.stream_);
  backend.wait_for_stream(device.index_, device.stream_);
}

// A place that a failed call has left in an unknown state is not used again.
CudaDevice::OwnHits::~OwnHits() {
  if (!is_clean_) return;
  const std::lock_guard lock(device_.mutex_);
  device_.free_places_.push_back(place_);
}

Hits CudaDevice::OwnHits::read(void* stream) {
  device_.backend_.drain(device_.index_, place_.on_device, place_.mapped, 1, stream);
  device_.backend_.wait_for_stream(device_.index_, stream);
  is_clean_ = true;
  return *place_.mapped;
}

}  // namespace safeops
