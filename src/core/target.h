// Which compiler reads the lane code: Highway (once per SIMD target) or plain C++.
// All macros of the project are in this file.
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

#ifdef __clang__
#define SAFEOPS_UNROLL _Pragma("unroll")
#else
#define SAFEOPS_UNROLL _Pragma("GCC unroll 16")
#endif
