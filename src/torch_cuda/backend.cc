// The CUDA side of the binding, with the runtime and the streams of torch. Loading the library that
// this file is part of makes operators take CUDA tensors.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "core/drain_cuda.h"
#include "torch/cuda_backend.h"

namespace safeops {
namespace {

// Calls on the device from here on are allowed while any thread captures a graph. None of them is
// part of one: they are about memory and streams that no graph knows.
class OnDevice {
 public:
  explicit OnDevice(int device) : guard_(static_cast<c10::DeviceIndex>(device)) {
    C10_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  ~OnDevice() { C10_CUDA_IGNORE_ERROR(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::cuda::CUDAGuard guard_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one to return to
};

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

class TorchCudaBackend final : public CudaBackend {
 public:
  void* current_stream(int device) override {
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
  }

  bool is_capturing(int device) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(as_stream(current_stream(device)), &status));
    return status != cudaStreamCaptureStatusNone;
  }

  int multiprocessors(int device) override {
    return attribute(cudaDevAttrMultiProcessorCount, device);
  }

  std::size_t shared_memory(int device) override {
    return static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  }

  void* allocate(int device, std::size_t bytes) override {
    const OnDevice on_device(device);
    void* memory = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&memory, bytes));
    return memory;
  }

  void* allocate_mapped(int device, std::size_t bytes) override {
    const OnDevice on_device(device);
    void *memory = nullptr, *mapped = nullptr;
    C10_CUDA_CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    C10_CUDA_CHECK(cudaHostGetDevicePointer(&mapped, memory, 0));
    TORCH_CHECK(mapped == memory,
                "safeops: CUDA devices must share the address space of the host, but cuda:", device,
                " does not; move the tensors to the CPU");
    std::memset(memory, 0, bytes);
    return memory;
  }

  void* make_stream(int device) override {
    const OnDevice on_device(device);
    cudaStream_t stream = nullptr;
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }

  void zero(int device, void* memory, std::size_t bytes, void* stream) override {
    const OnDevice on_device(device);
    C10_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, as_stream(stream)));
  }

  void drain(int device, Hits* hits, Hits* mapped, int count, void* stream) override {
    const OnDevice on_device(device);
    check(drain_hits_cuda(hits, mapped, count, stream));
  }

  void wait_for_stream(int device, void* stream) override {
    const OnDevice on_device(device);
    C10_CUDA_CHECK(cudaStreamSynchronize(as_stream(stream)));
  }

  void check(CudaStatus status) override { C10_CUDA_CHECK(static_cast<cudaError_t>(status)); }
};

[[maybe_unused]] const bool is_registered = [] {
  static auto& backend = *new TorchCudaBackend;
  set_cuda_backend(&backend);
  return true;
}();

}  // namespace
}  // namespace safeops
