// torch's own operators for the CUDA devices of host_cuda.h: those of the CPU, in the same memory.
#include "torch_cuda/host_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/library.h>

#include <atomic>
#include <optional>
#include <vector>

namespace safeops {
namespace {

using at::Tensor;

// Kept as long as what is returned.
Tensor same_memory(const Tensor& tensor, at::Device device) {
  const at::Storage& from = tensor.storage();
  auto* const keeper = new Tensor(tensor);
  at::DataPtr data(
      from.mutable_data(), keeper, [](void* kept) { delete static_cast<Tensor*>(kept); }, device);
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), from.nbytes(),
                                            std::move(data), nullptr, /*resizable=*/false),
      c10::DispatchKeySet(device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU),
      tensor.dtype());
}

void copy_geometry(const Tensor& from, const Tensor& to) {
  to.unsafeGetTensorImpl()->set_sizes_and_strides(from.sizes(), from.strides(),
                                                  from.storage_offset());
  to._set_conj(from.is_conj());
  to._set_neg(from.is_neg());
}

// The arguments of one call as tensors of the CPU, and its results as those of a device.
class OnHost {
 public:
  c10::IValue argument(const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) return host(value.toTensor());
    if (value.isTensorList()) {
      std::vector<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(host(tensor));
      return list;
    }
    if (value.isDevice()) {
      device_ = value.toDevice();
      return at::Device(at::kCPU);
    }
    return value;
  }

  c10::IValue result(const c10::IValue& value) const {
    return value.isTensor() && value.toTensor().defined() ? c10::IValue(device(value.toTensor()))
                                                          : value;
  }

 private:
  struct Pair {
    Tensor device, host;
  };

  Tensor host(const Tensor& tensor) {
    if (!tensor.is_cuda()) return tensor;
    if (!device_) device_ = tensor.device();
    const Tensor alias = same_memory(tensor, at::kCPU);
    copy_geometry(tensor, alias);
    pairs_.push_back({tensor, alias});
    return alias;
  }

  Tensor device(const Tensor& tensor) const {
    if (!device_ || !device_->is_cuda()) return tensor;
    for (const Pair& pair : pairs_) {
      if (tensor.is_same(pair.host)) return pair.device;
      if (!tensor.is_alias_of(pair.host)) continue;
      const Tensor view = at::detail::make_tensor<c10::TensorImpl>(
          c10::TensorImpl::VIEW, c10::Storage(pair.device.storage()), pair.device.key_set(),
          tensor.dtype());
      copy_geometry(tensor, view);
      return view;
    }
    const Tensor moved = same_memory(tensor, *device_);
    copy_geometry(tensor, moved);
    return moved;
  }

  std::vector<Pair> pairs_;
  std::optional<at::Device> device_;  // asked for, else that of the first argument
};

void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  OnHost host;
  const std::size_t arguments = op.schema().arguments().size();
  for (std::size_t i = stack->size() - arguments; i < stack->size(); ++i)
    (*stack)[i] = host.argument((*stack)[i]);
  op.callBoxed(stack);
  for (c10::IValue& value : *stack) value = host.result(value);
}

// Autograd asks for the streams of the devices that there are.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
};
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks);

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host>());
}

std::atomic<std::int64_t> copied{0};

void copy_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor target = torch::jit::peek(*stack, 0, 3).toTensor();
  const Tensor source = torch::jit::peek(*stack, 1, 3).toTensor();
  if (target.is_cuda() && source.is_cpu()) ++copied;
  on_host(op, stack);
}

// One that is composed of others for every device, but not of operators.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&copy_on_host>());
}

}  // namespace

std::int64_t copies_from_host() { return copied; }

}  // namespace safeops
