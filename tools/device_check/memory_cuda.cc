#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "memory.h"

namespace safeops::device_check {

namespace {

void expect(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(3);
}

}  // namespace

void* allocate(std::size_t bytes, bool initialized) {
  void* memory = nullptr;
  // Of no bytes cudaMalloc gives a null pointer.
  expect(cudaMalloc(&memory, std::max(bytes, std::size_t{1})), "cudaMalloc");
  if (initialized) expect(cudaMemset(memory, 0xFF, bytes), "cudaMemset");
  return memory;
}

void* allocate_mapped(std::size_t bytes) {
  void* memory = nullptr;
  expect(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
         "cudaHostAlloc");
  return memory;
}

void release(void* memory) { expect(cudaFree(memory), "cudaFree"); }
void release_mapped(void* memory) { expect(cudaFreeHost(memory), "cudaFreeHost"); }

void copy_in(void* device, const void* host, std::size_t bytes) {
  expect(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}
void copy_out(void* host, const void* device, std::size_t bytes) {
  expect(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

CudaLaunch launch_here() {
  // One that does not wait for the default stream.
  static cudaStream_t stream = nullptr;
  if (stream == nullptr)
    expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  // Copies of pageable memory may return before the bytes have arrived.
  expect(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  CudaLaunch launch;
  int shared_memory = 0;
  expect(cudaDeviceGetAttribute(&launch.multiprocessors, cudaDevAttrMultiProcessorCount, 0),
         "cudaDeviceGetAttribute");
  expect(cudaDeviceGetAttribute(&shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0),
         "cudaDeviceGetAttribute");
  launch.shared_memory = static_cast<std::size_t>(shared_memory);
  launch.stream = stream;
  return launch;
}

void finish(CudaStatus status) {
  expect(static_cast<cudaError_t>(status), "launch");
  expect(cudaDeviceSynchronize(), "kernel");
}

std::string describe() {
  cudaDeviceProp properties;
  expect(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties.name;
}

}  // namespace safeops::device_check
