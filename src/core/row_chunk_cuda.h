// Rows too long for shared memory whose order of summation leaves the adding to one warp: it adds
// from shared memory, while the other warps of the block bring in what comes next.
#pragma once

#include "core/row_memory_cuda.h"

SAFEOPS_BEGIN_LANES

// Of each of two buffers.
inline constexpr size_t kChunkBytes = 4096;

// A chunk of elements, or of terms, of `columns` rows side by side.
template <class Real, size_t kInputs>
class Chunk {
 public:
  using Scalar = typename Real::Scalar;
  // A whole number of leaves, whatever the columns.
  static constexpr size_t kNumbers = kChunkBytes / (kInputs * sizeof(Scalar));

  SAFEOPS_INLINE Chunk(unsigned char* buffers, unsigned which, size_t first, size_t columns,
                       size_t column)
      : at_(reinterpret_cast<Scalar*>(buffers + which * kChunkBytes) + column),
        first_(first),
        columns_(columns) {}
  SAFEOPS_INLINE Elements<Real, kInputs> at(size_t j) const {
    Elements<Real, kInputs> x;
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) x.of[k] =
        at_[k * kNumbers + (j - first_) * columns_];
    return x;
  }
  SAFEOPS_INLINE void put(size_t j, const Elements<Real, kInputs>& x) const {
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k)
        at_[k * kNumbers + (j - first_) * columns_] = x.of[k].raw;
  }

 private:
  Scalar* at_;
  size_t first_, columns_;
};

// bring(buffer, first, last, thread, threads) is called for every `length` elements from `begin`
// by some threads, then add(buffer, first, last) by warp 0. The whole block must call.
template <class Bring, class Add>
SAFEOPS_INLINE void add_by_chunks(size_t begin, size_t end, size_t length, Bring bring, Add add) {
  const bool adds = threadIdx.x < kWarp, alone = blockDim.x == kWarp;
  const auto end_from = [=](size_t first) { return first + length < end ? first + length : end; };
  bring(0u, begin, end_from(begin), threadIdx.x, blockDim.x);
  unsigned buffer = 0;
  for (size_t first = begin; first < end; first += length, buffer ^= 1) {
    __syncthreads();
    const size_t last = end_from(first);
    if (adds) add(buffer, first, last);
    if (last >= end || (adds && !alone)) continue;
    const unsigned others = alone ? 0 : kWarp;
    bring(buffer ^ 1, last, end_from(last), threadIdx.x - others, blockDim.x - others);
  }
  __syncthreads();
}

SAFEOPS_END_LANES
