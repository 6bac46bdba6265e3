#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>

#include "core/cuda_launch.h"
#include "core/executor.h"
#include "core/hits.h"
#include "safeops/policy.h"
#include "torch/cuda_backend.h"

namespace safeops {

/// One computation for every device that has it.
template <class Arguments, class Kind>
struct Kernel {
  void (*cpu)(const Arguments& arguments, Kind kind, Executor& executor, Hits& hits);
  const CudaKernel<Arguments, Kind>* cuda;
};

/// Row arithmetic over the threads of at::parallel_for.
class TorchExecutor final : public Executor {
 public:
  void run(std::size_t tasks, void (*body)(void*, std::size_t, std::size_t),
           void* context) override;
};

/// Refuses, before anything is allocated, a call on CUDA tensors where no kernels for them are
/// loaded.
void check_has_kernels(Operator op, const at::Tensor& input);

/// Whether the call of policy `raise` that finds a singular point throws, its result computed; if
/// not, a later one does (safeops::RaiseMode).
bool throws_itself(const at::Tensor& input);

/// One execution of a kernel on the device of `input`, of which what it hits is described. Begins
/// with the error that an earlier one on CUDA has left, if there is one.
///
///     Execution execution(op, direction, policy, input, rows);
///     execution.run(kernel, arguments, kind);
///     execution.settle();
class Execution {
 public:
  Execution(Operator op, Direction direction, Policy policy, const at::Tensor& input,
            std::uint64_t rows);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  /// Once. On CUDA it launches on the current stream and waits only where raise mode is exact.
  template <class Arguments, class Kind>
  void run(const Kernel<Arguments, Kind>& kernel, const Arguments& arguments, Kind kind) {
    if (backend_ == nullptr) {
      kernel.cpu(arguments, kind, executor_, hits_);
      return;
    }
    if (kernel.cuda->function == nullptr) refuse();
    launch(
        [&](const CudaLaunch& launch) { return kernel.cuda->function(arguments, kind, launch); });
  }

  /// The same for what only the CPU has: kernel(executor, hits).
  template <class CpuKernel>
  void run_on_cpu(const CpuKernel& kernel) {
    kernel(executor_, hits_);
  }

  /// What was met, where it is known: on the CPU, and after an execution that was waited for.
  const Hits& hits() const { return hits_; }

  /// Counts the hits that are known and throws the error of policy `raise`.
  void settle();

 private:
  void launch(c10::function_ref<CudaStatus(const CudaLaunch&)> kernel);
  [[noreturn]] void refuse();

  const Operator op_;
  const Direction direction_;
  const Policy policy_;
  const at::Tensor& input_;
  const std::uint64_t rows_;
  Hits hits_;
  TorchExecutor executor_;
  c10::OptionalDeviceGuard guard_;
  CudaBackend* backend_ = nullptr;  // null: on the CPU
  const bool is_exact_;             // read once: another thread may set it meanwhile
};

}  // namespace safeops
