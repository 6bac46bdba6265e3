// The vocabulary on one lane of a CUDA thread: loads and stores. Conversions of half types are the
// instructions for it, which round to nearest even as from_real does; a NaN may have other bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/lanes_cuda.h"

SAFEOPS_BEGIN_LANES

template <class E>
using RealOf = Lanes<typename ElementTraits<E>::Real>;

SAFEOPS_INLINE Lanes<float> as_real(float x) { return x; }
SAFEOPS_INLINE Lanes<double> as_real(double x) { return x; }
SAFEOPS_INLINE Lanes<float> as_real(float16 x) { return __half2float(std::bit_cast<__half>(x)); }
SAFEOPS_INLINE Lanes<float> as_real(bfloat16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

template <class E>
SAFEOPS_INLINE E as_element(RealOf<E> x) {
  if constexpr (std::is_same_v<E, float16>) {
    return std::bit_cast<float16>(__float2half_rn(x.raw));
  } else if constexpr (std::is_same_v<E, bfloat16>) {
    return std::bit_cast<bfloat16>(__float2bfloat16_rn(x.raw));
  } else {
    return x.raw;
  }
}

// x as an element of type E holds it.
template <class E, class Real>
SAFEOPS_INLINE Real rounded_to_element(Real x) {
  return as_real(as_element<E>(x));
}

SAFEOPS_END_LANES
