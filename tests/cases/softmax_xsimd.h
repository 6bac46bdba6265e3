#pragma once

#include <xsimd/xsimd.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace safeops::cases {

// The textbook softmax of regular float32 rows, in xsimd: a peer for speed, and a second opinion
// that shares no line with the kernels. Its accuracy is what subtracting the maximum and adding in
// float32 give: relative to a term, some ulp more than the logits have.

template <class Arch>
struct XsimdSoftmax {
  using Batch = xsimd::batch<float, Arch>;
  static constexpr std::size_t kLanes = Batch::size;

  static float largest(const float* x, std::size_t length) {
    Batch best(-std::numeric_limits<float>::infinity());
    std::size_t i = 0;
    for (; i + kLanes <= length; i += kLanes) best = xsimd::max(best, Batch::load_unaligned(x + i));
    alignas(Arch::alignment()) float lanes[kLanes];
    best.store_aligned(lanes);
    float result = *std::max_element(lanes, lanes + kLanes);
    for (; i < length; ++i) result = std::max(result, x[i]);
    return result;
  }

  /// Sum of exp(x - shift), each term also stored where `terms` is not null.
  static float sum(const float* x, std::size_t length, float shift, float* terms) {
    Batch total(0.0f);
    std::size_t i = 0;
    for (; i + kLanes <= length; i += kLanes) {
      const Batch term = xsimd::exp(Batch::load_unaligned(x + i) - Batch(shift));
      total += term;
      if (terms != nullptr) term.store_unaligned(terms + i);
    }
    float result = xsimd::hadd(total);
    for (; i < length; ++i) {
      const float term = std::exp(x[i] - shift);
      result += term;
      if (terms != nullptr) terms[i] = term;
    }
    return result;
  }

  static void forward(const float* x, std::size_t length, float* y) {
    const float scale = 1 / sum(x, length, largest(x, length), y);
    std::size_t i = 0;
    for (; i + kLanes <= length; i += kLanes)
      (Batch::load_unaligned(y + i) * Batch(scale)).store_unaligned(y + i);
    for (; i < length; ++i) y[i] *= scale;
  }

  static float logsumexp(const float* x, std::size_t length) {
    const float shift = largest(x, length);
    return shift + std::log(sum(x, length, shift, nullptr));
  }

  static void backward(const float* g, const float* y, std::size_t length, float* grad) {
    Batch total(0.0f);
    std::size_t i = 0;
    for (; i + kLanes <= length; i += kLanes)
      total = xsimd::fma(Batch::load_unaligned(g + i), Batch::load_unaligned(y + i), total);
    float dot = xsimd::hadd(total);
    for (; i < length; ++i) dot += g[i] * y[i];
    for (i = 0; i + kLanes <= length; i += kLanes) {
      const Batch difference = Batch::load_unaligned(g + i) - Batch(dot);
      (difference * Batch::load_unaligned(y + i)).store_unaligned(grad + i);
    }
    for (; i < length; ++i) grad[i] = (g[i] - dot) * y[i];
  }
};

}  // namespace safeops::cases
