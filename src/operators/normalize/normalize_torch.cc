#include <ATen/native/Resize.h>
#include <ATen/ops/div.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include <cmath>

#include "operators/normalize/normalize.h"
#include "operators/normalize/normalize_torch.h"
#include "torch/cuda_devices.h"
#include "torch/execution.h"
#include "torch/out_variant.h"
#include "torch/outcome.h"
#include "torch/rows_of_tensors.h"

namespace safeops {
namespace {

using at::IntArrayRef;

std::optional<NormOrder> fast_order(double p) {
  if (p == 2) return NormOrder::two;
  if (p == 1) return NormOrder::one;
  if (p == std::numeric_limits<double>::infinity()) return NormOrder::infinity;
  return std::nullopt;
}

// One direction: for the orders that have SIMD kernels, and for any other.
struct Kernels {
  Kernel<RowArguments, NormOrder> fast;
  void (*any)(const RowArguments& arguments, double p, bool complex, Executor& executor,
              Hits& hits);
};
constexpr Kernels kForward = {{normalize_forward, &normalize_forward_on_cuda},
                              normalize_forward_any};
constexpr Kernels kBackward = {{normalize_backward, &normalize_backward_on_cuda},
                               normalize_backward_any};

// Of one execution, besides its tensors.
struct NormalizeRun {
  Direction direction;
  double p, eps;
  Policy policy;
  const std::vector<std::int64_t>& dims;
};

[[noreturn]] void refuse_order(const Tensor& self, double p) {
  refuse_on_cuda(Operator::normalize, self,
                 c10::str("p = ", p, self.is_complex() ? " of a complex input" : ""),
                 self.is_complex() ? "use p = 2" : "use p = 1, 2 or inf");
}

// Either kernel, over whichever road the order and the dtype need. The Euclidean norm of a complex
// row is that of its real view; other orders take moduli, on the scalar kernel. Hits are described
// as those of `self`.
void run_normalize(const NormalizeRun& run, const Tensor& self, std::vector<Tensor> inputs,
                   Tensor output, RowArguments arguments) {
  const bool backward = run.direction == Direction::backward;
  const Kernels& kernels = backward ? kBackward : kForward;
  ReducedDims reduced = as_set(run.dims);
  const bool complex = output.is_complex();
  const auto order = complex && run.p != 2 ? std::nullopt : fast_order(run.p);
  arguments.element = element_type(output);
  arguments.policy = resolve(run.policy, run.eps, backward);
  Execution execution(Operator::normalize, run.direction, run.policy, self,
                      count_rows(self, run.dims));
  if (!order && self.is_cuda()) refuse_order(self, run.p);
  if (complex && order) {
    reduced.set(static_cast<std::size_t>(output.dim()));
    output = at::view_as_real(output);
    for (auto& input : inputs) input = at::view_as_real(input);
  }
  run_on_rows({std::move(inputs), output, Tensor()}, reduced,
              order ? WalkableRows::any : WalkableRows::contiguous_only, arguments,
              [&](const RowArguments& rows) {
                if (order) return execution.run(kernels.fast, rows, *order);
                execution.run_on_cpu([&](Executor& executor, Hits& hits) {
                  kernels.any(rows, run.p, complex, executor, hits);
                });
              });
  execution.settle();
}

// y into `output`; the norms into `norm` where it is defined.
void forward_into(const Tensor& self, double p, const std::vector<std::int64_t>& dims, double eps,
                  Policy policy, const Tensor& output, const Tensor& norm) {
  RowArguments arguments;
  arguments.save = norm.defined() ? norm.mutable_data_ptr<double>() : nullptr;
  run_normalize({Direction::forward, p, eps, policy, dims}, self, {self}, output, arguments);
}

Tensor normalize_kernel(const Tensor& self, double p, IntArrayRef dim, std::optional<double> eps,
                        std::string_view policy) {
  check_has_kernels(Operator::normalize, self);
  const double threshold = checked_eps(self, p, dim, eps, policy);
  const auto dims = reduced_dims(Operator::normalize, self, dim);
  const Tensor output = empty_elementwise(self, dims);
  forward_into(self, p, dims, threshold, checked_policy(Operator::normalize, policy), output,
               Tensor());
  return output;
}

std::tuple<Tensor, Tensor> forward_kernel(const Tensor& self, double p, IntArrayRef dim, double eps,
                                          std::string_view policy) {
  check_has_kernels(Operator::normalize, self);
  checked_eps(self, p, dim, eps, policy);
  const auto dims = reduced_dims(Operator::normalize, self, dim);
  const Tensor output = empty_elementwise(self, dims), norm = empty_row_value(self, dims);
  if (self.numel() == 0) norm.zero_();  // the norm of nothing; no kernel runs
  forward_into(self, p, dims, eps, checked_policy(Operator::normalize, policy), output, norm);
  return {output, norm};
}

void check_backward(const Tensor& grad, const Tensor& self, const Tensor& norm, IntArrayRef dim) {
  check_device_of(Operator::normalize, "self", self, grad);
  check_device_of(Operator::normalize, "norm", norm, grad);
  TORCH_CHECK(grad.sym_sizes() == self.sym_sizes() && grad.scalar_type() == self.scalar_type(),
              "safeops::_normalize_backward: grad must have the shape and dtype of self, ",
              self.sym_sizes(), " of ", dtype_name(self.scalar_type()), ", got ", grad.sym_sizes(),
              " of ", dtype_name(grad.scalar_type()), "; pass the gradient of out");
  TORCH_CHECK(is_row_value(norm, self, reduced_dims(Operator::normalize, self, dim)),
              "safeops::_normalize_backward: norm must be the float64 norm that _normalize_forward "
              "returned, got ",
              norm.sym_sizes(), " of ", dtype_name(norm.scalar_type()), "; pass its second output");
}

Tensor backward_kernel(const Tensor& grad, const Tensor& self, const Tensor& norm, double p,
                       IntArrayRef dim, double eps, std::string_view policy) {
  check_has_kernels(Operator::normalize, grad);
  checked_eps(self, p, dim, eps, policy);
  check_backward(grad, self, norm, dim);
  const Policy chosen = checked_policy(Operator::normalize, policy);
  const auto dims = reduced_dims(Operator::normalize, self, dim);
  const Tensor gradient = empty_elementwise(self, dims), norms = norm.contiguous();
  RowArguments arguments;
  arguments.saved = norms.const_data_ptr<double>();
  run_normalize({Direction::backward, p, eps, chosen, dims}, self, {grad, self}, gradient,
                arguments);
  return gradient;
}

void out_kernel(const Tensor& self, double p, IntArrayRef dim, std::optional<double> eps,
                std::string_view policy, Tensor& out) {
  check_has_kernels(Operator::normalize, self);
  const double threshold = checked_eps(self, p, dim, eps, policy);
  check_out(Operator::normalize, self, self.scalar_type(), OutDtype::castable, out);
  const Policy chosen = checked_policy(Operator::normalize, policy);
  const auto dims = reduced_dims(Operator::normalize, self, dim);
  const auto make = [&] { return empty_elementwise(self, dims); };
  fill_out(out, {self}, chosen, {self.sizes(), self.scalar_type(), make},
           [&](const Tensor& result) {
             forward_into(self, p, dims, threshold, chosen, result, Tensor());
           });
}

// Shape, dtype and strides without data, from torch's own expression.
Tensor elementwise_meta(const Tensor& self, IntArrayRef dim) {
  return at::div(self, at::linalg_vector_norm(self, 2, dim, /*keepdim=*/true));
}

Tensor normalize_meta(const Tensor& self, double p, IntArrayRef dim, std::optional<double> eps,
                      std::string_view policy) {
  checked_eps(self, p, dim, eps, policy);
  return elementwise_meta(self, dim);
}

std::tuple<Tensor, Tensor> forward_meta(const Tensor& self, double p, IntArrayRef dim, double eps,
                                        std::string_view policy) {
  checked_eps(self, p, dim, eps, policy);
  return {elementwise_meta(self, dim),
          empty_row_value(self, reduced_dims(Operator::normalize, self, dim))};
}

Tensor backward_meta(const Tensor& grad, const Tensor& self, const Tensor& norm, double p,
                     IntArrayRef dim, double eps, std::string_view policy) {
  checked_eps(self, p, dim, eps, policy);
  check_backward(grad, self, norm, dim);
  return elementwise_meta(self, dim);
}

void normalize_out_meta(const Tensor& self, double p, IntArrayRef dim, std::optional<double> eps,
                        std::string_view policy, Tensor& out) {
  checked_eps(self, p, dim, eps, policy);
  check_out(Operator::normalize, self, self.scalar_type(), OutDtype::castable, out);
  at::native::resize_output_symint(out, self.sym_sizes());
}

void register_kernels(torch::Library& library) {
  library.impl("normalize", normalize_kernel);
  library.impl("normalize.out", out_kernel);
  library.impl("_normalize_forward", forward_kernel);
  library.impl("_normalize_backward", backward_kernel);
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, CPU, library) { register_kernels(library); }
TORCH_LIBRARY_IMPL(safeops, CUDA, library) { register_kernels(library); }

TORCH_LIBRARY_IMPL(safeops, Meta, library) {
  library.impl("normalize", normalize_meta);
  library.impl("normalize.out", normalize_out_meta);
  library.impl("_normalize_forward", forward_meta);
  library.impl("_normalize_backward", backward_meta);
}

}  // namespace safeops
