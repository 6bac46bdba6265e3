#include "core/counters.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstring>

#include "core/backward_ring.h"
#include "core/counter_slots.h"

std::uint64_t safeops_hit_epoch = 0;

namespace safeops {
namespace {

// One counter. A cache line of its own, so that two operators that hit do not slow each other down.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> ever{0};       // grows only
  std::atomic<std::uint64_t> forgotten{0};  // what `ever` was at the last reset
  std::atomic<std::uint64_t> first_row{0};  // one more than the row; 0 until the first hit
  // Shape and dtype of the first offender, written once by whoever claims it.
  std::atomic<int> offender{0};  // 0 free, 1 being written, 2 readable
  std::int32_t dims = 0;
  std::int64_t shape[kSafeopsShapeDims] = {};
  char dtype[16] = {};
};

constinit Slot slots[kSlots];
std::atomic<std::uint64_t> forks_until_here{0};
std::atomic<int> current_level{1};
std::atomic<Collector> collector{nullptr};
thread_local std::uint64_t forward_serial = 0, backward_serial = 0;
thread_local safeops_hit last_hit = {};
thread_local bool has_last_hit = false;
thread_local safeops_hit latent_hit = {};
thread_local bool has_latent_hit = false;

Slot& slot(Operator op, Condition condition, Direction direction, Device device) {
  const int row = static_cast<int>(op) * kConditions + static_cast<int>(condition);
  return slots[(row * kDirections + static_cast<int>(direction)) * kDevices +
               static_cast<int>(device)];
}

std::uint64_t next_epoch() {
  return std::atomic_ref<std::uint64_t>(safeops_hit_epoch).fetch_add(1, std::memory_order_relaxed) +
         1;
}

void forget(Slot& slot) {
  slot.forgotten.store(slot.ever.load(std::memory_order_relaxed), std::memory_order_release);
  slot.first_row.store(0, std::memory_order_relaxed);
}

// One thread lives on in the child: it finds the counters empty, and nothing claimed by a thread
// that no longer exists. The epoch stays, for it must not go back.
void start_over_in_child() {
  for (Slot& slot : slots) {
    forget(slot);
    slot.offender.store(0, std::memory_order_relaxed);
  }
  backward_ring().clear();
  has_last_hit = has_latent_hit = false;
  collector.store(nullptr, std::memory_order_relaxed);
  forks_until_here.fetch_add(1, std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, start_over_in_child);

template <class Target>
void describe(const Call& call, Target& target) {
  target.dims = call.dims;
  for (int d = 0; d < std::min(call.dims, kSafeopsShapeDims); ++d) target.shape[d] = call.shape[d];
  std::strncpy(target.dtype, call.dtype, sizeof(target.dtype) - 1);
}

void count(Slot& to, const Hit& hit) {
  const auto claim_first_row = [&] {
    std::uint64_t none = 0;
    if (hit.first != kNoRow && to.first_row.load(std::memory_order_relaxed) == 0) {
      to.first_row.compare_exchange_strong(none, hit.first + 1, std::memory_order_relaxed);
    }
  };
  // Before, so that who sees the count finds a row; and after, for a reset that came in between.
  claim_first_row();
  to.ever.fetch_add(hit.count, std::memory_order_release);
  claim_first_row();
}

void count(const Call& call, Condition condition, const Hit& hit, int level) {
  Slot& to = slot(call.op, condition, call.direction, call.device);
  count(to, hit);
  int free = 0;
  if (level >= 2 && to.offender.compare_exchange_strong(free, 1, std::memory_order_acquire)) {
    describe(call, to);
    to.offender.store(2, std::memory_order_release);
  }
}

safeops_hit summarize(const Call& call, const Hits& hits) {
  safeops_hit summary = description(call);
  summary.first_row = kNoRow;
  std::uint64_t most = 0;
  for (int i = 0; i < kHitConditions; ++i) {
    const Hit& hit = hits.of[i];
    summary.count += hit.count;
    summary.first_row = std::min<std::uint64_t>(summary.first_row, hit.first);
    if (hit.count > most) {
      most = hit.count;
      summary.condition = i;
    }
  }
  if (most == 0) {
    summary.first_row = hits.latent.first;
    summary.condition = static_cast<std::int32_t>(Condition::zero_argument);
  }
  return summary;
}

std::uint64_t read_counters(safeops_record* records, std::uint64_t capacity) {
  std::uint64_t size = 0;
  for (int i = 0; i < kSlots && size < capacity; ++i) {
    const safeops_record record = standing(i).record;
    if (record.count != 0) records[size++] = record;
  }
  return size;
}

template <std::size_t kCount>
const char* name_or_null(const std::array<const char*, kCount>& names, int value) {
  return value >= 0 && value < static_cast<int>(kCount) ? names[static_cast<std::size_t>(value)]
                                                        : nullptr;
}

constexpr std::array<const char*, kOperators> kOperatorNames = {
    "normalize",  "softmax", "log_softmax", "logsumexp", "div",
    "reciprocal", "rsqrt",   "sqrt",        "log"};
constexpr std::array<const char*, kConditions> kConditionNames = {
    "zero_norm",         "below_eps",       "empty_row", "zero_denominator", "zero_argument",
    "negative_argument", "nonfinite_input", "rescued",   "finite_min_row"};
constexpr std::array<const char*, kDirections> kDirectionNames = {"forward", "backward"};
constexpr std::array<const char*, kDevices> kDeviceNames = {"cpu", "cuda"};

}  // namespace

std::string_view name(Operator value) { return kOperatorNames[static_cast<std::size_t>(value)]; }
std::string_view name(Condition value) { return kConditionNames[static_cast<std::size_t>(value)]; }
std::string_view name(Direction value) { return kDirectionNames[static_cast<std::size_t>(value)]; }
std::string_view name(Device value) { return kDeviceNames[static_cast<std::size_t>(value)]; }

std::uint64_t counted_ever(int slot) { return slots[slot].ever.load(std::memory_order_relaxed); }

Standing standing(int slot) {
  const Slot& from = slots[slot];
  // In this order: a reset in between must not make the difference negative.
  const std::uint64_t forgotten = from.forgotten.load(std::memory_order_acquire);
  const std::uint64_t ever = from.ever.load(std::memory_order_acquire);
  const std::uint64_t first_row = from.first_row.load(std::memory_order_relaxed);
  Standing now = {};
  now.ever = ever;
  safeops_record& record = now.record;
  record.device = slot % kDevices;
  record.direction = slot / kDevices % kDirections;
  record.condition = slot / (kDevices * kDirections) % kConditions;
  record.op = slot / (kDevices * kDirections * kConditions);
  record.count = ever - forgotten;
  record.first_row = first_row == 0 ? 0 : first_row - 1;
  record.dims = -1;
  if (from.offender.load(std::memory_order_acquire) != 2) return now;
  record.dims = from.dims;
  std::memcpy(record.shape, from.shape, sizeof(record.shape));
  std::memcpy(record.dtype, from.dtype, sizeof(record.dtype));
  return now;
}

std::uint64_t forks() { return forks_until_here.load(std::memory_order_relaxed); }

safeops_hit description(const Call& call) {
  safeops_hit hit = {};
  hit.serial = call.direction == Direction::backward ? backward_serial : 0;
  hit.rows = call.rows;
  hit.op = static_cast<std::int32_t>(call.op);
  hit.direction = static_cast<std::int32_t>(call.direction);
  hit.device = static_cast<std::int32_t>(call.device);
  hit.raised = call.raises;
  describe(call, hit);
  return hit;
}

void count_collected(Operator op, Direction direction, Device device, const Hits& hits) {
  for (int i = 0; i < kConditions; ++i) {
    if (hits.of[i].count != 0)
      count(slot(op, static_cast<Condition>(i), direction, device), hits.of[i]);
  }
}

void announce(safeops_hit hit) {
  const std::uint64_t epoch = next_epoch();
  if (hit.direction == static_cast<std::int32_t>(Direction::forward)) hit.serial = epoch;
  last_hit = hit;
  has_last_hit = true;
}

void set_collector(Collector function) { collector.store(function, std::memory_order_release); }

void collect(bool waits) {
  if (const Collector function = collector.load(std::memory_order_acquire)) function(waits);
}

std::uint64_t settle(const Call& call, const Hits& hits) {
  const int level = current_level.load(std::memory_order_relaxed);
  if (!hits.any() || (level == 0 && !call.raises)) return 0;
  safeops_hit summary = summarize(call, hits);
  if (level != 0) {
    for (int i = 0; i < kConditions; ++i) {
      if (hits.of[i].count != 0) count(call, static_cast<Condition>(i), hits.of[i], level);
    }
  }
  const bool forward = call.direction == Direction::forward;
  if (summary.count == 0) {
    has_latent_hit = forward && hits.latent.count != 0;
    if (has_latent_hit) latent_hit = summary;
    return 0;
  }
  // Before the epoch moves: who sees that it has must find the hit.
  if (!forward && level != 0) backward_ring().push(summary);
  const std::uint64_t epoch = next_epoch();
  if (forward) summary.serial = forward_serial = epoch;
  last_hit = summary;
  has_last_hit = true;
  return forward ? epoch : 0;
}

ForwardWatch::ForwardWatch() : before_(forward_serial) { has_latent_hit = false; }

std::uint64_t ForwardWatch::serial() const {
  if (forward_serial != before_) return forward_serial;
  if (!has_latent_hit) return 0;
  has_latent_hit = false;
  forward_serial = next_epoch();
  last_hit = latent_hit;
  last_hit.serial = forward_serial;
  has_last_hit = true;
  return forward_serial;
}

SerialScope::SerialScope(std::uint64_t serial) : outer_(backward_serial) {
  backward_serial = serial;
}
SerialScope::~SerialScope() { backward_serial = outer_; }

namespace diagnostics {

int level() { return current_level.load(std::memory_order_relaxed); }

bool set_level(int level) {
  if (level < 0 || level > 3) return false;
  current_level.store(level, std::memory_order_relaxed);
  return true;
}

std::vector<Record> snapshot() {
  safeops_record raw[kSlots];
  const std::uint64_t size = safeops_snapshot(raw, std::size(raw));
  std::vector<Record> records;
  for (std::uint64_t i = 0; i < size; ++i) {
    records.push_back({static_cast<Operator>(raw[i].op), static_cast<Condition>(raw[i].condition),
                       static_cast<Direction>(raw[i].direction), static_cast<Device>(raw[i].device),
                       raw[i].count, raw[i].first_row});
  }
  return records;
}

void reset() { safeops_reset(); }

}  // namespace diagnostics
}  // namespace safeops

using namespace safeops;

int safeops_last_hit(safeops_hit* hit) {
  *hit = last_hit;
  return has_last_hit;
}

std::uint64_t safeops_take_backward_hits(safeops_hit* hits, std::uint64_t capacity) {
  return backward_ring().take(hits, capacity);
}

std::uint64_t safeops_snapshot(safeops_record* records, std::uint64_t capacity) {
  collect(/*waits=*/true);
  return read_counters(records, capacity);
}

std::uint64_t safeops_glance(safeops_record* records, std::uint64_t capacity) {
  collect(/*waits=*/false);
  return read_counters(records, capacity);
}

void safeops_reset() {
  collect(/*waits=*/true);
  for (Slot& slot : slots) {
    forget(slot);
    // A slot that is being described at this moment keeps its description.
    int readable = 2;
    slot.offender.compare_exchange_strong(readable, 0, std::memory_order_acq_rel);
  }
  // What a full ring holds and no more: other threads may fill it as fast as it is emptied.
  safeops_hit discarded;
  for (std::uint64_t i = 0; i < BackwardRing::kCells; ++i) {
    if (safeops_take_backward_hits(&discarded, 1) == 0) break;
  }
}

int safeops_level() { return diagnostics::level(); }
int safeops_set_level(int level) { return diagnostics::set_level(level); }
const char* safeops_operator_name(int value) { return name_or_null(kOperatorNames, value); }
const char* safeops_condition_name(int value) { return name_or_null(kConditionNames, value); }
const char* safeops_direction_name(int value) { return name_or_null(kDirectionNames, value); }
const char* safeops_device_name(int value) { return name_or_null(kDeviceNames, value); }
int safeops_condition_is_hit(int value) { return value >= 0 && value < kHitConditions; }
