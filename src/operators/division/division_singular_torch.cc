#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>

#include "operators/division/division_torch.h"

namespace safeops {
namespace {

// A modulus in float64, as complex kernels form it: rounded to float32 it may fall on the other
// side of eps.
Tensor is_below(const Tensor& z, double eps) {
  const bool narrow = z.scalar_type() == at::kComplexFloat;
  const Tensor modulus = at::hypot(at::real(z).to(at::kDouble), at::imag(z).to(at::kDouble));
  return modulus < (narrow ? static_cast<double>(threshold_as<float>(eps)) : eps);
}

}  // namespace

Tensor singular_elements(const Tensor& x, double eps, bool has_sign) {
  const Tensor argument = x.detach();
  if (argument.is_complex()) return (argument == 0).logical_or(is_below(argument, eps));
  if (has_sign) return (argument <= 0).logical_or(argument < eps);
  return (argument == 0).logical_or(argument.abs() < eps);
}

}  // namespace safeops
