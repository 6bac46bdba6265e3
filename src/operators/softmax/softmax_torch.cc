#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <limits>

#include "operators/softmax/softmax_torch.h"
#include "torch/execution.h"
#include "torch/out_variant.h"
#include "torch/outcome.h"

namespace safeops {

namespace {
constexpr Kernel<RowArguments, SoftmaxKind> kForward = {softmax_forward, &softmax_forward_on_cuda};
constexpr Kernel<RowArguments, SoftmaxKind> kBackward = {softmax_backward,
                                                         &softmax_backward_on_cuda};
}  // namespace

void run_softmax(const SoftmaxRun& run, RowOperands operands, const Tensor& input,
                 const std::vector<std::int64_t>& dims, RowArguments arguments) {
  const bool backward = run.direction == Direction::backward;
  const bool doubles = operands.inputs.front().scalar_type() == at::kDouble;
  arguments.element = doubles ? Element::float64 : Element::float32;
  arguments.policy = resolve_empty_row(run.policy, run.kind, run.eps, backward);
  set_masked_values(arguments.storage, run.kind, backward);
  Execution execution(operator_of(run.kind), run.direction, run.policy, input,
                      count_rows(input, dims));
  run_on_rows(std::move(operands), as_set(dims), WalkableRows::tiles, arguments,
              [&](const RowArguments& rows) {
                execution.run(backward ? kBackward : kForward, rows, run.kind);
              });
  execution.settle();
}

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Contiguous whatever the strides of the input, as torch's own.
Tensor empty_result(const Tensor& self, at::ScalarType dtype) {
  return at::empty_symint(self.sym_sizes(),
                          self.options().dtype(dtype).memory_format(std::nullopt));
}

// The result into `output`; the largest elements into `peak` where it is defined.
template <SoftmaxKind kind>
void forward_into(const Tensor& self, const SoftmaxCall& call, const OptionalTensor& where,
                  const Tensor& output, const Tensor& peak) {
  RowArguments arguments;
  arguments.save = peak.defined() ? peak.mutable_data_ptr<double>() : nullptr;
  run_softmax({kind, Direction::forward, call.policy, call.eps},
              {{self}, output, expanded(where, self)}, self, {call.dim}, arguments);
}

template <SoftmaxKind kind>
Tensor softmax_kernel(const Tensor& self, std::int64_t dim, std::optional<at::ScalarType> dtype,
                      const OptionalTensor& where, std::optional<double> eps,
                      std::string_view policy) {
  check_has_kernels(operator_of(kind), self);
  const SoftmaxCall call = checked_call(kind, self, dim, dtype, where, eps, policy);
  Tensor output = empty_result(self, call.dtype);
  forward_into<kind>(as_kernel_input(self, call.dtype), call, where, output, Tensor());
  return output;
}

template <SoftmaxKind kind>
void out_kernel(const Tensor& self, std::int64_t dim, std::optional<at::ScalarType> dtype,
                const OptionalTensor& where, std::optional<double> eps, std::string_view policy,
                Tensor& out) {
  check_has_kernels(operator_of(kind), self);
  const SoftmaxCall call = checked_call(kind, self, dim, dtype, where, eps, policy);
  check_out(operator_of(kind), self, call.dtype, OutDtype::same, out);
  const auto make = [&] { return empty_result(self, call.dtype); };
  fill_out(out, {self, where.value_or(Tensor())}, call.policy, {self.sizes(), call.dtype, make},
           [&](const Tensor& result) {
             forward_into<kind>(as_kernel_input(self, call.dtype), call, where, result, Tensor());
           });
}

// Of the inner operators, which no caller but autograd is expected to name.
void check_inner_dtype(SoftmaxKind kind, const char* direction, at::ScalarType input,
                       at::ScalarType output) {
  const bool half = input == at::kHalf || input == at::kBFloat16;
  TORCH_CHECK(input == output || (half && output == at::kFloat), "safeops::_",
              name(operator_of(kind)), direction,
              ": the dtype of out must be that of the input, or float32 where that is half, got ",
              dtype_name(output), " for ", dtype_name(input), "; convert the input first");
}

template <SoftmaxKind kind>
SoftmaxCall checked_forward(const Tensor& self, std::int64_t dim, at::ScalarType dtype,
                            const OptionalTensor& where, double eps, std::string_view policy) {
  const SoftmaxCall call = checked_call(kind, self, dim, dtype, where, eps, policy);
  check_inner_dtype(kind, "_forward", self.scalar_type(), dtype);
  return call;
}

template <SoftmaxKind kind>
std::tuple<Tensor, Tensor> forward_kernel(const Tensor& self, std::int64_t dim,
                                          at::ScalarType dtype, const OptionalTensor& where,
                                          double eps, std::string_view policy) {
  check_has_kernels(operator_of(kind), self);
  const SoftmaxCall call = checked_forward<kind>(self, dim, dtype, where, eps, policy);
  const Tensor output = empty_result(self, dtype), peak = empty_row_value(self, {call.dim});
  if (self.numel() == 0) peak.fill_(-kInfinity);  // the largest of nothing; no kernel runs
  forward_into<kind>(self, call, where, output, peak);
  return {output, peak};
}

template <SoftmaxKind kind>
SoftmaxCall checked_backward(const Tensor& grad, const Tensor& out, const Tensor& peak,
                             const OptionalTensor& where, std::int64_t dim,
                             at::ScalarType input_dtype, std::string_view policy) {
  check_device_of(operator_of(kind), "out", out, grad);
  check_device_of(operator_of(kind), "peak", peak, grad);
  const SoftmaxCall call = checked_call(kind, out, dim, std::nullopt, where, std::nullopt, policy);
  check_inner_dtype(kind, "_backward", input_dtype, out.scalar_type());
  TORCH_CHECK(grad.sym_sizes() == out.sym_sizes() && grad.scalar_type() == out.scalar_type(),
              "safeops::_", name(operator_of(kind)),
              "_backward: grad must have the shape and dtype of out, ", out.sym_sizes(), " of ",
              dtype_name(out.scalar_type()), ", got ", grad.sym_sizes(), " of ",
              dtype_name(grad.scalar_type()), "; pass the gradient of out");
  TORCH_CHECK(is_row_value(peak, out, {call.dim}), "safeops::_", name(operator_of(kind)),
              "_backward: peak must be the float64 peak that the forward operator returned, got ",
              peak.sym_sizes(), " of ", dtype_name(peak.scalar_type()), "; pass its second output");
  return call;
}

template <SoftmaxKind kind>
Tensor backward_kernel(const Tensor& grad, const Tensor& out, const Tensor& peak,
                       const OptionalTensor& where, std::int64_t dim, at::ScalarType input_dtype,
                       std::string_view policy) {
  check_has_kernels(operator_of(kind), grad);
  const SoftmaxCall call = checked_backward<kind>(grad, out, peak, where, dim, input_dtype, policy);
  const Tensor peaks = peak.contiguous();
  Tensor gradient = empty_result(out, input_dtype);
  RowArguments arguments;
  arguments.saved = peaks.const_data_ptr<double>();
  run_softmax({kind, Direction::backward, call.policy, call.eps},
              {{grad, out}, gradient, expanded(where, out)}, gradient, {call.dim}, arguments);
  return gradient;
}

template <SoftmaxKind kind>
Tensor softmax_meta(const Tensor& self, std::int64_t dim, std::optional<at::ScalarType> dtype,
                    const OptionalTensor& where, std::optional<double> eps,
                    std::string_view policy) {
  return empty_result(self, checked_call(kind, self, dim, dtype, where, eps, policy).dtype);
}

template <SoftmaxKind kind>
void out_meta(const Tensor& self, std::int64_t dim, std::optional<at::ScalarType> dtype,
              const OptionalTensor& where, std::optional<double> eps, std::string_view policy,
              Tensor& out) {
  const SoftmaxCall call = checked_call(kind, self, dim, dtype, where, eps, policy);
  check_out(operator_of(kind), self, call.dtype, OutDtype::same, out);
  at::native::resize_output_symint(out, self.sym_sizes());
}

template <SoftmaxKind kind>
std::tuple<Tensor, Tensor> forward_meta(const Tensor& self, std::int64_t dim, at::ScalarType dtype,
                                        const OptionalTensor& where, double eps,
                                        std::string_view policy) {
  const SoftmaxCall call = checked_forward<kind>(self, dim, dtype, where, eps, policy);
  return {empty_result(self, dtype), empty_row_value(self, {call.dim})};
}

template <SoftmaxKind kind>
Tensor backward_meta(const Tensor& grad, const Tensor& out, const Tensor& peak,
                     const OptionalTensor& where, std::int64_t dim, at::ScalarType input_dtype,
                     std::string_view policy) {
  checked_backward<kind>(grad, out, peak, where, dim, input_dtype, policy);
  return empty_result(out, input_dtype);
}

void register_kernels(torch::Library& library) {
  library.impl("softmax", softmax_kernel<SoftmaxKind::softmax>);
  library.impl("softmax.out", out_kernel<SoftmaxKind::softmax>);
  library.impl("_softmax_forward", forward_kernel<SoftmaxKind::softmax>);
  library.impl("_softmax_backward", backward_kernel<SoftmaxKind::softmax>);
  library.impl("log_softmax", softmax_kernel<SoftmaxKind::log_softmax>);
  library.impl("log_softmax.out", out_kernel<SoftmaxKind::log_softmax>);
  library.impl("_log_softmax_forward", forward_kernel<SoftmaxKind::log_softmax>);
  library.impl("_log_softmax_backward", backward_kernel<SoftmaxKind::log_softmax>);
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, CPU, library) { register_kernels(library); }
TORCH_LIBRARY_IMPL(safeops, CUDA, library) { register_kernels(library); }

TORCH_LIBRARY_IMPL(safeops, Meta, library) {
  library.impl("softmax", softmax_meta<SoftmaxKind::softmax>);
  library.impl("softmax.out", out_meta<SoftmaxKind::softmax>);
  library.impl("_softmax_forward", forward_meta<SoftmaxKind::softmax>);
  library.impl("_softmax_backward", backward_meta<SoftmaxKind::softmax>);
  library.impl("log_softmax", softmax_meta<SoftmaxKind::log_softmax>);
  library.impl("log_softmax.out", out_meta<SoftmaxKind::log_softmax>);
  library.impl("_log_softmax_forward", forward_meta<SoftmaxKind::log_softmax>);
  library.impl("_log_softmax_backward", backward_meta<SoftmaxKind::log_softmax>);
}

}  // namespace safeops
