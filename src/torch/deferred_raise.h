#pragma once

#include <cstdint>

#include "core/counters.h"
#include "torch/cuda_backend.h"

namespace safeops {

/// Remembers a call under policy `raise` that nobody will wait for. Returns the serial that its
/// alarm is to carry.
std::uint64_t note_launch(const Call& call, bool captured);

/// Throws the SingularityError of an earlier call, if one is pending on any device. It is settled
/// as this thread's last hit; its rows are counted where all others are. Nothing happens while the
/// thread captures a graph, on whichever device; `device` is that of the call that asks.
void throw_pending_error(CudaBackend& backend, int device);

}  // namespace safeops
