#pragma once

#include "core/cuda_launch.h"

namespace safeops {

/// Takes `count` Hits from the memory of a device to mapped memory of the host, and leaves none.
/// Kernels may be reporting meanwhile: nothing is lost or taken twice, and a hit that is taken has
/// its row. With a null `mapped` it makes no hits of whatever was there.
CudaStatus drain_hits_cuda(Hits* hits, Hits* mapped, int count, void* stream);

}  // namespace safeops
