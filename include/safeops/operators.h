#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "safeops/export.h"
#include "safeops/policy.h"

namespace safeops {

/// y = x / n with n = ||x||_p over the row, the elements along `dim`; gradient (g - w <g, y>) / n
/// with w = dn/dx (p = 2: w = y). The row is singular where n is exactly zero, or below eps; there
///
/// | policy         | y              | gradient |
/// |----------------|----------------|----------|
/// | stock, epsilon | x / max(n,eps) | g / eps  |
/// | nan            | NaN            | NaN      |
/// | zero           | 0              | 0        |
/// | raise          | c10::ValueError | c10::ValueError, or 0 where g is 0 |
///
/// @param input  any shape and strides; float16, bfloat16, float32, float64, complex64 or
/// complex128
/// @param p      any order but NaN, +-infinity and 0 included
/// @param dim    one or several dimensions, negative ones counted from the end; none means all
/// @param eps    threshold of the norm; default 1e-12 under stock and epsilon (float16 under
/// epsilon: 2^-14), else 0
/// @param policy default: the innermost PolicyGuard of this thread, else stock
/// @throws c10::ValueError       bad p, eps or policy; a singular row under raise
/// @throws c10::IndexError       dim out of range
/// @throws c10::NotImplementedError  another dtype or a tensor that is not dense
/// @return a tensor of the shape, dtype and memory format of input
SAFEOPS_EXPORT at::Tensor normalize(const at::Tensor& input, double p = 2.0,
                                    at::IntArrayRef dim = 1,
                                    std::optional<double> eps = std::nullopt,
                                    std::optional<Policy> policy = std::nullopt);

/// The same into `out`, which is resized if need be and written only if nothing fails. Not
/// differentiable.
SAFEOPS_EXPORT at::Tensor& normalize_out(at::Tensor& out, const at::Tensor& input, double p = 2.0,
                                         at::IntArrayRef dim = 1,
                                         std::optional<double> eps = std::nullopt,
                                         std::optional<Policy> policy = std::nullopt);

}  // namespace safeops
