#include <c10/util/Exception.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/resolution.h"
#include "operators/normalize/normalize_torch.h"
#include "torch/outcome.h"

namespace safeops {
namespace {

constexpr double kStockEps = 1e-12;  // torch.nn.functional.normalize

// The dtype that the elements of the real view have.
Element element_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return Element::float16;
    case at::kBFloat16:
      return Element::bfloat16;
    case at::kFloat:
    case at::kComplexFloat:
      return Element::float32;
    case at::kDouble:
    case at::kComplexDouble:
      return Element::float64;
    default:
      C10_THROW_ERROR(
          NotImplementedError,
          c10::str(
              "safeops::normalize: input must be float16, bfloat16, float32, float64, complex64 or "
              "complex128, got ",
              dtype_name(dtype), "; convert it first, for example with input.float()"));
  }
}

// A short decimal that is not below the value, so that what a message advises works.
std::string rounded_up(double value) {
  for (int digits = 2;; ++digits) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.*e", digits, value);
    if (std::strtod(text, nullptr) >= value) return text;
  }
}

void check_identity(const Tensor& self, double p, at::IntArrayRef dim) {
  if (p >= 0 && !std::isinf(p)) return;
  for (const std::int64_t d : reduced_dims(self, dim)) {
    TORCH_CHECK(self.dim() == 0 || self.sym_size(d) != 0, "safeops::normalize: dim ", d,
                " must not be empty for p = ", p, ", which has no norm of nothing, got shape ",
                self.sym_sizes(), "; drop the empty rows or use a finite p >= 0");
  }
}

}  // namespace

Element element_type(const Tensor& self) { return element_of(self.scalar_type()); }

Policy checked_policy(std::string_view policy) {
  if (policy.empty()) return Policy::stock;
  const auto parsed = parse_policy(policy);
  TORCH_CHECK_VALUE(
      parsed.has_value(),
      "safeops::normalize: policy must be 'stock', 'nan', 'epsilon', 'zero' or 'raise', got '",
      std::string(policy), "'; use one of these names");
  return *parsed;
}

std::vector<std::int64_t> reduced_dims(const Tensor& self, at::IntArrayRef dim) {
  const std::int64_t rank = std::max<std::int64_t>(self.dim(), 1);
  std::vector<std::int64_t> dims;
  for (const std::int64_t d : dim) {
    TORCH_CHECK_INDEX(-rank <= d && d < rank, "safeops::normalize: dim must be in [", -rank, ", ",
                      rank - 1, "] for a ", self.dim(), "-d input, got ", d,
                      "; name a dimension that the input has");
    const std::int64_t wrapped = d < 0 ? d + rank : d;
    TORCH_CHECK(std::find(dims.begin(), dims.end(), wrapped) == dims.end(),
                "safeops::normalize: dim must name every dimension once, got dim ", wrapped,
                " twice in ", dim, "; remove the repetition");
    dims.push_back(wrapped);
  }
  if (dim.empty()) {
    for (std::int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  }
  return dims;
}

double checked_eps(const Tensor& self, double p, at::IntArrayRef dim, std::optional<double> eps,
                   std::string_view policy) {
  const Element element = element_of(self.scalar_type());
  TORCH_CHECK_VALUE(!std::isnan(p),
                    "safeops::normalize: p must be a number or +-inf, got NaN; use p=2 for the "
                    "Euclidean norm");
  const Policy chosen = checked_policy(policy);
  // A complex tensor becomes its real view, which has one dimension more.
  TORCH_CHECK(self.dim() + self.is_complex() <= 64,
              "safeops::normalize: input must have at most 64 dimensions, 63 if complex, got ",
              self.dim(), "; reshape it");
  reduced_dims(self, dim);
  check_identity(self, p, dim);
  const ResolvedEps resolved = resolve_eps(chosen, eps, kStockEps, element);
  TORCH_CHECK_VALUE(resolved.refusal != ResolvedEps::Refusal::not_finite_or_negative,
                    "safeops::normalize: eps must be finite and not negative, got ",
                    eps.value_or(0), "; leave it out for the default");
  TORCH_CHECK_VALUE(resolved.refusal != ResolvedEps::Refusal::reciprocal_overflows,
                    "safeops::normalize: eps must be at least ",
                    rounded_up(resolved.smallest_usable), " under policy 'epsilon' for ",
                    dtype_name(self.scalar_type()),
                    ", because the gradient 1/eps must be finite there, got ", eps.value_or(0),
                    "; raise eps or use policy 'zero'");
  return resolved.value;
}

}  // namespace safeops
