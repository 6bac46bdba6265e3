#include "torch/cuda_devices.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>

#include "core/counter_slots.h"
#include "core/counters.h"

namespace safeops {
namespace {

constexpr std::size_t kMostDevices = 128;

std::atomic<CudaBackend*> registered{nullptr};
// Never destroyed: kernels and counters outlive static objects.
std::array<std::atomic<CudaDevice*>, kMostDevices> devices{};
std::atomic<std::size_t> devices_end{0};
// As of the first device that was made. CUDA goes on working in a child whose parent had not begun.
std::atomic<std::uint64_t> made_after_forks{0};
std::mutex making_device;

std::mutex unavailable_mutex;
std::string& unavailable() {
  static auto& reason = *new std::string;
  return reason;
}

std::string why_unavailable() {
  if (registered.load() != nullptr)
    return "CUDA was used before this child of fork began; start it with method 'spawn'";
  const std::lock_guard lock(unavailable_mutex);
  return unavailable().empty()
             ? "libsafeops_torch_cuda is not loaded; load it with torch.ops.load_library or move "
               "the tensor to the CPU"
             : unavailable();
}

bool is_usable() {
  return registered.load(std::memory_order_acquire) != nullptr &&
         (devices_end.load(std::memory_order_acquire) == 0 ||
          forks() == made_after_forks.load(std::memory_order_relaxed));
}

void collect_all(bool waits) {
  each_cuda_device([&](int, CudaDevice& device) {
    try {
      device.collect(waits);
    } catch (const std::exception&) {
      // Of a device that has failed, torch tells at its next use.
    }
  });
}

}  // namespace

void set_cuda_backend(CudaBackend* backend) { registered = backend; }

CudaBackend& cuda_backend(Operator op, const at::Tensor& input) {
  if (is_usable()) return *registered.load();
  C10_THROW_ERROR(NotImplementedError,
                  c10::str("safeops::", name(op), ": input is on ", input.device(),
                           ", for which no kernels are loaded: ", why_unavailable()));
}

void refuse_on_cuda(Operator op, const at::Tensor& input, const std::string& what,
                    const std::string& remedy) {
  C10_THROW_ERROR(NotImplementedError,
                  c10::str("safeops::", name(op), ": ", what, " has no kernel for ", input.device(),
                           "; ", remedy, " or move the tensors to the CPU"));
}

CudaDevice& cuda_device(CudaBackend& backend, int index) {
  auto& device = devices.at(static_cast<std::size_t>(index));
  if (CudaDevice* const made = device.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(making_device);
  if (device.load(std::memory_order_relaxed) == nullptr) {
    device.store(new CudaDevice(backend, index), std::memory_order_release);
    made_after_forks = forks();
    set_collector(collect_all);
    devices_end = std::max<std::size_t>(devices_end, static_cast<std::size_t>(index) + 1);
  }
  return *device.load(std::memory_order_relaxed);
}

void each_cuda_device(c10::function_ref<void(int index, CudaDevice& device)> visit) {
  if (!is_usable()) return;
  const std::size_t end = devices_end.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < end; ++i) {
    if (CudaDevice* const device = devices[i].load(std::memory_order_acquire))
      visit(static_cast<int>(i), *device);
  }
}

}  // namespace safeops

using namespace safeops;

int safeops_has_cuda() { return registered.load() != nullptr; }

void safeops_set_cuda_unavailable(const char* reason) {
  const std::lock_guard lock(unavailable_mutex);
  unavailable() = reason == nullptr ? "" : reason;
}
