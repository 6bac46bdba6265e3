// Which compiler reads the lane code: Highway (once per SIMD target), a CUDA compiler, or plain
// C++. All macros of the project are in this file.
#pragma once

#if defined(SAFEOPS_HIGHWAY)
#include "hwy/highway.h"

#define SAFEOPS_BEGIN_LANES \
  HWY_BEFORE_NAMESPACE();   \
  namespace safeops {       \
  namespace HWY_NAMESPACE {
#define SAFEOPS_END_LANES \
  }                       \
  }                       \
  HWY_AFTER_NAMESPACE();
#define SAFEOPS_INLINE HWY_INLINE
// A lambda inherits neither the target of its surroundings nor their inlining, so every one says so
// itself.
#define SAFEOPS_LANES HWY_ATTR __attribute__((always_inline))
#elif defined(SAFEOPS_CUDA)
#include <cuda_runtime.h>

#define SAFEOPS_BEGIN_LANES \
  namespace safeops {       \
  namespace device {
#define SAFEOPS_END_LANES \
  }                       \
  }
#define SAFEOPS_INLINE __device__ __forceinline__
// The closure of a device function is device code.
#define SAFEOPS_LANES
// Whoever emulates a device brings its own.
#ifndef SAFEOPS_SHARED_MEMORY
#define SAFEOPS_SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]
#endif
#else
#define SAFEOPS_BEGIN_LANES \
  namespace safeops {       \
  namespace scalar {
#define SAFEOPS_END_LANES \
  }                       \
  }
#define SAFEOPS_INLINE inline
#define SAFEOPS_LANES
#endif

#if defined(SAFEOPS_UNROLL)
// An emulator, for which it is not worth the time to compile.
#elif defined(__clang__) || defined(__CUDACC__)
#define SAFEOPS_UNROLL _Pragma("unroll")
#else
#define SAFEOPS_UNROLL _Pragma("GCC unroll 16")
#endif

// A loop of which copies would only make the kernel long.
#if defined(__CUDACC__)
#define SAFEOPS_ROLL _Pragma("unroll 1")
#else
#define SAFEOPS_ROLL
#endif
