// What the kernels use of CUDA's runtime and device interface, for a C++ compiler. Types are CUDA's
// own; half types too, whose conversions its headers also have for the processor.
#pragma once

#include <driver_types.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>
#include <type_traits>

#include "emulator/emulator.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Static shared memory would be one variable for all blocks and threads.
#define __shared__ _Pragma("GCC error \"use SAFEOPS_SHARED_MEMORY\"")
#define SAFEOPS_SHARED_MEMORY(name) unsigned char* const name = safeops::emulator::shared_memory()

#define SAFEOPS_UNROLL

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace safeops::emulator {

/// Who calls: an argument by default names the line of the call.
#define SAFEOPS_EMULATOR_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline constexpr std::size_t kGrantedUnasked = 48 << 10;

/// Shared memory that cudaFuncSetAttribute granted to kernels.
inline std::map<const void*, std::size_t>& granted() {
  static std::map<const void*, std::size_t> bytes;
  return bytes;
}

template <class T>
std::uint64_t as_word(T value) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
template <class T>
T from_word(std::uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// The value of the lane `source` of the same segment of `width` lanes.
template <class T>
T shuffled(unsigned mask, T value, unsigned source, int width, Site site) {
  const std::uint64_t* words = exchange(mask, as_word(value), site);
  const auto within = static_cast<unsigned>(width) - 1;
  return from_word<T>(words[(lane() & ~within) | (source & within)]);
}

/// Tells of an operation on a word once it is made.
class AtomicOperation {
 public:
  explicit AtomicOperation(void* word) : word_(word) {}
  ~AtomicOperation() {
#if defined(SAFEOPS_EMULATOR_THREAD_SANITIZER)
    atomic_operation(word_);
#endif
  }

 private:
  [[maybe_unused]] void* word_;
};

/// A configuration, and the line that launches it.
struct Launch {
  const cudaLaunchConfig_t* config;
  Site site;
  Launch(const cudaLaunchConfig_t* from, SAFEOPS_EMULATOR_SITE) : config(from), site{file, line} {}
};

inline Grid grid_of(const Launch& launch, const void* kernel) {
  const cudaLaunchConfig_t& config = *launch.config;
  if (config.numAttrs != 0) fail("launch attributes are not emulated");
  const auto found = granted().find(kernel);
  return {{config.gridDim.x, config.gridDim.y, config.gridDim.z},
          {config.blockDim.x, config.blockDim.y, config.blockDim.z},
          config.dynamicSmemBytes,
          config.stream,
          std::max(kGrantedUnasked, found == granted().end() ? 0 : found->second),
          launch.site};
}

}  // namespace safeops::emulator

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(safeops::emulator::Launch launch, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  // Parameters are copied byte by byte to the device.
  static_assert((std::is_trivially_copyable_v<Parameters> && ...));
  static_assert((sizeof(Parameters) + ... + 0) <= 4096);
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  } call{kernel, {Parameters(arguments)...}};
  safeops::emulator::run_grid(
      safeops::emulator::grid_of(launch, reinterpret_cast<const void*>(kernel)),
      [](void* context) {
        Call& called = *static_cast<Call*>(context);
        std::apply(called.kernel, called.parameters);
      },
      &call);
  return cudaSuccess;
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
  const auto bytes = static_cast<std::size_t>(value);
  if (value < 0 || bytes > safeops::emulator::limits().shared_memory) return cudaErrorInvalidValue;
  safeops::emulator::granted()[reinterpret_cast<const void*>(kernel)] = bytes;
  return cudaSuccess;
}

inline void __syncthreads(SAFEOPS_EMULATOR_SITE) { safeops::emulator::block_barrier({file, line}); }
inline void __syncwarp(unsigned mask = safeops::emulator::kFullMask, SAFEOPS_EMULATOR_SITE) {
  safeops::emulator::exchange(mask, 0, {file, line});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, SAFEOPS_EMULATOR_SITE) {
  return safeops::emulator::shuffled(mask, value, static_cast<unsigned>(source), width,
                                     {file, line});
}
/// Of a narrower segment no lane may ask for one outside it, as on the device none does.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize, SAFEOPS_EMULATOR_SITE) {
  return safeops::emulator::shuffled(
      mask, value, safeops::emulator::lane() ^ static_cast<unsigned>(lanes), width, {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SAFEOPS_EMULATOR_SITE) {
  const std::uint64_t* words = safeops::emulator::exchange(mask, predicate != 0, {file, line});
  unsigned set = 0;
  for (unsigned i = 0; i < safeops::emulator::kWarp; ++i)
    set |= static_cast<unsigned>(words[i]) << i;
  return set;
}
inline int __any_sync(unsigned mask, int predicate, SAFEOPS_EMULATOR_SITE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }

// Relaxed, as on the device: they order nothing else.
template <class T>
T atomicAdd(T* place, std::type_identity_t<T> value) {
  const safeops::emulator::AtomicOperation operation(place);
  return __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicExch(T* place, std::type_identity_t<T> value) {
  const safeops::emulator::AtomicOperation operation(place);
  return __atomic_exchange_n(place, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicCAS(T* place, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const safeops::emulator::AtomicOperation operation(place);
  __atomic_compare_exchange_n(place, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T>
T atomicMin(T* place, std::type_identity_t<T> value) {
  const safeops::emulator::AtomicOperation operation(place);
  T seen = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (value < seen && !__atomic_compare_exchange_n(place, &seen, value, false, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {
  }
  return seen;
}

inline void __threadfence() { safeops::emulator::memory_fence(); }
inline void __threadfence_block() { safeops::emulator::memory_fence(); }
inline void __threadfence_system() { safeops::emulator::memory_fence(); }

#undef SAFEOPS_EMULATOR_SITE
