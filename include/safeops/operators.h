#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
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

/// y = e^x / s with s = sum e^x over the row, the elements along `dim` that take part; gradient
/// y (g - <y, g>). A row is empty, and so singular, where every element that takes part is
/// -infinity, or none takes part; there
///
/// | policy        | y               | gradient |
/// |---------------|-----------------|----------|
/// | stock, nan    | NaN             | NaN      |
/// | epsilon, zero | 0               | 0        |
/// | raise         | c10::ValueError | c10::ValueError, or 0 where g is 0 |
///
/// Elements that take no part have y = 0 and gradient 0; in an empty row that is NaN, their y is
/// NaN as well. A row that holds NaN or +infinity is NaN under every policy.
///
/// @param input  any shape and strides; float16, bfloat16, float32 or float64, or what `dtype` can
/// be made of
/// @param dim    a dimension, negative ones counted from the end
/// @param dtype  of the result; default that of input. float16 and bfloat16 become float32 as they
/// are read; any other input is converted first
/// @param where  true: the element takes part; bool, expandable to the shape of input; default: all
/// do
/// @param eps    has no effect here, but is checked as for log_softmax
/// @param policy default: the innermost PolicyGuard of this thread, else stock
/// @throws c10::ValueError       bad eps or policy; an empty row under raise
/// @throws c10::IndexError       dim out of range
/// @throws c10::NotImplementedError  another dtype or a tensor that is not dense
/// @throws c10::Error            `where` of another dtype or device, or not expandable
/// @return a contiguous tensor of the shape of input
SAFEOPS_EXPORT at::Tensor softmax(const at::Tensor& input, std::int64_t dim,
                                  std::optional<at::ScalarType> dtype = std::nullopt,
                                  const std::optional<at::Tensor>& where = std::nullopt,
                                  std::optional<double> eps = std::nullopt,
                                  std::optional<Policy> policy = std::nullopt);

/// The same into `out`, which must have the dtype of the result, is resized if need be and written
/// only if nothing fails. Not differentiable.
SAFEOPS_EXPORT at::Tensor& softmax_out(at::Tensor& out, const at::Tensor& input, std::int64_t dim,
                                       std::optional<at::ScalarType> dtype = std::nullopt,
                                       const std::optional<at::Tensor>& where = std::nullopt,
                                       std::optional<double> eps = std::nullopt,
                                       std::optional<Policy> policy = std::nullopt);

/// y = x - log s with s as for softmax; gradient g - e^y sum g. At an empty row
///
/// | policy     | y               | gradient |
/// |------------|-----------------|----------|
/// | stock, nan | NaN             | NaN      |
/// | epsilon    | log eps         | 0        |
/// | zero       | -infinity       | 0        |
/// | raise      | c10::ValueError | c10::ValueError, or 0 where g is 0 |
///
/// Elements that take no part have y = -infinity where they have 0 under softmax, also under
/// epsilon. All else is as for softmax.
///
/// @param eps finite, not negative, positive under epsilon; default 1e-12 there (float16 result:
/// 2^-14)
SAFEOPS_EXPORT at::Tensor log_softmax(const at::Tensor& input, std::int64_t dim,
                                      std::optional<at::ScalarType> dtype = std::nullopt,
                                      const std::optional<at::Tensor>& where = std::nullopt,
                                      std::optional<double> eps = std::nullopt,
                                      std::optional<Policy> policy = std::nullopt);

/// The same into `out`, as softmax_out.
SAFEOPS_EXPORT at::Tensor& log_softmax_out(at::Tensor& out, const at::Tensor& input,
                                           std::int64_t dim,
                                           std::optional<at::ScalarType> dtype = std::nullopt,
                                           const std::optional<at::Tensor>& where = std::nullopt,
                                           std::optional<double> eps = std::nullopt,
                                           std::optional<Policy> policy = std::nullopt);

/// l = log sum e^x over the row, the elements along `dim` that take part; gradient g e^(x - l), 0
/// for elements that take no part. At an empty row
///
/// | policy        | l               | gradient |
/// |---------------|-----------------|----------|
/// | stock, nan    | -infinity       | NaN      |
/// | epsilon, zero | -infinity       | 0        |
/// | raise         | c10::ValueError | c10::ValueError, or 0 where g is 0 |
///
/// A row that holds NaN gives NaN, one that holds +infinity gives +infinity; a row of no elements
/// at all gives -infinity and is not counted.
///
/// @param input   any shape and strides; a real or complex floating-point dtype, an integer or
/// bool, which are converted to the default dtype. Complex tensors are left to torch::logsumexp: no
/// policy applies to them and nothing is counted
/// @param dim     one or several dimensions, negative ones counted from the end; none means all
/// @param keepdim true: the reduced dimensions stay, with size 1
/// @param where   true: the element takes part; bool, expandable to the shape of input; default:
/// all do
/// @param policy  default: the innermost PolicyGuard of this thread, else stock
/// @throws c10::ValueError       bad policy; an empty row under raise
/// @throws c10::IndexError       dim out of range
/// @throws c10::NotImplementedError  another dtype or a tensor that is not dense
/// @throws c10::Error            a dim named twice; `where` of another dtype or device, or not
/// expandable
/// @return a tensor of the dtype of input, without the reduced dimensions unless keepdim
SAFEOPS_EXPORT at::Tensor logsumexp(const at::Tensor& input, at::IntArrayRef dim,
                                    bool keepdim = false,
                                    const std::optional<at::Tensor>& where = std::nullopt,
                                    std::optional<Policy> policy = std::nullopt);

/// The same into `out`, whose dtype must be one that the result can be cast to; resized if need be
/// and written only if nothing fails. Not differentiable.
SAFEOPS_EXPORT at::Tensor& logsumexp_out(at::Tensor& out, const at::Tensor& input,
                                         at::IntArrayRef dim, bool keepdim = false,
                                         const std::optional<at::Tensor>& where = std::nullopt,
                                         std::optional<Policy> policy = std::nullopt);

}  // namespace safeops
