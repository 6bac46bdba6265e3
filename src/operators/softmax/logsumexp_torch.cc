#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logsumexp.h>
#include <torch/library.h>

#include <limits>

#include "core/row_values.h"
#include "operators/softmax/softmax_torch.h"
#include "torch/execution.h"
#include "torch/outcome.h"

namespace safeops {

using at::IntArrayRef;
using Dims = std::vector<std::int64_t>;

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}  // namespace

Tensor complex_logsumexp(const Tensor& self, const Dims& dims, bool keepdim,
                         const OptionalTensor& where) {
  const Tensor mask = expanded(where, self);
  // torch takes an empty list as none, not as all; of a 0-d tensor it takes [0].
  return at::logsumexp(mask.defined() ? self.masked_fill(mask.logical_not(), -kInfinity) : self,
                       dims.empty() ? Dims{0} : dims, keepdim);
}

namespace {

// float64, with the reduced dims kept as size 1; counts hits.
Tensor computed(const Tensor& self, const Dims& dims, const OptionalTensor& where, Policy policy) {
  Tensor lse = empty_row_value(self, dims);
  if (self.numel() == 0) lse.fill_(-kInfinity);  // log of the sum of nothing; no kernel runs
  RowArguments arguments;
  arguments.save = lse.mutable_data_ptr<double>();
  run_softmax({SoftmaxKind::logsumexp, Direction::forward, policy, 0},
              {{self}, Tensor(), expanded(where, self)}, self, dims, arguments);
  return lse;
}

// In the dtype of the input, which the caller's flush-to-zero mode, known to the CPU alone, does
// not change.
Tensor rounded(const Tensor& lse, at::ScalarType dtype) {
  if (dtype == at::kDouble || lse.is_cuda()) return lse.to(dtype);
  const Tensor result = at::empty(lse.sizes(), lse.options().dtype(dtype));
  round_row_values(lse.const_data_ptr<double>(), static_cast<std::size_t>(lse.numel()),
                   element_of(dtype).value(), result.mutable_data_ptr());
  return result;
}
Tensor widened(const Tensor& values) {
  const Tensor from = values.contiguous();
  if (from.scalar_type() == at::kDouble || from.is_cuda()) return from.to(at::kDouble);
  Tensor result = at::empty(from.sizes(), from.options().dtype(at::kDouble));
  widen_row_values(element_of(from.scalar_type()).value(), from.const_data_ptr(),
                   static_cast<std::size_t>(from.numel()), result.mutable_data_ptr<double>());
  return result;
}

Tensor logsumexp_kernel(const Tensor& self, IntArrayRef dim, bool keepdim,
                        const OptionalTensor& where, std::string_view policy) {
  check_has_kernels(Operator::logsumexp, self);
  const Dims dims = checked_logsumexp_dims(self, dim, where, policy);
  const Tensor x = self.to(logsumexp_dtype(self));
  if (x.is_complex()) return complex_logsumexp(x, dims, keepdim, where);
  const Policy chosen = checked_policy(Operator::logsumexp, policy);
  return squeezed(rounded(computed(x, dims, where, chosen), x.scalar_type()), dims, keepdim);
}

void out_kernel(const Tensor& self, IntArrayRef dim, bool keepdim, const OptionalTensor& where,
                std::string_view policy, Tensor& out) {
  check_has_kernels(Operator::logsumexp, self);
  const at::ScalarType dtype = logsumexp_dtype(self);
  check_out(Operator::logsumexp, self, dtype, OutDtype::castable, out);
  at::assert_no_internal_overlap(out);
  const Tensor result = logsumexp_kernel(self, dim, keepdim, where, policy);
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

// Of the inner operators, which take no complex tensors.
Dims checked_inner(const char* direction, const Tensor& self, IntArrayRef dim,
                   const OptionalTensor& where, std::string_view policy) {
  TORCH_CHECK(element_of(self.scalar_type()) && !self.is_complex(), "safeops::_logsumexp_",
              direction, ": self must be float16, bfloat16, float32 or float64, got ",
              dtype_name(self.scalar_type()), "; convert it first, for example with self.float()");
  return checked_logsumexp_dims(self, dim, where, policy);
}

std::tuple<Tensor, Tensor> forward_kernel(const Tensor& self, IntArrayRef dim,
                                          const OptionalTensor& where, std::string_view policy) {
  check_has_kernels(Operator::logsumexp, self);
  const Dims dims = checked_inner("forward", self, dim, where, policy);
  const Tensor lse = computed(self, dims, where, checked_policy(Operator::logsumexp, policy));
  const Tensor out = rounded(lse, self.scalar_type());
  return {out.is_same(lse) ? lse.clone() : out, lse};
}

Dims checked_backward(const Tensor& grad, const Tensor& self, const Tensor& lse,
                      const OptionalTensor& where, IntArrayRef dim, std::string_view policy) {
  check_device_of(Operator::logsumexp, "self", self, grad);
  check_device_of(Operator::logsumexp, "lse", lse, grad);
  Dims dims = checked_inner("backward", self, dim, where, policy);
  TORCH_CHECK(is_row_value(grad, self, dims, self.scalar_type()),
              "safeops::_logsumexp_backward: grad must have the shape and dtype of out, ",
              lse.sym_sizes(), " of ", dtype_name(self.scalar_type()), ", got ", grad.sym_sizes(),
              " of ", dtype_name(grad.scalar_type()), "; pass the gradient of out");
  TORCH_CHECK(is_row_value(lse, self, dims),
              "safeops::_logsumexp_backward: lse must be the float64 one that _logsumexp_forward "
              "returned, got ",
              lse.sym_sizes(), " of ", dtype_name(lse.scalar_type()), "; pass its second output");
  return dims;
}

// Contiguous whatever the strides of the input.
Tensor empty_gradient(const Tensor& self) {
  return at::empty_symint(self.sym_sizes(), self.options().memory_format(std::nullopt));
}

Tensor backward_kernel(const Tensor& grad, const Tensor& self, const Tensor& lse,
                       const OptionalTensor& where, IntArrayRef dim, std::string_view policy) {
  check_has_kernels(Operator::logsumexp, grad);
  const Dims dims = checked_backward(grad, self, lse, where, dim, policy);
  const Tensor values = lse.contiguous(), row_gradients = widened(grad);
  Tensor gradient = empty_gradient(self);
  RowArguments arguments;
  arguments.saved = values.const_data_ptr<double>();
  arguments.row_gradient = row_gradients.const_data_ptr<double>();
  run_softmax(
      {SoftmaxKind::logsumexp, Direction::backward, checked_policy(Operator::logsumexp, policy), 0},
      {{self}, gradient, expanded(where, self)}, self, dims, arguments);
  return gradient;
}

Tensor empty_out(const Tensor& self, const Dims& dims, at::ScalarType dtype) {
  const Tensor lse = empty_row_value(self, dims);
  return at::empty_symint(lse.sym_sizes(), lse.options().dtype(dtype));
}

Tensor logsumexp_meta(const Tensor& self, IntArrayRef dim, bool keepdim,
                      const OptionalTensor& where, std::string_view policy) {
  const Dims dims = checked_logsumexp_dims(self, dim, where, policy);
  const at::ScalarType dtype = logsumexp_dtype(self);
  if (self.is_complex()) return complex_logsumexp(self, dims, keepdim, where);
  return squeezed(empty_out(self, dims, dtype), dims, keepdim);
}

void out_meta(const Tensor& self, IntArrayRef dim, bool keepdim, const OptionalTensor& where,
              std::string_view policy, Tensor& out) {
  check_out(Operator::logsumexp, self, logsumexp_dtype(self), OutDtype::castable, out);
  const Tensor result = logsumexp_meta(self, dim, keepdim, where, policy);
  at::native::resize_output_symint(out, result.sym_sizes());
}

std::tuple<Tensor, Tensor> forward_meta(const Tensor& self, IntArrayRef dim,
                                        const OptionalTensor& where, std::string_view policy) {
  const Dims dims = checked_inner("forward", self, dim, where, policy);
  return {empty_out(self, dims, self.scalar_type()), empty_row_value(self, dims)};
}

Tensor backward_meta(const Tensor& grad, const Tensor& self, const Tensor& lse,
                     const OptionalTensor& where, IntArrayRef dim, std::string_view policy) {
  checked_backward(grad, self, lse, where, dim, policy);
  return empty_gradient(self);
}

void register_kernels(torch::Library& library) {
  library.impl("logsumexp", logsumexp_kernel);
  library.impl("logsumexp.out", out_kernel);
  library.impl("_logsumexp_forward", forward_kernel);
  library.impl("_logsumexp_backward", backward_kernel);
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, CPU, library) { register_kernels(library); }
TORCH_LIBRARY_IMPL(safeops, CUDA, library) { register_kernels(library); }

TORCH_LIBRARY_IMPL(safeops, Meta, library) {
  library.impl("logsumexp", logsumexp_meta);
  library.impl("logsumexp.out", out_meta);
  library.impl("_logsumexp_forward", forward_meta);
  library.impl("_logsumexp_backward", backward_meta);
}

}  // namespace safeops
