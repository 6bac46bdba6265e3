// div: kernels for CPU, CUDA and Meta.
#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include "operators/division/division_torch.h"
#include "torch/execution.h"

namespace safeops {
namespace {

constexpr int kAbsent = ElementPlaces::kAbsent;

Tensor in_dtype(const Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
}

bool is_host_number(const Tensor& tensor) { return tensor.is_cpu() && tensor.dim() == 0; }

at::Device device_of(const Tensor& self, const Tensor& other) {
  return other.is_cuda() ? other.device() : self.device();
}

// As the kernel of a device takes it. On the CPU the iterator converts. Elsewhere it does not, and
// a number of the host is written to the device as an argument of a kernel, so that nobody waits.
Tensor operand(const Tensor& tensor, at::ScalarType dtype, at::Device device) {
  if (!device.is_cuda()) return tensor;
  const Tensor converted = in_dtype(tensor, dtype);
  return is_host_number(converted)
             ? at::scalar_tensor(converted.item(), converted.options().device(device))
             : converted;
}

// Over the result, which is allocated where `out` is undefined, and the operands.
void build(at::TensorIterator& iterator, const DivisionCall& call, const Tensor& out,
           const Tensor& self, const Tensor& other) {
  if (call.is_rounded()) {
    iterator.build_borrowing_binary_op(out, self, other);
  } else {
    iterator.build_borrowing_binary_float_op(out, self, other);
  }
}

// The quotient, in `out` where that is defined.
Tensor divided(const DivisionCall& call, const Tensor& self, const Tensor& other,
               const Tensor& out) {
  DivisionRun run{Direction::forward, {{0, kAbsent}, {1, 2, kAbsent}}};
  const at::Device device = device_of(self, other);
  const auto number = divisor_number(call, other, device);
  if (number) {
    run.places.input[1] = kAbsent;
    run.numbers[1] = *number;
  }
  const Tensor dividend = operand(self, call.dtype, device);
  const Tensor divisor = number ? other : operand(other, call.dtype, device);
  at::TensorIterator iterator;
  build(iterator, call, out, dividend, divisor);
  run_division(call, run, iterator);
  return iterator.output();
}
Tensor divided(const DivisionCall& call, const Tensor& self, const Scalar& other,
               const Tensor& out) {
  const auto number = divisor_number(call, other);
  if (!number) return divided(call, self, at::native::wrapped_scalar_tensor(other), out);
  const Tensor dividend = in_dtype(self, call.dtype);
  at::TensorIterator iterator;
  iterator.build_borrowing_unary_op(out, dividend);
  run_division(call, {Direction::forward, {{0, kAbsent}, {1, kAbsent, kAbsent}}, {1, *number, 1}},
               iterator);
  return iterator.output();
}

template <class Other>
Tensor div_kernel(const Tensor& self, const Other& other, RoundingMode rounding_mode,
                  OptionalEps eps, std::string_view policy) {
  check_has_kernels(Operator::div, self);
  if constexpr (!kByNumber<Other>) check_has_kernels(Operator::div, other);
  return divided(checked_division(self, other, rounding_mode, eps, policy), self, other, Tensor());
}

const Tensor& tensor_of(const Tensor& other) { return other; }
Tensor tensor_of(const Scalar& other) { return at::native::wrapped_scalar_tensor(other); }

template <class Other>
void out_kernel(const Tensor& input, const Other& other, RoundingMode rounding_mode,
                OptionalEps eps, std::string_view policy, Tensor& out) {
  check_has_kernels(Operator::div, input);
  if constexpr (!kByNumber<Other>) check_has_kernels(Operator::div, other);
  const DivisionCall call = checked_division(input, other, rounding_mode, eps, policy);
  const Tensor& divisor = tensor_of(other);
  check_out(Operator::div, divisor.is_cuda() ? divisor : input, call.dtype, OutDtype::castable,
            out);
  const auto make = [&] {
    at::TensorIterator iterator;
    const Tensor none;
    build(iterator, call, none, input, divisor);
    return iterator.output();
  };
  const auto sizes = at::infer_size_dimvector(input.sizes(), divisor.sizes());
  fill_division_out(
      call, {input, divisor}, sizes, make,
      [&](const Tensor& result) { divided(call, input, other, result); }, out);
}

std::tuple<Tensor, Tensor> empty_gradients(const Tensor& grad, WantedGradients wanted) {
  const auto empty = [&](bool is_wanted) {
    return is_wanted ? at::empty_like(grad) : at::empty({0}, grad.options());
  };
  return {empty(wanted[0]), empty(wanted[1])};
}

std::tuple<Tensor, Tensor> backward_kernel(const Tensor& grad, const OptionalTensor& self,
                                           const Tensor& other, RoundingMode rounding_mode,
                                           double eps, std::string_view policy,
                                           WantedGradients wanted) {
  check_has_kernels(Operator::div, grad);
  const Tensor dividend = self.value_or(Tensor());
  const DivisionCall call =
      checked_division_backward(grad, dividend, other, rounding_mode, eps, policy, wanted);
  const auto gradients = empty_gradients(grad, wanted);
  if (!wanted[0] && !wanted[1]) return gradients;

  DivisionRun run{Direction::backward, {}};
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false);
  int operands = 0;
  const auto add_output = [&](std::size_t k, const Tensor& gradient) {
    if (!wanted[k]) return;
    config.add_output(gradient);
    run.places.output[k] = operands++;
  };
  const auto add_input = [&](std::size_t k, const Tensor& input) {
    config.add_owned_const_input(operand(in_dtype(input, call.dtype), call.dtype, grad.device()));
    run.places.input[k] = operands++;
  };
  add_output(0, std::get<0>(gradients));
  add_output(1, std::get<1>(gradients));
  add_input(0, grad);
  if (const auto number = divisor_number(call, other, grad.device())) {
    run.numbers[1] = *number;
  } else {
    add_input(1, other);
  }
  if (dividend.defined()) add_input(2, dividend);
  run_division(call, run, config.build());
  return gradients;
}

Tensor meta_of(const DivisionCall& call, const Tensor& self, const Tensor& other,
               RoundingMode rounding_mode) {
  return call.is_rounded() ? at::div(self, other, rounding_mode) : at::div(self, other);
}
Tensor meta_of(const DivisionCall& call, const Tensor& self, const Scalar& other,
               RoundingMode rounding_mode) {
  return call.is_rounded() ? at::div(self, other, rounding_mode) : at::div(self, other);
}

template <class Other>
Tensor div_meta(const Tensor& self, const Other& other, RoundingMode rounding_mode, OptionalEps eps,
                std::string_view policy) {
  const DivisionCall call = checked_division(self, other, rounding_mode, eps, policy);
  return meta_of(call, self, other, rounding_mode);
}

template <class Other>
void out_meta(const Tensor& input, const Other& other, RoundingMode rounding_mode, OptionalEps eps,
              std::string_view policy, Tensor& out) {
  const DivisionCall call = checked_division(input, other, rounding_mode, eps, policy);
  const Tensor& divisor = tensor_of(other);
  check_out(Operator::div, divisor.is_cuda() ? divisor : input, call.dtype, OutDtype::castable,
            out);
  resize_out_meta(out, meta_of(call, input, other, rounding_mode));
}

std::tuple<Tensor, Tensor> backward_meta(const Tensor& grad, const OptionalTensor& self,
                                         const Tensor& other, RoundingMode rounding_mode,
                                         double eps, std::string_view policy,
                                         WantedGradients wanted) {
  checked_division_backward(grad, self.value_or(Tensor()), other, rounding_mode, eps, policy,
                            wanted);
  return empty_gradients(grad, wanted);
}

void register_kernels(torch::Library& library) {
  library.impl("div", div_kernel<Tensor>);
  library.impl("div.Scalar", div_kernel<Scalar>);
  library.impl("div.out", out_kernel<Tensor>);
  library.impl("div.Scalar_out", out_kernel<Scalar>);
  library.impl("_div_backward", backward_kernel);
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, CPU, library) { register_kernels(library); }
TORCH_LIBRARY_IMPL(safeops, CUDA, library) { register_kernels(library); }

TORCH_LIBRARY_IMPL(safeops, Meta, library) {
  library.impl("div", div_meta<Tensor>);
  library.impl("div.Scalar", div_meta<Scalar>);
  library.impl("div.out", out_meta<Tensor>);
  library.impl("div.Scalar_out", out_meta<Scalar>);
  library.impl("_div_backward", backward_meta);
}

}  // namespace safeops
