#pragma once

#include <cstddef>

// The second implementation of float32 rows (tests/cases/softmax_xsimd.h), compiled for one
// instruction set a file.
namespace safeops {

struct SoftmaxPeer {
  const char* name;
  bool (*supported)();
  void (*forward)(const float* x, std::size_t rows, std::size_t length, float* y);
  void (*logsumexp)(const float* x, std::size_t rows, std::size_t length, float* result);
  void (*backward)(const float* g, const float* y, std::size_t rows, std::size_t length,
                   float* grad);
};

template <class Softmax>
SoftmaxPeer softmax_peer(const char* name, bool (*supported)()) {
  return {name, supported,
          [](const float* x, std::size_t rows, std::size_t length, float* y) {
            for (std::size_t r = 0; r < rows; ++r)
              Softmax::forward(x + r * length, length, y + r * length);
          },
          [](const float* x, std::size_t rows, std::size_t length, float* result) {
            for (std::size_t r = 0; r < rows; ++r)
              result[r] = Softmax::logsumexp(x + r * length, length);
          },
          [](const float* g, const float* y, std::size_t rows, std::size_t length, float* grad) {
            for (std::size_t r = 0; r < rows; ++r)
              Softmax::backward(g + r * length, y + r * length, length, grad + r * length);
          }};
}

SoftmaxPeer softmax_peer_avx2();
SoftmaxPeer softmax_peer_avx512();

}  // namespace safeops
