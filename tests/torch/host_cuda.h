#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cuda_launch.h"
#include "operators/normalize/normalize.h"
#include "torch/cuda_backend.h"

namespace safeops {

inline constexpr int kHostDevices = 4;

/// CUDA devices made of memory of the host, so that all of the binding but its calls of the CUDA
/// runtime can be tested without a GPU. One stream per device, on which everything is done at once.
class HostCuda final : public CudaBackend {
 public:
  void* current_stream(int device) override;
  bool is_capturing(int device) override;
  int multiprocessors(int device) override;
  std::size_t shared_memory(int device) override;
  void* allocate(int device, std::size_t bytes) override;
  void* allocate_mapped(int device, std::size_t bytes) override;
  void* make_stream(int device) override;
  void zero(int device, void* memory, std::size_t bytes, void* stream) override;
  void drain(int device, Hits* hits, Hits* mapped, int count, void* stream) override;
  void wait_for_stream(int device, void* stream) override;
  void check(CudaStatus status) override;

  std::array<bool, kHostDevices> capturing = {};  ///< the current streams
  std::atomic<int> waits{0};                      ///< for the current streams: so many
  std::atomic<int> waits_while_capturing{0};
  bool fails = false;  ///< every call on a device throws
};

/// The process has one.
HostCuda& host_cuda();

/// A copy of a tensor of the CPU on cuda:`device`, and one back.
at::Tensor on_cuda(const at::Tensor& tensor, int device = 0);
at::Tensor on_cpu(const at::Tensor& tensor);

/// What the stand-in for the kernels of normalize does: divides contiguous float64 rows by their
/// norm, fills rows of zeros with the fill of the policy and reports them, as the kernels for CUDA
/// do. A backward execution gives the incoming gradient.
CudaStatus normalize_on_host(const RowArguments& arguments, NormOrder order,
                             const CudaLaunch& launch);
CudaStatus normalize_backward_on_host(const RowArguments& arguments, NormOrder order,
                                      const CudaLaunch& launch);

/// The launches of it, in order, for a replay as that of a captured graph.
struct HostLaunch {
  RowArguments arguments;
  NormOrder order;
  CudaLaunch launch;
  int device;  ///< the current one at the launch
};
std::vector<HostLaunch>& host_launches();

/// What the next launch of it returns; 0 is success.
CudaStatus& next_status();

}  // namespace safeops
