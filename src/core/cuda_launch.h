#pragma once

#include <cstddef>
#include <cstdint>

#include "core/hits.h"

namespace safeops {

/// A cudaError_t: 0 is success.
using CudaStatus = int;

/// What the first raising row of a call leaves for the host, in pinned memory that the device maps.
struct CudaRaised {
  std::uint64_t serial;  ///< of the call; 0 until a row raised, written last
  std::uint64_t row;
};

/// How a call under policy `raise` is told on without waiting for it: whoever turns `claimed`
/// (device memory) from 0 into the serial writes `raised`.
struct CudaAlarm {
  unsigned long long* claimed = nullptr;  ///< null: nobody listens
  CudaRaised* raised = nullptr;
  std::uint64_t serial = 0;
};

/// Where a kernel runs and what it finds there. Kernels neither allocate, read back nor
/// synchronise, so that a launch may be captured in a graph.
struct CudaLaunch {
  void* stream = nullptr;         ///< a cudaStream_t
  int multiprocessors = 1;        ///< of the device
  std::size_t shared_memory = 0;  ///< bytes that a block may ask for
  Hits* hits = nullptr;           ///< device memory, touched on a hit only
  CudaAlarm alarm;
  /// Device memory for the kernels of this launch, aligned to 256 bytes.
  void* (*allocate)(void* allocator, std::size_t bytes) = nullptr;
  void* allocator = nullptr;
};

/// A kernel that another library brings: null until that is loaded.
template <class Arguments, class Kind>
struct CudaKernel {
  using Function = CudaStatus(const Arguments& arguments, Kind kind, const CudaLaunch& launch);
  Function* function = nullptr;

  /// For a static initialiser of that library. Returns true.
  bool bring(Function& kernel) {
    function = &kernel;
    return true;
  }
};

}  // namespace safeops
