#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

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

/// y = a / b, element by element; gradients g / b of a and -g (a / b) / b of b. An element is
/// singular where b is zero, of either sign, or abs(b) is below eps, unless a is NaN; there, with
/// b' = copysign(eps, b),
///
/// | policy  | y               | gradient of a                         | of b           |
/// |---------|-----------------|---------------------------------------|----------------|
/// | stock   | a / b: inf, NaN | g / b                                 | -g (a / b) / b |
/// | nan     | NaN             | NaN                                   | NaN            |
/// | epsilon | a / b'          | g / b'                                | 0              |
/// | zero    | 0               | 0                                     | 0              |
/// | raise   | c10::ValueError | c10::ValueError, or 0 where g is 0    | the same       |
///
/// Quotients of real numbers are rounded correctly; those of complex numbers are scaled on the way,
/// b' is eps b / abs(b) there, eps at b = 0. With a rounding mode the quotient is rounded and has
/// no slope; integers then stay integers: a divisor of 0 gives 0 under zero and an error otherwise,
/// and epsilon is refused. Without one they are promoted to the default dtype.
///
/// @param input  a, of any shape, strides and dtype; promoted with other as by torch
/// @param other  b, a tensor that broadcasts with input, or a number
/// @param rounding_mode  "trunc": towards zero; "floor": down
/// @param eps    threshold of abs(b); default 1e-12 under epsilon (float16 result: 2^-14), else 0;
/// integers have none
/// @param policy default: the innermost PolicyGuard of this thread, else stock
/// @throws c10::ValueError       bad eps or policy; a singular element under raise
/// @throws c10::NotImplementedError  a dtype that cannot be divided, or rounded; a tensor that is
/// not dense
/// @throws c10::Error            shapes that do not broadcast, another rounding mode, an integer
/// divisor of 0
/// @return a tensor of the broadcast shape, the promoted dtype and torch's strides
SAFEOPS_EXPORT at::Tensor div(const at::Tensor& input, const at::Tensor& other,
                              std::optional<std::string_view> rounding_mode = std::nullopt,
                              std::optional<double> eps = std::nullopt,
                              std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor div(const at::Tensor& input, const at::Scalar& other,
                              std::optional<std::string_view> rounding_mode = std::nullopt,
                              std::optional<double> eps = std::nullopt,
                              std::optional<Policy> policy = std::nullopt);

/// The same into `out`, whose dtype must be one that the result can be cast to; resized if need be
/// and written only if nothing fails. Not differentiable.
SAFEOPS_EXPORT at::Tensor& div_out(at::Tensor& out, const at::Tensor& input,
                                   const at::Tensor& other,
                                   std::optional<std::string_view> rounding_mode = std::nullopt,
                                   std::optional<double> eps = std::nullopt,
                                   std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& div_out(at::Tensor& out, const at::Tensor& input,
                                   const at::Scalar& other,
                                   std::optional<std::string_view> rounding_mode = std::nullopt,
                                   std::optional<double> eps = std::nullopt,
                                   std::optional<Policy> policy = std::nullopt);

/// The same in place of input, whose shape must be that of the result. Differentiable, as torch's.
SAFEOPS_EXPORT at::Tensor& div_(at::Tensor& input, const at::Tensor& other,
                                std::optional<std::string_view> rounding_mode = std::nullopt,
                                std::optional<double> eps = std::nullopt,
                                std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& div_(at::Tensor& input, const at::Scalar& other,
                                std::optional<std::string_view> rounding_mode = std::nullopt,
                                std::optional<double> eps = std::nullopt,
                                std::optional<Policy> policy = std::nullopt);

/// Other names of div.
inline at::Tensor divide(const at::Tensor& input, const at::Tensor& other,
                         std::optional<std::string_view> rounding_mode = std::nullopt,
                         std::optional<double> eps = std::nullopt,
                         std::optional<Policy> policy = std::nullopt) {
  return div(input, other, rounding_mode, eps, policy);
}
inline at::Tensor& divide_out(at::Tensor& out, const at::Tensor& input, const at::Tensor& other,
                              std::optional<std::string_view> rounding_mode = std::nullopt,
                              std::optional<double> eps = std::nullopt,
                              std::optional<Policy> policy = std::nullopt) {
  return div_out(out, input, other, rounding_mode, eps, policy);
}
inline at::Tensor& divide_(at::Tensor& input, const at::Tensor& other,
                           std::optional<std::string_view> rounding_mode = std::nullopt,
                           std::optional<double> eps = std::nullopt,
                           std::optional<Policy> policy = std::nullopt) {
  return div_(input, other, rounding_mode, eps, policy);
}
inline at::Tensor divide(const at::Tensor& input, const at::Scalar& other,
                         std::optional<std::string_view> rounding_mode = std::nullopt,
                         std::optional<double> eps = std::nullopt,
                         std::optional<Policy> policy = std::nullopt) {
  return div(input, other, rounding_mode, eps, policy);
}
inline at::Tensor& divide_out(at::Tensor& out, const at::Tensor& input, const at::Scalar& other,
                              std::optional<std::string_view> rounding_mode = std::nullopt,
                              std::optional<double> eps = std::nullopt,
                              std::optional<Policy> policy = std::nullopt) {
  return div_out(out, input, other, rounding_mode, eps, policy);
}
inline at::Tensor& divide_(at::Tensor& input, const at::Scalar& other,
                           std::optional<std::string_view> rounding_mode = std::nullopt,
                           std::optional<double> eps = std::nullopt,
                           std::optional<Policy> policy = std::nullopt) {
  return div_(input, other, rounding_mode, eps, policy);
}
inline at::Tensor true_divide(const at::Tensor& input, const at::Tensor& other,
                              std::optional<double> eps = std::nullopt,
                              std::optional<Policy> policy = std::nullopt) {
  return div(input, other, std::nullopt, eps, policy);
}
inline at::Tensor& true_divide_out(at::Tensor& out, const at::Tensor& input,
                                   const at::Tensor& other,
                                   std::optional<double> eps = std::nullopt,
                                   std::optional<Policy> policy = std::nullopt) {
  return div_out(out, input, other, std::nullopt, eps, policy);
}
inline at::Tensor& true_divide_(at::Tensor& input, const at::Tensor& other,
                                std::optional<double> eps = std::nullopt,
                                std::optional<Policy> policy = std::nullopt) {
  return div_(input, other, std::nullopt, eps, policy);
}
inline at::Tensor true_divide(const at::Tensor& input, const at::Scalar& other,
                              std::optional<double> eps = std::nullopt,
                              std::optional<Policy> policy = std::nullopt) {
  return div(input, other, std::nullopt, eps, policy);
}
inline at::Tensor& true_divide_out(at::Tensor& out, const at::Tensor& input,
                                   const at::Scalar& other,
                                   std::optional<double> eps = std::nullopt,
                                   std::optional<Policy> policy = std::nullopt) {
  return div_out(out, input, other, std::nullopt, eps, policy);
}
inline at::Tensor& true_divide_(at::Tensor& input, const at::Scalar& other,
                                std::optional<double> eps = std::nullopt,
                                std::optional<Policy> policy = std::nullopt) {
  return div_(input, other, std::nullopt, eps, policy);
}

/// y = 1 / x: div with a = 1. Integers are promoted to the default dtype. `_out` and `_` as those
/// of div.
SAFEOPS_EXPORT at::Tensor reciprocal(const at::Tensor& input,
                                     std::optional<double> eps = std::nullopt,
                                     std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& reciprocal_out(at::Tensor& out, const at::Tensor& input,
                                          std::optional<double> eps = std::nullopt,
                                          std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& reciprocal_(at::Tensor& input, std::optional<double> eps = std::nullopt,
                                       std::optional<Policy> policy = std::nullopt);

/// y = 1 / sqrt(x), gradient -g y^3 / 2. An element is singular where x is zero, of either sign,
/// negative, or below eps; there
///
/// | policy  | y               | gradient                           |
/// |---------|-----------------|------------------------------------|
/// | stock   | inf, or NaN     | that of IEEE 754                   |
/// | nan     | NaN             | NaN                                |
/// | epsilon | 1 / sqrt(eps)   | 0                                  |
/// | zero    | 0               | 0                                  |
/// | raise   | c10::ValueError | c10::ValueError, or 0 where g is 0 |
///
/// Complex numbers are singular where they are zero, or of a modulus below eps; epsilon raises the
/// modulus to eps. Integers are promoted to the default dtype. Backward reads input: it must not be
/// changed in place before; the result may be. `_out` and `_` as those of div.
///
/// @param eps    threshold of x; default 1e-12 under epsilon (float16: 2^-14), else 0
/// @param policy default: the innermost PolicyGuard of this thread, else stock
/// @throws c10::ValueError       bad eps or policy; a singular element under raise
/// @throws c10::NotImplementedError  another dtype or a tensor that is not dense
SAFEOPS_EXPORT at::Tensor rsqrt(const at::Tensor& input, std::optional<double> eps = std::nullopt,
                                std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& rsqrt_out(at::Tensor& out, const at::Tensor& input,
                                     std::optional<double> eps = std::nullopt,
                                     std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& rsqrt_(at::Tensor& input, std::optional<double> eps = std::nullopt,
                                  std::optional<Policy> policy = std::nullopt);

/// y = sqrt(x), gradient g / (2 y). As rsqrt, with sqrt(eps) under epsilon; but 0 is a regular
/// value at x = 0, and singular in backward alone, under every policy except epsilon.
SAFEOPS_EXPORT at::Tensor sqrt(const at::Tensor& input, std::optional<double> eps = std::nullopt,
                               std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& sqrt_out(at::Tensor& out, const at::Tensor& input,
                                    std::optional<double> eps = std::nullopt,
                                    std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& sqrt_(at::Tensor& input, std::optional<double> eps = std::nullopt,
                                 std::optional<Policy> policy = std::nullopt);

/// y = ln x, gradient g / x. As rsqrt, with log(eps) under epsilon.
SAFEOPS_EXPORT at::Tensor log(const at::Tensor& input, std::optional<double> eps = std::nullopt,
                              std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& log_out(at::Tensor& out, const at::Tensor& input,
                                   std::optional<double> eps = std::nullopt,
                                   std::optional<Policy> policy = std::nullopt);
SAFEOPS_EXPORT at::Tensor& log_(at::Tensor& input, std::optional<double> eps = std::nullopt,
                                std::optional<Policy> policy = std::nullopt);

}  // namespace safeops
