// Memory that kernels run on: a device's, or what the emulator takes for it.
#pragma once

#include <cstddef>
#include <string>

#include "core/cuda_launch.h"

namespace safeops::device_check {

/// All ones, like memory that others used; never written where `initialized` is false. No byte more
/// than asked for, so that a tool for memory sees the first one too many.
void* allocate(std::size_t bytes, bool initialized = true);
/// Memory of the host that kernels can write.
void* allocate_mapped(std::size_t bytes);
void release(void* memory);
void release_mapped(void* memory);
void copy_in(void* device, const void* host, std::size_t bytes);
void copy_out(void* host, const void* device, std::size_t bytes);

/// Stream and properties of the device.
CudaLaunch launch_here();
/// Waits. Ends the process if the launch or anything before it failed.
void finish(CudaStatus status);
std::string describe();

}  // namespace safeops::device_check
