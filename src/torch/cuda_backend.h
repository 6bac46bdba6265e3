#pragma once

#include <cstddef>

#include "core/cuda_launch.h"
#include "safeops/export.h"

namespace safeops {

/// What the binding asks of CUDA. The library with the kernels brings the one for GPUs, tests one
/// for memory of the host. All of it is for one device by its index, whichever is current, and may
/// be called while a graph is captured, waits excepted; it throws what torch throws where the
/// device fails.
class CudaBackend {
 public:
  virtual ~CudaBackend() = default;

  /// Of this thread on the device: a cudaStream_t, and whether it is capturing a graph.
  virtual void* current_stream(int device) = 0;
  virtual bool is_capturing(int device) = 0;
  virtual int multiprocessors(int device) = 0;
  virtual std::size_t shared_memory(int device) = 0;

  /// Memory and a stream for as long as the process lives: graphs keep the addresses. Mapped memory
  /// is memory of the host that has the same address on every device, and is zero at first.
  virtual void* allocate(int device, std::size_t bytes) = 0;
  virtual void* allocate_mapped(int device, std::size_t bytes) = 0;
  virtual void* make_stream(int device) = 0;

  virtual void zero(int device, void* memory, std::size_t bytes, void* stream) = 0;

  /// Takes `count` Hits from the memory of the device to mapped memory, leaving none; with a null
  /// `mapped` it makes no hits of memory that holds anything.
  virtual void drain(int device, Hits* hits, Hits* mapped, int count, void* stream) = 0;

  /// Never for a device: to wait for one ends whatever capture another thread is in.
  virtual void wait_for_stream(int device, void* stream) = 0;

  /// Throws unless it is success.
  virtual void check(CudaStatus status) = 0;
};

/// Calls on CUDA tensors need one. Set once, when a library is loaded; it is never destroyed.
SAFEOPS_EXPORT void set_cuda_backend(CudaBackend* backend);

}  // namespace safeops
