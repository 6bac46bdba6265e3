#include "torch/host_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace safeops {
namespace {

thread_local at::Device current(at::kCUDA, 0);

struct HostGuard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return at::kCUDA; }
  at::Device exchangeDevice(at::Device device) const override {
    return std::exchange(current, device);
  }
  at::Device getDevice() const override { return current; }
  void setDevice(at::Device device) const override { current = device; }
  void uncheckedSetDevice(at::Device device) const noexcept override { current = device; }
  c10::Stream getStream(at::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return kHostDevices; }
};
C10_REGISTER_GUARD_IMPL(CUDA, HostGuard);

at::Tensor empty_on_host(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device,
                         std::optional<bool>, std::optional<at::MemoryFormat>) {
  const auto type = c10::scalarTypeToTypeMeta(dtype.value_or(at::kFloat));
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * type.itemsize();
  void* const memory = std::malloc(bytes + 1);
  const at::Device place(at::kCUDA, device && device->has_index() ? device->index() : 0);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(bytes),
      at::DataPtr(memory, memory, std::free, place), nullptr, /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) { library.impl("empty.memory_format", empty_on_host); }

bool is_zero(const double* row, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) {
    if (row[i] != 0) return false;
  }
  return true;
}

void report(const CudaLaunch& launch, std::uint64_t row) {
  (*launch.hits)[Condition::zero_norm].add(1, row);
  launch.hits->raising.add(1, row);
  if (launch.alarm.claimed == nullptr || *launch.alarm.claimed != 0) return;
  *launch.alarm.claimed = launch.alarm.serial;
  launch.alarm.raised->row = row;
  launch.alarm.raised->serial = launch.alarm.serial;
}

CudaStatus status_of_launch() {
  const CudaStatus status = next_status();
  next_status() = 0;
  return status;
}

}  // namespace

void* HostCuda::current_stream(int device) {
  TORCH_CHECK(!fails, "CUDA driver version is insufficient");
  static char streams[kHostDevices];
  return &streams[device];
}
bool HostCuda::is_capturing(int device) { return capturing[static_cast<std::size_t>(device)]; }
int HostCuda::multiprocessors(int) { return 2; }
std::size_t HostCuda::shared_memory(int) { return 49152; }

void* HostCuda::allocate(int, std::size_t bytes) {
  return std::memset(std::malloc(bytes), 0x5A, bytes);
}
void* HostCuda::allocate_mapped(int, std::size_t bytes) { return std::calloc(1, bytes); }
void* HostCuda::make_stream(int) { return std::malloc(1); }

void HostCuda::zero(int, void* memory, std::size_t bytes, void*) { std::memset(memory, 0, bytes); }

void HostCuda::drain(int, Hits* hits, Hits* mapped, int count, void*) {
  for (int i = 0; i < count; ++i) {
    if (mapped != nullptr) mapped[i] = hits[i];
    hits[i] = Hits();
  }
}

void HostCuda::wait_for_stream(int device, void* stream) {
  if (stream != current_stream(device)) return;
  ++waits;
  waits_while_capturing += capturing[static_cast<std::size_t>(device)];
}
void HostCuda::check(CudaStatus status) { TORCH_CHECK(status == 0, "CUDA error: ", status); }

HostCuda& host_cuda() {
  static auto& cuda = *new HostCuda;
  return cuda;
}

at::Tensor on_cuda(const at::Tensor& tensor, int device) {
  const at::Tensor copy =
      at::empty(tensor.sizes(), tensor.options().device(at::Device(at::kCUDA, device)));
  std::memcpy(copy.mutable_data_ptr(), tensor.contiguous().const_data_ptr(), tensor.nbytes());
  return copy;
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  const at::Tensor copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  std::memcpy(copy.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
  return copy;
}

CudaStatus normalize_on_host(const RowArguments& arguments, NormOrder order,
                             const CudaLaunch& launch) {
  host_launches().push_back({arguments, order, launch, current.index()});
  const std::size_t length = arguments.layout.length;
  for (std::size_t row = 0; row < arguments.layout.rows; ++row) {
    const double* x = static_cast<const double*>(arguments.input[0]) + row * length;
    double* y = static_cast<double*>(arguments.output) + row * length;
    const bool singular = is_zero(x, length);
    if (singular) report(launch, row);
    double sum = 0;
    for (std::size_t i = 0; i < length; ++i) sum += x[i] * x[i];
    if (arguments.save != nullptr) arguments.save[row] = std::sqrt(sum);
    for (std::size_t i = 0; i < length; ++i)
      y[i] = singular ? arguments.policy.fill : x[i] / std::sqrt(sum);
  }
  return status_of_launch();
}

CudaStatus normalize_backward_on_host(const RowArguments& arguments, NormOrder,
                                      const CudaLaunch& launch) {
  const std::size_t length = arguments.layout.length;
  for (std::size_t row = 0; row < arguments.layout.rows; ++row) {
    if (is_zero(static_cast<const double*>(arguments.input[1]) + row * length, length))
      report(launch, row);
  }
  std::memcpy(arguments.output, arguments.input[0],
              arguments.layout.rows * length * sizeof(double));
  return status_of_launch();
}

std::vector<HostLaunch>& host_launches() {
  static std::vector<HostLaunch> launches;
  return launches;
}

CudaStatus& next_status() {
  static CudaStatus status = 0;
  return status;
}

}  // namespace safeops
