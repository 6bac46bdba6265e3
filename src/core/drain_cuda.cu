#define SAFEOPS_CUDA

#include "core/drain_cuda.h"

#include "core/report_cuda.h"

SAFEOPS_BEGIN_LANES

inline constexpr int kHitsEach = sizeof(Hits) / sizeof(Hit), kDrainBlock = 128;
static_assert(sizeof(Hits) == kHitsEach * sizeof(Hit));

__global__ void __launch_bounds__(kDrainBlock, 1) drain(Hit* hits, Hit* mapped, int count) {
  const int i = static_cast<int>(blockIdx.x * kDrainBlock + threadIdx.x);
  if (i >= count) return;
  Hit taken;
  taken.count = atomicExch(atomic_word(hits[i].count), 0ull);
  __threadfence();
  // A row whose count is still on its way is left for the next time.
  if (taken.count != 0 || mapped == nullptr)
    taken.first = atomicExch(atomic_word(hits[i].first), static_cast<unsigned long long>(kNoRow));
  if (mapped != nullptr) mapped[i] = taken;
}

SAFEOPS_END_LANES

namespace safeops {

CudaStatus drain_hits_cuda(Hits* hits, Hits* mapped, int count, void* stream) {
  const int all = count * device::kHitsEach;
  if (all == 0) return cudaSuccess;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((all - 1) / device::kDrainBlock + 1));
  config.blockDim = dim3(device::kDrainBlock);
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, device::drain, reinterpret_cast<Hit*>(hits),
                            reinterpret_cast<Hit*>(mapped), all);
}

}  // namespace safeops
