#include <ATen/ExpandUtils.h>
#include <c10/util/Exception.h>

#include "operators/softmax/softmax_torch.h"
#include "torch/outcome.h"

namespace safeops {
namespace {

constexpr const char* kAccepted = "float16, bfloat16, float32 or float64";

bool is_half(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

double checked_eps(Operator op, Policy policy, std::optional<double> eps, at::ScalarType dtype) {
  constexpr double kNoStockEps = 0;
  const ResolvedEps resolved =
      resolve_eps(policy, eps, kNoStockEps, element_of(dtype).value(), AtFloor::finite);
  check_eps_is_a_threshold(op, resolved, eps);
  TORCH_CHECK_VALUE(resolved.refusal != ResolvedEps::Refusal::too_small, "safeops::", name(op),
                    ": eps must be positive under policy 'epsilon', because log(eps) must be "
                    "finite there, got ",
                    eps.value_or(0), "; raise eps or use policy 'zero'");
  return resolved.value;
}

}  // namespace

Operator operator_of(SoftmaxKind kind) {
  switch (kind) {
    case SoftmaxKind::softmax:
      return Operator::softmax;
    case SoftmaxKind::log_softmax:
      return Operator::log_softmax;
    case SoftmaxKind::logsumexp:
      break;
  }
  return Operator::logsumexp;
}

SoftmaxCall checked_call(SoftmaxKind kind, const Tensor& self, std::int64_t dim,
                         std::optional<at::ScalarType> dtype, const OptionalTensor& where,
                         std::optional<double> eps, std::string_view policy) {
  const Operator op = operator_of(kind);
  const at::ScalarType result = dtype.value_or(self.scalar_type());
  if (at::isComplexType(result) || !element_of(result))
    refuse_dtype(op, dtype ? "dtype" : "input", kAccepted, result);
  const Policy chosen = checked_policy(op, policy);
  check_rank(op, self);
  const std::int64_t wrapped = reduced_dims(op, self, dim).front();
  check_where(op, self, where);
  // The default eps is that of the input, so that it does not change with the dtype asked for.
  const at::ScalarType given = element_of(self.scalar_type()) ? self.scalar_type() : result;
  return {wrapped, result, checked_eps(op, chosen, eps, given), chosen};
}

Tensor as_kernel_input(const Tensor& self, at::ScalarType dtype) {
  const bool on_load = is_half(self.scalar_type()) && dtype == at::kFloat;
  return on_load ? self : self.to(dtype);
}

void check_where(Operator op, const Tensor& self, const OptionalTensor& where) {
  if (!where || !where->defined()) return;
  TORCH_CHECK(where->scalar_type() == at::kBool, "safeops::", name(op),
              ": where must be a bool tensor, got ", dtype_name(where->scalar_type()),
              "; compare it with something, for example where != 0");
  TORCH_CHECK(where->device() == self.device(), "safeops::", name(op),
              ": where must be on the device of input, ", self.device(), ", got ", where->device(),
              "; move it there");
  TORCH_CHECK(at::is_expandable_to(where->sym_sizes(), self.sym_sizes()), "safeops::", name(op),
              ": where must be expandable to the shape of input, ", self.sym_sizes(), ", got ",
              where->sym_sizes(), "; give it the dimensions of input, or 1 where it is repeated");
}

Tensor expanded(const OptionalTensor& where, const Tensor& self) {
  return where && where->defined() ? where->expand_symint(self.sym_sizes()) : Tensor();
}

std::vector<std::int64_t> checked_logsumexp_dims(const Tensor& self, at::IntArrayRef dim,
                                                 const OptionalTensor& where,
                                                 std::string_view policy) {
  checked_policy(Operator::logsumexp, policy);
  check_rank(Operator::logsumexp, self);
  check_where(Operator::logsumexp, self, where);
  return reduced_dims(Operator::logsumexp, self, dim);
}

at::ScalarType logsumexp_dtype(const Tensor& self) {
  if (at::isIntegralType(self.scalar_type(), /*includeBool=*/true))
    return c10::get_default_dtype_as_scalartype();
  if (!element_of(self.scalar_type())) {
    refuse_dtype(Operator::logsumexp, "input",
                 "float16, bfloat16, float32, float64, complex64, complex128, an integer or bool",
                 self.scalar_type());
  }
  return self.scalar_type();
}

}  // namespace safeops
