#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
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

ReducedDims mask_of(const std::vector<std::int64_t>& dims) {
  ReducedDims mask;
  for (const std::int64_t d : dims) mask.set(static_cast<std::size_t>(d));
  return mask;
}

std::vector<std::int64_t> kept_sizes(const Tensor& self, const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) {
    for (const std::int64_t d : dims) sizes[static_cast<std::size_t>(d)] = 1;
  }
  return sizes;
}

Tensor empty_norm(const Tensor& self, const std::vector<std::int64_t>& dims) {
  return at::empty(kept_sizes(self, dims),
                   self.options().dtype(at::kDouble).memory_format(std::nullopt));
}

// Either kernel, over whichever road the order and the dtype need. The Euclidean norm of a complex
// row is that of its real view; other orders take moduli, on the scalar kernel.
template <class Fast, class Any>
Hits run(std::vector<Tensor> inputs, Tensor output, double p, const std::vector<std::int64_t>& dims,
         RowArguments arguments, const Fast& fast, const Any& any) {
  ReducedDims reduced = mask_of(dims);
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
  run_on_rows(std::move(inputs), output, reduced,
              order ? WalkableRows::any : WalkableRows::contiguous_only, arguments,
              [&](const RowArguments& rows) {
                order ? fast(rows, *order, executor, hits) : any(rows, p, complex, executor, hits);
              });
  return hits;
}

std::uint64_t count_rows(const Tensor& self, const std::vector<std::int64_t>& dims) {
  return static_cast<std::uint64_t>(c10::multiply_integers(kept_sizes(self, dims)));
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
  const auto dims = reduced_dims(self, dim);
  const Tensor output = empty_elementwise(self, dims);
  forward_into(self, p, dims, threshold, checked_policy(policy), output, Tensor());
  return output;
}

std::tuple<Tensor, Tensor> forward_cpu(const Tensor& self, double p, IntArrayRef dim, double eps,
                                       std::string_view policy) {
  checked_eps(self, p, dim, eps, policy);
  const auto dims = reduced_dims(self, dim);
  const Tensor output = empty_elementwise(self, dims), norm = empty_norm(self, dims);
  if (self.numel() == 0) norm.zero_();  // the norm of nothing; no kernel runs
  forward_into(self, p, dims, eps, checked_policy(policy), output, norm);
  return {output, norm};
}

void check_backward(const Tensor& grad, const Tensor& self, const Tensor& norm, IntArrayRef dim) {
  TORCH_CHECK(grad.sym_sizes() == self.sym_sizes() && grad.scalar_type() == self.scalar_type(),
              "safeops::_normalize_backward: grad must have the shape and dtype of self, ",
              self.sym_sizes(), " of ", dtype_name(self.scalar_type()), ", got ", grad.sym_sizes(),
              " of ", dtype_name(grad.scalar_type()), "; pass the gradient of out");
  const std::vector<std::int64_t> dims = reduced_dims(self, dim);
  bool fits = norm.dim() == self.dim() && norm.scalar_type() == at::kDouble;
  for (std::int64_t d = 0; fits && d < self.dim(); ++d) {
    const bool is_reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    fits = is_reduced ? norm.sym_size(d) == 1 : norm.sym_size(d) == self.sym_size(d);
  }
  TORCH_CHECK(fits,
              "safeops::_normalize_backward: norm must be the float64 norm that _normalize_forward "
              "returned, got ",
              norm.sym_sizes(), " of ", dtype_name(norm.scalar_type()), "; pass its second output");
}

Tensor backward_cpu(const Tensor& grad, const Tensor& self, const Tensor& norm, double p,
                    IntArrayRef dim, double eps, std::string_view policy) {
  checked_eps(self, p, dim, eps, policy);
  check_backward(grad, self, norm, dim);
  const Policy chosen = checked_policy(policy);
  const auto dims = reduced_dims(self, dim);
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

void check_out(const Tensor& self, const Tensor& out) {
  TORCH_CHECK(c10::canCast(self.scalar_type(), out.scalar_type()),
              "safeops::normalize: out must have a dtype that ", dtype_name(self.scalar_type()),
              " can be cast to, got ", dtype_name(out.scalar_type()), "; pass an out of dtype ",
              dtype_name(self.scalar_type()));
  TORCH_CHECK(self.device() == out.device(),
              "safeops::normalize: out must be on the device of input, ", self.device(), ", got ",
              out.device(), "; allocate it there");
}

// Writes to `out` only when nothing can fail any more: a temporary takes what is not a plain write.
OutResult normalize_out_cpu(const Tensor& self, double p, IntArrayRef dim,
                            std::optional<double> eps, std::string_view policy, Tensor& out) {
  const double threshold = checked_eps(self, p, dim, eps, policy);
  check_out(self, out);
  at::assert_no_internal_overlap(out);
  const Policy chosen = checked_policy(policy);
  const auto dims = reduced_dims(self, dim);
  const bool direct =
      chosen != Policy::raise && out.sizes() == self.sizes() &&
      out.scalar_type() == self.scalar_type() && !out.is_conj() && !out.is_neg() &&
      (out.is_same(self) || at::get_overlap_status(out, self) == at::MemOverlapStatus::No);
  if (direct) {
    forward_into(self, p, dims, threshold, chosen, out, Tensor());
  } else {
    if (out.sizes() == self.sizes()) at::assert_no_partial_overlap(out, self);
    const Tensor result = empty_elementwise(self, dims);
    forward_into(self, p, dims, threshold, chosen, result, Tensor());
    at::native::resize_output(out, self.sizes());
    out.copy_(result);
  }
  return out_result(out);
}

// Lazy conjugate and negative views. torch's fallback for them takes the result of an out= overload
// from the stack, where one that returns nothing has left none.
OutResult normalize_out_of_lazy(const Tensor& self, double p, IntArrayRef dim,
                                std::optional<double> eps, std::string_view policy, Tensor& out) {
  const Tensor plain = self.resolve_conj().resolve_neg();
  if (!out.is_conj() && !out.is_neg()) {
    normalize_out_operator().call(plain, p, dim, eps, policy, out);
    return out_result(out);
  }
  Tensor result = at::empty({0}, out.options());
  normalize_out_operator().call(plain, p, dim, eps, policy, result);
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
  return out_result(out);
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
  auto sizes = self.sym_sizes().vec();
  if (!sizes.empty()) {
    for (const std::int64_t d : reduced_dims(self, dim)) sizes[static_cast<std::size_t>(d)] = 1;
  }
  return {elementwise_meta(self, dim), at::empty_symint(sizes, self.options().dtype(at::kDouble))};
}

Tensor backward_meta(const Tensor& grad, const Tensor& self, const Tensor& norm, double p,
                     IntArrayRef dim, double eps, std::string_view policy) {
  checked_eps(self, p, dim, eps, policy);
  check_backward(grad, self, norm, dim);
  return elementwise_meta(self, dim);
}

OutResult normalize_out_meta(const Tensor& self, double p, IntArrayRef dim,
                             std::optional<double> eps, std::string_view policy, Tensor& out) {
  checked_eps(self, p, dim, eps, policy);
  check_out(self, out);
  at::native::resize_output_symint(out, self.sym_sizes());
  return out_result(out);
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, CPU, library) {
  library.impl("normalize", normalize_cpu);
  library.impl("normalize.out", normalize_out_cpu);
  library.impl("_normalize_forward", forward_cpu);
  library.impl("_normalize_backward", backward_cpu);
}

TORCH_LIBRARY_IMPL(safeops, Conjugate, library) {
  library.impl("normalize.out", normalize_out_of_lazy);
}

TORCH_LIBRARY_IMPL(safeops, Negative, library) {
  library.impl("normalize.out", normalize_out_of_lazy);
}

TORCH_LIBRARY_IMPL(safeops, Meta, library) {
  library.impl("normalize", normalize_meta);
  library.impl("normalize.out", normalize_out_meta);
  library.impl("_normalize_forward", forward_meta);
  library.impl("_normalize_backward", backward_meta);
}

}  // namespace safeops
