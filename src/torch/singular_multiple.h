#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/masked_fill.h>

namespace safeops {

/// factor * u where the row or element is singular, 0 elsewhere. A linear map of u also for NaN and
/// infinity: a constant would have the derivative 0.
inline at::Tensor singular_multiple(const at::Tensor& u, const at::Tensor& singular,
                                    double factor) {
  const at::Tensor regular = singular.logical_not();
  return (u.masked_fill(regular, 0) * factor).masked_fill(regular, 0);
}

}  // namespace safeops
