// The operators that work in place, in terms of the others.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#include <string>

#include "operators/division/division_torch.h"
#include "torch/element_autograd.h"
#include "torch/outcome.h"

namespace safeops {
namespace {

void check_shape(const DivisionCall& call, const Tensor& input, const Tensor& other) {
  TORCH_CHECK(at::is_expandable_to(other.sym_sizes(), input.sym_sizes()),
              "safeops::", name(call.op), "_: other must be expandable to the shape of input, ",
              input.sym_sizes(), ", got ", other.sym_sizes(), "; use safeops::", name(call.op),
              " and keep its result");
}

// Refuses, before anything is computed or counted, what torch refuses.
template <class... Others>
void check_target(const DivisionCall& call, const Tensor& input, const Others&... others) {
  TORCH_CHECK(c10::canCast(call.dtype, input.scalar_type()), "safeops::", name(call.op),
              "_: input must have a dtype that the result, ", dtype_name(call.dtype),
              ", can be cast to, got ", dtype_name(input.scalar_type()),
              "; use safeops::", name(call.op), " and keep its result");
  (check_shape(call, input, others), ...);
  torch::autograd::check_inplace(input, torch::autograd::compute_requires_grad(input, others...));
}

// What cannot be written through a pointer: autograd, or whatever wraps the tensor, has to see a
// copy.
template <class... Tensors>
bool needs_copy(const Tensors&... tensors) {
  return is_differentiated(tensors...) || (at::isTensorSubclassLike(tensors) || ...);
}

// What is not dense goes on to its refusal. Backward reads what input was, hence the clones.
template <class Other>
void div_in_place(Tensor& input, const Other& other, RoundingMode rounding_mode, OptionalEps eps,
                  std::string_view policy) {
  const auto copies = [&](const auto&... others) {
    if (!(is_dense(input) && (is_dense(others) && ...))) return false;
    check_target(checked_division(input, other, rounding_mode, eps, policy), input, others...);
    return needs_copy(input, others...);
  };
  bool copy = false;
  if constexpr (kByNumber<Other>) {
    copy = copies();
  } else {
    copy = copies(other);
  }
  if (copy) {
    input.copy_(div_operator<Other>().call(input.clone(), other, rounding_mode, eps, policy));
  } else {
    div_out_operator<Other>().call(input, other, rounding_mode, eps, policy, input);
  }
}

template <Operator op>
void unary_in_place(Tensor& input, OptionalEps eps, std::string_view policy) {
  const bool dense = is_dense(input);
  if (dense) check_target(checked_unary(op, input, eps, policy), input);
  if (dense && needs_copy(input)) {
    input.copy_(unary_operator<op>().call(input.clone(), eps, policy));
  } else {
    unary_out_operator<op>().call(input, eps, policy, input);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, CompositeImplicitAutograd, library) {
  library.impl("div_", div_in_place<Tensor>);
  library.impl("div_.Scalar", div_in_place<Scalar>);
  library.impl("reciprocal_", unary_in_place<Operator::reciprocal>);
  library.impl("rsqrt_", unary_in_place<Operator::rsqrt>);
  library.impl("sqrt_", unary_in_place<Operator::sqrt>);
  library.impl("log_", unary_in_place<Operator::log>);
}

}  // namespace safeops
