#include "core/counters.h"

#include <array>
#include <atomic>
#include <cstring>

#include "core/backward_ring.h"

std::uint64_t safeops_hit_epoch = 0;

namespace safeops {
namespace {

constexpr int kDirections = 2, kDevices = 2;

// One counter. A cache line of its own, so that two operators that hit do not slow each other down.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> first_row{0};
  // Shape and dtype of the first offender, written once by whoever claims it.
  std::atomic<int> offender{0};  // 0 free, 1 being written, 2 readable
  std::int32_t dims = -1;
  std::int64_t shape[kSafeopsShapeDims] = {};
  char dtype[16] = {};
};

Slot slots[kOperators][kConditions][kDirections][kDevices];
std::atomic<int> current_level{1};
thread_local std::uint64_t forward_serial = 0, backward_serial = 0;
thread_local safeops_hit last_hit = {};
thread_local bool has_last_hit = false;
thread_local safeops_hit latent_hit = {};
thread_local bool has_latent_hit = false;

Slot& slot(Operator op, Condition condition, Direction direction, Device device) {
  return slots[static_cast<int>(op)][static_cast<int>(condition)][static_cast<int>(direction)]
              [static_cast<int>(device)];
}

std::uint64_t next_epoch() {
  return std::atomic_ref<std::uint64_t>(safeops_hit_epoch).fetch_add(1, std::memory_order_relaxed) +
         1;
}

template <class Target>
void describe(const Call& call, Target& target) {
  target.dims = call.dims;
  for (int d = 0; d < std::min(call.dims, kSafeopsShapeDims); ++d) target.shape[d] = call.shape[d];
  std::strncpy(target.dtype, call.dtype, sizeof(target.dtype) - 1);
}

void count(const Call& call, Condition condition, const Hit& hit, int level) {
  Slot& to = slot(call.op, condition, call.direction, call.device);
  if (to.count.fetch_add(hit.count, std::memory_order_relaxed) == 0) {
    to.first_row.store(hit.first, std::memory_order_relaxed);
  }
  int free = 0;
  if (level >= 2 && to.offender.compare_exchange_strong(free, 1, std::memory_order_acquire)) {
    describe(call, to);
    to.offender.store(2, std::memory_order_release);
  }
}

safeops_hit summarize(const Call& call, const Hits& hits) {
  safeops_hit summary = {};
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
  summary.rows = call.rows;
  summary.op = static_cast<std::int32_t>(call.op);
  summary.direction = static_cast<std::int32_t>(call.direction);
  summary.device = static_cast<std::int32_t>(call.device);
  summary.raised = call.raises;
  describe(call, summary);
  return summary;
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
  summary.serial = backward_serial;
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
  if (level < 0 || level > 2) return false;
  current_level.store(level, std::memory_order_relaxed);
  return true;
}

std::vector<Record> snapshot() {
  safeops_record raw[kOperators * kConditions * kDirections * kDevices];
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
  std::uint64_t size = 0;
  for (int i = 0; i < kOperators * kConditions * kDirections * kDevices; ++i) {
    const int device = i % kDevices, direction = i / kDevices % kDirections;
    const int condition = i / (kDevices * kDirections) % kConditions,
              op = i / (kDevices * kDirections * kConditions);
    const Slot& from = slots[op][condition][direction][device];
    const std::uint64_t count = from.count.load(std::memory_order_relaxed);
    if (count == 0 || size == capacity) continue;
    safeops_record& record = records[size++];
    record = {op,     condition, direction,
              device, count,     from.first_row.load(std::memory_order_relaxed),
              {},     -1,        {}};
    if (from.offender.load(std::memory_order_acquire) != 2) continue;
    record.dims = from.dims;
    std::memcpy(record.shape, from.shape, sizeof(record.shape));
    std::memcpy(record.dtype, from.dtype, sizeof(record.dtype));
  }
  return size;
}

void safeops_reset() {
  for (int i = 0; i < kOperators * kConditions * kDirections * kDevices; ++i) {
    Slot& to = (&slots[0][0][0][0])[i];
    to.count.store(0, std::memory_order_relaxed);
    to.first_row.store(0, std::memory_order_relaxed);
    // A slot that is being described at this moment keeps its description.
    int readable = 2;
    to.offender.compare_exchange_strong(readable, 0, std::memory_order_acq_rel);
  }
  safeops_hit discarded[64];
  while (safeops_take_backward_hits(discarded, std::size(discarded)) != 0) {
  }
}

int safeops_level() { return diagnostics::level(); }
int safeops_set_level(int level) { return diagnostics::set_level(level); }
const char* safeops_operator_name(int value) { return name_or_null(kOperatorNames, value); }
const char* safeops_condition_name(int value) { return name_or_null(kConditionNames, value); }
const char* safeops_direction_name(int value) { return name_or_null(kDirectionNames, value); }
const char* safeops_device_name(int value) { return name_or_null(kDeviceNames, value); }
int safeops_condition_is_hit(int value) { return value >= 0 && value < kHitConditions; }
