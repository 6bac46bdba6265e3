#include <ATen/native/Resize.h>
#include <ATen/ops/div.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include <cmath>

#include "operators/normalize/normalize.h"
#include "operators/normalize/normalize_torch.h"
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

// Either kernel, over whichever road the order and the dtype need. The Euclidean norm of a complex
// row is that of its real view; other orders take moduli, on the scalar kernel.
template <class Fast, class Any>
Hits run(std::vector<Tensor> inputs, Tensor output, double p, const std::vector<std::int64_t>& dims,
         RowArguments arguments, const Fast& fast, const Any& any) {
  ReducedDims reduced = as_set(dims);
  const bool complex = output.is_complex();
  const auto order = complex && p != 2 ? std::nullopt : fast_order(p);
  arguments.element = element_type(output);
  if (complex && order) {
    reduced.set(static_cast<std::size_t>(output.dim()));
    output = at::view_as_real(output);
    for (auto& input : inputs) input = at::view_as_real(input);
  }
  Hits hits;
  TorchExecutor executor;
  run_on_rows({std::move(inputs), output, Tensor()}, reduced,
              order ? WalkableRows::any : WalkableRows::contiguous_only, arguments,
              [&](const RowArguments& rows) {
                order ? fast(rows, *order, executor, hits) : any(rows, p, complex, executor, hits);
              });
  return hits;
}

// y into `output`; the norms into `norm` where it is defined.
void forward_into(const Tensor& self, double p, const std::vector<std::int64_t>& dims, double eps,
                  Policy policy, const Tensor& output, const Tensor& norm) {
  RowArguments arguments;
  arguments.policy = resolve(policy, eps, /*backward=*/false);
  arguments.save = norm.defined() ? norm.mutable_data_ptr<double>() : nullptr;
  const Hits hits =
      run({self}, output, p, dims, arguments, normalize_forward, normalize_forward_any);
  settle_or_throw(Operator::normalize, Direction::forward, policy, self, count_rows(self, dims),
                  hits);
}

Tensor normalize_cpu(const Tensor& self, double p, IntArrayRef dim, std::optional<double> eps,
                     std::string_view policy) {
  const double threshold = checked_eps(self, p, dim, eps, policy);
  const auto dims = reduced_dims(Operator::normalize, self, dim);
  const Tensor output = empty_elementwise(self, dims);
  forward_into(self, p, dims, threshold, checked_policy(Operator::normalize, policy), output,
               Tensor());
  return output;
}

std::tuple<Tensor, Tensor> forward_cpu(const Tensor& self, double p, IntArrayRef dim, double eps,
                                       std::string_view policy) {
  checked_eps(self, p, dim, eps, policy);
  const auto dims = reduced_dims(Operator::normalize, self, dim);
  const Tensor output = empty_elementwise(self, dims), norm = empty_row_value(self, dims);
  if (self.numel() == 0) norm.zero_();  // the norm of nothing; no kernel runs
  forward_into(self, p, dims, eps, checked_policy(Operator::normalize, policy), output, norm);
  return {output, norm};
}

void check_backward(const Tensor& grad, const Tensor& self, const Tensor& norm, IntArrayRef dim) {
  TORCH_CHECK(grad.sym_sizes() == self.sym_sizes() && grad.scalar_type() == self.scalar_type(),
              "safeops::_normalize_backward: grad must have the shape and dtype of self, ",
              self.sym_sizes(), " of ", dtype_name(self.scalar_type()), ", got ", grad.sym_sizes(),
              " of ", dtype_name(grad.scalar_type()), "; pass the gradient of out");
  TORCH_CHECK(is_row_value(norm, self, reduced_dims(Operator::normalize, self, dim)),
              "safeops::_normalize_backward: norm must be the float64 norm that _normalize_forward "
              "returned, got ",
              norm.sym_sizes(), " of ", dtype_name(norm.scalar_type()), "; pass its second output");
}

Tensor backward_cpu(const Tensor& grad, const Tensor& self, const Tensor& norm, double p,
                    IntArrayRef dim, double eps, std::string_view policy) {
  checked_eps(self, p, dim, eps, policy);
  check_backward(grad, self, norm, dim);
  const Policy chosen = checked_policy(Operator::normalize, policy);
  const auto dims = reduced_dims(Operator::normalize, self, dim);
  const Tensor gradient = empty_elementwise(self, dims), norms = norm.contiguous();
  RowArguments arguments;
  arguments.policy = resolve(chosen, eps, /*backward=*/true);
  arguments.saved = norms.const_data_ptr<double>();
  const Hits hits =
      run({grad, self}, gradient, p, dims, arguments, normalize_backward, normalize_backward_any);
  settle_or_throw(Operator::normalize, Direction::backward, chosen, self, count_rows(self, dims),
                  hits);
  return gradient;
}

void normalize_out_cpu(const Tensor& self, double p, IntArrayRef dim, std::optional<double> eps,
                       std::string_view policy, Tensor& out) {
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

}  // namespace

TORCH_LIBRARY_IMPL(safeops, CPU, library) {
  library.impl("normalize", normalize_cpu);
  library.impl("normalize.out", normalize_out_cpu);
  library.impl("_normalize_forward", forward_cpu);
  library.impl("_normalize_backward", backward_cpu);
}

TORCH_LIBRARY_IMPL(safeops, Meta, library) {
  library.impl("normalize", normalize_meta);
  library.impl("normalize.out", normalize_out_meta);
  library.impl("_normalize_forward", forward_meta);
  library.impl("_normalize_backward", backward_meta);
}

}  // namespace safeops
