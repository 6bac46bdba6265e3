// reciprocal, rsqrt, sqrt and log: kernels for CPU, CUDA and Meta.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sqrt.h>
#include <torch/library.h>

#include "operators/division/division_torch.h"
#include "torch/execution.h"

namespace safeops {
namespace {

constexpr int kAbsent = ElementPlaces::kAbsent;

// The value, in `out` where that is defined. A reciprocal is the quotient of the number 1.
Tensor computed(const DivisionCall& call, const Tensor& self, const Tensor& out) {
  DivisionRun run{Direction::forward, {{0, kAbsent}, {1, kAbsent, kAbsent}}};
  if (call.op == Operator::reciprocal) run.places.input = {kAbsent, 1, kAbsent};
  // On the CPU the iterator converts.
  const Tensor argument = self.is_cuda() ? self.to(call.dtype) : self;
  at::TensorIterator iterator;
  iterator.build_borrowing_unary_float_op(out, argument);
  run_division(call, run, iterator);
  return iterator.output();
}

template <Operator op>
Tensor unary_kernel(const Tensor& self, OptionalEps eps, std::string_view policy) {
  check_has_kernels(op, self);
  return computed(checked_unary(op, self, eps, policy), self, Tensor());
}

template <Operator op>
void out_kernel(const Tensor& input, OptionalEps eps, std::string_view policy, Tensor& out) {
  check_has_kernels(op, input);
  const DivisionCall call = checked_unary(op, input, eps, policy);
  check_out(op, input, call.dtype, OutDtype::castable, out);
  const auto make = [&] {
    at::TensorIterator iterator;
    const Tensor none;
    iterator.build_borrowing_unary_float_op(none, input);
    return iterator.output();
  };
  fill_division_out(
      call, {input}, input.sizes(), make,
      [&](const Tensor& result) { computed(call, input, result); }, out);
}

template <Operator op>
Tensor backward_kernel(const Tensor& grad, const Tensor& self, double eps,
                       std::string_view policy) {
  check_has_kernels(op, grad);
  const DivisionCall call = checked_unary_backward(op, grad, self, eps, policy);
  const Tensor gradient = at::empty_like(grad);
  DivisionRun run{Direction::backward, {{0, kAbsent}, {1, 2, kAbsent}}};
  if constexpr (op == Operator::reciprocal) run.places.output = {kAbsent, 0};
  run_division(call, run,
               at::TensorIteratorConfig()
                   .set_check_mem_overlap(false)
                   .add_output(gradient)
                   .add_const_input(grad)
                   .add_const_input(self)
                   .build());
  return gradient;
}

// Shape, dtype and strides without data, from torch's own operator.
Tensor meta_of(Operator op, const Tensor& self) {
  switch (op) {
    case Operator::rsqrt:
      return at::rsqrt(self);
    case Operator::sqrt:
      return at::sqrt(self);
    case Operator::log:
      return at::log(self);
    default:
      return at::reciprocal(self);
  }
}

template <Operator op>
Tensor unary_meta(const Tensor& self, OptionalEps eps, std::string_view policy) {
  checked_unary(op, self, eps, policy);
  return meta_of(op, self);
}

template <Operator op>
void out_meta(const Tensor& input, OptionalEps eps, std::string_view policy, Tensor& out) {
  check_out(op, input, checked_unary(op, input, eps, policy).dtype, OutDtype::castable, out);
  resize_out_meta(out, meta_of(op, input));
}

template <Operator op>
Tensor backward_meta(const Tensor& grad, const Tensor& self, double eps, std::string_view policy) {
  checked_unary_backward(op, grad, self, eps, policy);
  return at::empty_like(grad);
}

template <Operator op>
void register_kernels(torch::Library& library) {
  const std::string operation(name(op));
  library.impl(operation.c_str(), unary_kernel<op>);
  library.impl((operation + ".out").c_str(), out_kernel<op>);
  library.impl(("_" + operation + "_backward").c_str(), backward_kernel<op>);
}

template <Operator op>
void register_meta(torch::Library& library) {
  const std::string operation(name(op));
  library.impl(operation.c_str(), unary_meta<op>);
  library.impl((operation + ".out").c_str(), out_meta<op>);
  library.impl(("_" + operation + "_backward").c_str(), backward_meta<op>);
}

void register_all_kernels(torch::Library& library) {
  register_kernels<Operator::reciprocal>(library);
  register_kernels<Operator::rsqrt>(library);
  register_kernels<Operator::sqrt>(library);
  register_kernels<Operator::log>(library);
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, CPU, library) { register_all_kernels(library); }
TORCH_LIBRARY_IMPL(safeops, CUDA, library) { register_all_kernels(library); }

TORCH_LIBRARY_IMPL(safeops, Meta, library) {
  register_meta<Operator::reciprocal>(library);
  register_meta<Operator::rsqrt>(library);
  register_meta<Operator::sqrt>(library);
  register_meta<Operator::log>(library);
}

}  // namespace safeops
