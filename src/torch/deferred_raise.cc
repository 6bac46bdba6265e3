#include "torch/deferred_raise.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <sstream>
#include <string>

#include "torch/cuda_devices.h"
#include "torch/launch_log.h"
#include "torch/outcome.h"

namespace safeops {
namespace {

std::atomic<RaiseMode> current_mode{RaiseMode::deferred};
thread_local std::uint64_t last_launch = 0, raised_launch = 0;

// Never destroyed: a call may come from a thread that outlives static objects.
LaunchLog& launch_log() {
  static auto& log = *new LaunchLog;
  return log;
}

// What a row of the operator usually met, where no count tells.
Condition usual_condition(Operator op) {
  switch (op) {
    case Operator::normalize:
      return Condition::zero_norm;
    case Operator::softmax:
    case Operator::log_softmax:
    case Operator::logsumexp:
      return Condition::empty_row;
    case Operator::div:
    case Operator::reciprocal:
      return Condition::zero_denominator;
    case Operator::rsqrt:
    case Operator::sqrt:
    case Operator::log:
      break;
  }
  return Condition::zero_argument;
}

safeops_hit hit_of(const CudaDevice& device, safeops_hit call, std::uint64_t row) {
  const auto op = static_cast<Operator>(call.op);
  const auto condition = device.last_condition(op, static_cast<Direction>(call.direction));
  call.condition = static_cast<std::int32_t>(condition.value_or(usual_condition(op)));
  call.count = 1;
  call.first_row = row;
  return call;
}

constexpr const char* kRemedy =
    "; use policy 'zero', 'epsilon' or 'nan' to continue, or raise mode 'exact' to stop at the "
    "call itself";

// The Python package tells it by "met a singular" from the error of a call itself.
std::string sentence(int device, const safeops_hit& hit) {
  const auto op = static_cast<Operator>(hit.op);
  const bool backward = static_cast<Direction>(hit.direction) == Direction::backward;
  const at::IntArrayRef sizes(hit.shape,
                              static_cast<std::size_t>(std::min(hit.dims, kSafeopsShapeDims)));
  std::ostringstream text;
  text << "safeops::" << name(op) << (backward ? " (backward)" : "")
       << ": policy 'raise' met a singular " << unit_of(op) << " of " << hit.rows << " ("
       << name(static_cast<Condition>(hit.condition)) << "; at " << unit_of(op) << ' '
       << hit.first_row << ") in a " << hit.dtype << " tensor of shape " << sizes
       << ", in an earlier call on cuda:" << device << kRemedy;
  return text.str();
}

std::string sentence_of_forgotten(int device, std::uint64_t row) {
  std::ostringstream text;
  text << "safeops: policy 'raise' met a singular row or element (number " << row
       << ") in a call on cuda:" << device << " that more than " << LaunchLog::kKept
       << " others followed" << kRemedy;
  return text.str();
}

// Takes the error of one device and settles it; returns its sentence.
std::optional<std::string> take_error(int index, CudaDevice& device) {
  const auto raised = device.take_raised();
  if (!raised) return std::nullopt;
  raised_launch = raised->serial;
  const auto launch = launch_log().find(raised->serial);
  if (!launch) return sentence_of_forgotten(index, raised->row);
  device.collect(/*waits=*/false);
  const safeops_hit hit = hit_of(device, *launch, raised->row);
  announce(hit);
  return sentence(index, hit);
}

bool is_pending() {
  bool has_raised = false;
  each_cuda_device([&](int, CudaDevice& device) { has_raised |= device.has_raised(); });
  return has_raised;
}

std::optional<std::string> take_error() {
  bool is_capturing = false;
  if (!is_pending()) return std::nullopt;
  each_cuda_device([&](int, CudaDevice& device) { is_capturing |= device.is_capturing(); });
  if (is_capturing) return std::nullopt;
  std::optional<std::string> taken;
  each_cuda_device([&](int index, CudaDevice& device) {
    if (!taken) taken = take_error(index, device);
  });
  return taken;
}

std::optional<std::string> wait_and_take_error() {
  each_cuda_device([](int, CudaDevice& device) { device.collect(/*waits=*/true); });
  return take_error();
}

void throw_if(const std::optional<std::string>& error) {
  if (error)
    throw SingularityError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, *error);
}

}  // namespace

std::uint64_t note_launch(const Call& call, bool captured) {
  last_launch = launch_log().add(description(call), captured);
  return last_launch;
}

void throw_pending_error(CudaBackend& backend, int device) {
  // A device without a launch yet is not among those that take_error asks.
  if (is_pending() && !backend.is_capturing(device)) throw_if(take_error());
}

namespace diagnostics {

RaiseMode raise_mode() { return current_mode.load(std::memory_order_relaxed); }
void set_raise_mode(RaiseMode mode) { current_mode.store(mode, std::memory_order_relaxed); }
void check() { throw_if(wait_and_take_error()); }

}  // namespace diagnostics
}  // namespace safeops

using namespace safeops;

int safeops_raise_mode() { return static_cast<int>(diagnostics::raise_mode()); }

int safeops_set_raise_mode(int mode) {
  if (mode != 0 && mode != 1) return 0;
  diagnostics::set_raise_mode(static_cast<RaiseMode>(mode));
  return 1;
}

int safeops_check(const char** sentence) {
  static thread_local std::string message;
  *sentence = nullptr;
  int outcome = 1;
  try {
    auto error = wait_and_take_error();
    if (!error) return 0;
    message = std::move(*error);
  } catch (const c10::Error& failure) {
    message = failure.what_without_backtrace();
    outcome = 2;
  } catch (const std::exception& failure) {
    message = failure.what();
    outcome = 2;
  }
  *sentence = message.c_str();
  return outcome;
}

std::uint64_t safeops_last_launch() { return last_launch; }
std::uint64_t safeops_raised_launch() { return raised_launch; }
