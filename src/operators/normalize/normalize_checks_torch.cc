#include <c10/util/Exception.h>

#include <cmath>

#include "operators/normalize/normalize_torch.h"
#include "torch/outcome.h"

namespace safeops {
namespace {

constexpr double kStockEps = 1e-12;  // torch.nn.functional.normalize

void check_identity(const Tensor& self, double p, at::IntArrayRef dim) {
  if (p >= 0 && !std::isinf(p)) return;
  for (const std::int64_t d : reduced_dims(Operator::normalize, self, dim)) {
    TORCH_CHECK(self.dim() == 0 || self.sym_size(d) != 0, "safeops::normalize: dim ", d,
                " must not be empty for p = ", p, ", which has no norm of nothing, got shape ",
                self.sym_sizes(), "; drop the empty rows or use a finite p >= 0");
  }
}

}  // namespace

Element element_type(const Tensor& self) {
  if (const auto element = element_of(self.scalar_type())) return *element;
  refuse_dtype(Operator::normalize, "input",
               "float16, bfloat16, float32, float64, complex64 or complex128", self.scalar_type());
}

double checked_eps(const Tensor& self, double p, at::IntArrayRef dim, std::optional<double> eps,
                   std::string_view policy) {
  const Element element = element_type(self);
  TORCH_CHECK_VALUE(!std::isnan(p),
                    "safeops::normalize: p must be a number or +-inf, got NaN; use p=2 for the "
                    "Euclidean norm");
  const Policy chosen = checked_policy(Operator::normalize, policy);
  check_rank(Operator::normalize, self);
  reduced_dims(Operator::normalize, self, dim);
  check_identity(self, p, dim);
  const ResolvedEps resolved = resolve_eps(chosen, eps, kStockEps, element);
  check_eps_is_a_threshold(Operator::normalize, resolved, eps);
  TORCH_CHECK_VALUE(resolved.refusal != ResolvedEps::Refusal::too_small,
                    "safeops::normalize: eps must be at least ",
                    rounded_up(resolved.smallest_usable), " under policy 'epsilon' for ",
                    dtype_name(self.scalar_type()),
                    ", because the gradient 1/eps must be finite there, got ", eps.value_or(0),
                    "; raise eps or use policy 'zero'");
  return resolved.value;
}

}  // namespace safeops
