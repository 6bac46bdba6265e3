#include <ATen/ExpandUtils.h>
#include <ATen/ops/result_type.h>
#include <c10/util/Exception.h>

#include <string>

#include "operators/division/division_torch.h"
#include "torch/outcome.h"

namespace safeops {
namespace {

constexpr const char* kAccepted =
    "float16, bfloat16, float32, float64, complex64, complex128, an integer or bool";

bool is_half(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

AtFloor at_floor(DivisionKind kind) {
  switch (kind) {
    case DivisionKind::quotient:
    case DivisionKind::truncated:
    case DivisionKind::floored:
      return AtFloor::reciprocal;
    case DivisionKind::rsqrt:
      return AtFloor::reciprocal_root;
    case DivisionKind::sqrt:
    case DivisionKind::log:
      break;
  }
  return AtFloor::finite;
}

const char* formula_at_floor(DivisionKind kind) {
  switch (kind) {
    case DivisionKind::rsqrt:
      return "1/sqrt(eps)";
    case DivisionKind::sqrt:
      return "sqrt(eps)";
    case DivisionKind::log:
      return "log(eps)";
    default:
      return "1/eps";
  }
}

double checked_eps(const DivisionCall& call, Element element, OptionalEps eps) {
  constexpr double kNoStockEps = 0;
  const ResolvedEps resolved =
      resolve_eps(call.policy, eps, kNoStockEps, element, at_floor(call.kind));
  check_eps_is_a_threshold(call.op, resolved, eps);
  TORCH_CHECK_VALUE(resolved.refusal != ResolvedEps::Refusal::too_small, "safeops::", name(call.op),
                    ": eps must be at least ", rounded_up(resolved.smallest_usable),
                    " under policy 'epsilon' for ", dtype_name(call.dtype), ", because ",
                    formula_at_floor(call.kind), " must be finite there, got ", eps.value_or(0),
                    "; raise eps or use policy 'zero'");
  return resolved.value;
}

void check_rounded_dtype(const DivisionCall& call) {
  if (!call.is_rounded()) return;
  const bool is_unsigned =
      call.dtype == at::kUInt16 || call.dtype == at::kUInt32 || call.dtype == at::kUInt64;
  TORCH_CHECK_NOT_IMPLEMENTED(
      call.dtype != at::kBool && !is_unsigned && !at::isComplexType(call.dtype),
      "safeops::", name(call.op), ": a result of dtype ", dtype_name(call.dtype),
      " cannot be rounded, got a rounding_mode; leave rounding_mode out or convert input first");
}

// Completes a call whose dtype is that of the promoted operands.
DivisionCall checked(DivisionCall call, OptionalEps eps) {
  if (!call.is_rounded() && is_integral(call.dtype))
    call.dtype = c10::get_default_dtype_as_scalartype();
  check_rounded_dtype(call);
  const auto element = element_of(call.dtype);
  if (!element && !is_integral(call.dtype)) refuse_dtype(call.op, "input", kAccepted, call.dtype);
  if (element) {
    call.eps = checked_eps(call, *element, eps);
  } else {
    // Integers have no eps, but one that is no threshold is a mistake all the same.
    check_eps_is_a_threshold(call.op, resolve_eps(Policy::stock, eps, 0, Element::float64), eps);
  }
  return call;
}

void check_gradient(Operator op, const char* argument, const Tensor& grad, const Tensor& input) {
  // A number may be the host's, as in torch's own arithmetic.
  if (!input.is_cpu() || input.dim() != 0) check_device_of(op, argument, input, grad);
  TORCH_CHECK(at::is_expandable_to(input.sym_sizes(), grad.sym_sizes()), "safeops::_", name(op),
              "_backward: ", argument, " must be expandable to the shape of grad, ",
              grad.sym_sizes(), ", got ", input.sym_sizes(), "; pass the gradient of the result");
}

double exact(const Scalar& number, at::ScalarType dtype) {
  if (number.isFloatingPoint()) return number.toDouble();
  // Rounded once, to what the kernel computes in.
  const auto rounded = [&](auto integer) {
    return dtype == at::kDouble ? static_cast<double>(integer)
                                : static_cast<double>(static_cast<float>(integer));
  };
  return number.type() == at::kUInt64 ? rounded(number.toUInt64())
                                      : rounded(number.to<std::int64_t>());
}

}  // namespace

DivisionKind kind_of(RoundingMode rounding_mode) {
  if (!rounding_mode) return DivisionKind::quotient;
  if (*rounding_mode == "trunc") return DivisionKind::truncated;
  TORCH_CHECK(*rounding_mode == "floor",
              "safeops::div: rounding_mode must be None, 'trunc' or 'floor', got '",
              std::string(*rounding_mode), "'; use one of these");
  return DivisionKind::floored;
}

DivisionCall checked_division(const Tensor& self, const Tensor& other, RoundingMode rounding_mode,
                              OptionalEps eps, std::string_view policy) {
  const at::ScalarType dtype =
      self.scalar_type() == other.scalar_type() ? self.scalar_type() : at::result_type(self, other);
  return checked(
      {Operator::div, kind_of(rounding_mode), dtype, checked_policy(Operator::div, policy), 0},
      eps);
}

DivisionCall checked_division(const Tensor& self, const Scalar& other, RoundingMode rounding_mode,
                              OptionalEps eps, std::string_view policy) {
  const bool keeps_dtype = self.is_floating_point() && !other.isComplex();
  const at::ScalarType dtype = keeps_dtype ? self.scalar_type() : at::result_type(self, other);
  return checked(
      {Operator::div, kind_of(rounding_mode), dtype, checked_policy(Operator::div, policy), 0},
      eps);
}

DivisionCall checked_unary(Operator op, const Tensor& self, OptionalEps eps,
                           std::string_view policy) {
  return checked({op, kind_of(op), self.scalar_type(), checked_policy(op, policy), 0}, eps);
}

DivisionCall checked_division_backward(const Tensor& grad, const Tensor& self, const Tensor& other,
                                       RoundingMode rounding_mode, double eps,
                                       std::string_view policy, WantedGradients wanted) {
  const DivisionCall call = checked({Operator::div, kind_of(rounding_mode), grad.scalar_type(),
                                     checked_policy(Operator::div, policy), 0},
                                    eps);
  TORCH_CHECK(element_of(grad.scalar_type()),
              "safeops::_div_backward: grad must be a "
              "floating-point or complex tensor, got ",
              dtype_name(grad.scalar_type()), "; pass the gradient of the result");
  TORCH_CHECK(self.defined() || !wanted[1],
              "safeops::_div_backward: self must be a tensor where the gradient of other is "
              "wanted, got None; pass the dividend");
  check_gradient(Operator::div, "other", grad, other);
  if (self.defined()) check_gradient(Operator::div, "self", grad, self);
  return call;
}

DivisionCall checked_unary_backward(Operator op, const Tensor& grad, const Tensor& self, double eps,
                                    std::string_view policy) {
  check_device_of(op, "self", self, grad);
  TORCH_CHECK(grad.sym_sizes() == self.sym_sizes() && grad.scalar_type() == self.scalar_type(),
              "safeops::_", name(op), "_backward: grad must have the shape and dtype of self, ",
              self.sym_sizes(), " of ", dtype_name(self.scalar_type()), ", got ", grad.sym_sizes(),
              " of ", dtype_name(grad.scalar_type()), "; pass the gradient of the result");
  return checked_unary(op, self, eps, policy);
}

std::optional<double> divisor_number(const DivisionCall& call, const Tensor& other,
                                     at::Device device) {
  if (!other.is_cpu()) return std::nullopt;
  const bool as_given = is_half(call.dtype) && other.numel() == 1 &&
                        (other.scalar_type() != call.dtype || call.kind == DivisionKind::truncated);
  const bool unreadable = device.is_cuda() && other.dim() == 0 && element_of(call.dtype) &&
                          !at::isComplexType(call.dtype);
  if (!as_given && !unreadable) return std::nullopt;
  return exact(other.item(), call.dtype);
}

std::optional<double> divisor_number(const DivisionCall& call, const Scalar& other) {
  if (!element_of(call.dtype) || at::isComplexType(call.dtype)) return std::nullopt;
  return exact(other, call.dtype);
}

}  // namespace safeops
