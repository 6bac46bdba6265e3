#include <cstdlib>
#include <cstring>
#include <new>

#include "emulator/emulator.h"
#include "memory.h"

namespace safeops::device_check {

namespace {

constexpr std::align_val_t kAlignment{256};

}  // namespace

void* allocate(std::size_t bytes, bool initialized) {
  void* memory = ::operator new(bytes, kAlignment);
  return initialized ? std::memset(memory, 0xFF, bytes) : memory;
}
void* allocate_mapped(std::size_t bytes) { return allocate(bytes); }
void release(void* memory) { ::operator delete(memory, kAlignment); }
void release_mapped(void* memory) { release(memory); }

void copy_in(void* device, const void* host, std::size_t bytes) {
  std::memcpy(device, host, bytes);
}
void copy_out(void* host, const void* device, std::size_t bytes) {
  std::memcpy(host, device, bytes);
}

CudaLaunch launch_here() {
  static int stream = 0;
  CudaLaunch launch;
  launch.multiprocessors = 132;
  launch.shared_memory = emulator::limits().shared_memory;
  launch.stream = &stream;
  return launch;
}

void finish(CudaStatus status) {
  if (status != 0) std::abort();
}

std::string describe() { return "emulator"; }

}  // namespace safeops::device_check
