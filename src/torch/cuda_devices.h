#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <string>

#include "torch/cuda_device.h"

namespace safeops {

/// The backend. Where there is none, throws that the operator has no kernels for CUDA, why, and
/// what to do.
CudaBackend& cuda_backend(Operator op, const at::Tensor& input);

/// Refuses a call that no CUDA kernel exists for; `what` is the subject of the sentence.
[[noreturn]] void refuse_on_cuda(Operator op, const at::Tensor& input, const std::string& what,
                                 const std::string& remedy);

/// What kernels leave on the device; made at the first call.
CudaDevice& cuda_device(CudaBackend& backend, int index);

/// Every device that a kernel was launched on; none in a child of fork that began after that.
void each_cuda_device(c10::function_ref<void(int index, CudaDevice& device)> visit);

}  // namespace safeops
