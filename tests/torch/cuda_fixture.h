#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "torch/host_cuda.h"
#include "torch/interface.h"

namespace safeops {

/// Rows 1 and 3 are zero.
inline at::Tensor singular_rows() {
  return at::tensor({3.0, 4.0, 0.0, 0.0, 6.0, 8.0, 0.0, 0.0}).view({4, 2});
}
inline at::Tensor regular_rows() { return at::tensor({3.0, 4.0, 6.0, 8.0}).view({2, 2}); }
inline at::Tensor normalized() { return at::tensor({0.6, 0.8, 0.6, 0.8}).view({2, 2}); }

class CudaExecution : public Interface {
 protected:
  void SetUp() override {
    set_cuda_backend(&host_cuda());
    normalize_forward_on_cuda.function = normalize_on_host;
    normalize_backward_on_cuda.function = normalize_backward_on_host;
    Interface::SetUp();
    host_launches().clear();
    host_cuda().waits = host_cuda().waits_while_capturing = 0;
  }
  void TearDown() override {
    EXPECT_EQ(host_cuda().waits_while_capturing, 0);
    host_cuda().capturing.fill(false);
    host_cuda().fails = false;
    const char* sentence = nullptr;
    safeops_check(&sentence);
    diagnostics::set_raise_mode(RaiseMode::deferred);
    Interface::TearDown();
    normalize_forward_on_cuda.function = normalize_backward_on_cuda.function = nullptr;
    set_cuda_backend(nullptr);
  }
};

inline std::string next_error(int device = 0) {
  return message_of<c10::ValueError>([&] { normalize(on_cuda(regular_rows(), device)); });
}

/// What is counted of normalize on CUDA in the forward direction.
inline std::uint64_t counted(Direction direction = Direction::forward) {
  std::uint64_t count = 0;
  for (const auto& record : diagnostics::snapshot()) {
    EXPECT_EQ(record.device, Device::cuda);
    if (record.direction == direction) count += record.count;
  }
  return count;
}

inline at::Tensor raising(const at::Tensor& x) {
  return normalize(x, 2, 1, std::nullopt, Policy::raise);
}

}  // namespace safeops
