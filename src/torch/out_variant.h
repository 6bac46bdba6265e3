#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>

#include "safeops/policy.h"

namespace safeops {

/// The result of an elementwise operator before it is computed.
struct EmptyResult {
  at::IntArrayRef sizes;
  at::ScalarType dtype;
  std::function<at::Tensor()> make;
};

/// Has `fill` write a result computed from `inputs` (undefined ones do not count) into `out`. It is
/// written to only when nothing can fail any more: a temporary takes what is not a plain write.
void fill_out(at::Tensor& out, std::initializer_list<at::Tensor> inputs, Policy policy,
              const EmptyResult& result, const std::function<void(const at::Tensor&)>& fill);

}  // namespace safeops
