#include "torch/checks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "torch/outcome.h"

namespace safeops {

Policy checked_policy(Operator op, std::string_view policy) {
  if (policy.empty()) return Policy::stock;
  const auto parsed = parse_policy(policy);
  TORCH_CHECK_VALUE(parsed.has_value(), "safeops::", name(op),
                    ": policy must be 'stock', 'nan', 'epsilon', 'zero' or 'raise', got '",
                    std::string(policy), "'; use one of these names");
  return *parsed;
}

std::vector<std::int64_t> reduced_dims(Operator op, const at::Tensor& self, at::IntArrayRef dim) {
  const std::int64_t rank = std::max<std::int64_t>(self.dim(), 1);
  std::vector<std::int64_t> dims;
  for (const std::int64_t d : dim) {
    TORCH_CHECK_INDEX(-rank <= d && d < rank, "safeops::", name(op), ": dim must be in [", -rank,
                      ", ", rank - 1, "] for a ", self.dim(), "-d input, got ", d,
                      "; name a dimension that the input has");
    const std::int64_t wrapped = d < 0 ? d + rank : d;
    TORCH_CHECK(std::find(dims.begin(), dims.end(), wrapped) == dims.end(), "safeops::", name(op),
                ": dim must name every dimension once, got dim ", wrapped, " twice in ", dim,
                "; remove the repetition");
    dims.push_back(wrapped);
  }
  if (dim.empty()) {
    for (std::int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  }
  return dims;
}

void check_rank(Operator op, const at::Tensor& self) {
  // A complex tensor becomes its real view, which has one dimension more.
  TORCH_CHECK(self.dim() + self.is_complex() <= 64, "safeops::", name(op),
              ": input must have at most 64 dimensions, 63 if complex, got ", self.dim(),
              "; reshape it");
}

void check_eps_is_a_threshold(Operator op, const ResolvedEps& resolved, std::optional<double> eps) {
  TORCH_CHECK_VALUE(resolved.refusal != ResolvedEps::Refusal::not_finite_or_negative,
                    "safeops::", name(op), ": eps must be finite and not negative, got ",
                    eps.value_or(0), "; leave it out for the default");
}

std::string rounded_up(double value) {
  for (int digits = 2;; ++digits) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.*e", digits, value);
    if (std::strtod(text, nullptr) >= value) return text;
  }
}

std::optional<Element> element_of(at::ScalarType dtype) {
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
      return std::nullopt;
  }
}

void refuse_dtype(Operator op, const char* argument, const char* accepted, at::ScalarType dtype) {
  C10_THROW_ERROR(
      NotImplementedError,
      c10::str("safeops::", name(op), ": ", argument, " must be ", accepted, ", got ",
               dtype_name(dtype), "; convert it first, for example with input.float()"));
}

bool is_row_value(const at::Tensor& value, const at::Tensor& self,
                  const std::vector<std::int64_t>& dims, at::ScalarType dtype) {
  bool fits = value.dim() == self.dim() && value.scalar_type() == dtype;
  for (std::int64_t d = 0; fits && d < self.dim(); ++d) {
    const bool is_reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    fits = is_reduced ? value.sym_size(d) == 1 : value.sym_size(d) == self.sym_size(d);
  }
  return fits;
}

void check_device_of(Operator op, const char* argument, const at::Tensor& value,
                     const at::Tensor& grad) {
  TORCH_CHECK(value.device() == grad.device(), "safeops::_", name(op), "_backward: ", argument,
              " must be on the device of grad, ", grad.device(), ", got ", value.device(),
              "; move it there");
}

void check_out(Operator op, const at::Tensor& self, at::ScalarType dtype, OutDtype accepted,
               const at::Tensor& out) {
  if (accepted == OutDtype::same) {
    TORCH_CHECK(out.scalar_type() == dtype, "safeops::", name(op), ": out must have the dtype ",
                dtype_name(dtype), " of the result, got ", dtype_name(out.scalar_type()),
                "; pass an out of dtype ", dtype_name(dtype), " or another dtype argument");
  } else {
    TORCH_CHECK(c10::canCast(dtype, out.scalar_type()), "safeops::", name(op),
                ": out must have a dtype that ", dtype_name(dtype), " can be cast to, got ",
                dtype_name(out.scalar_type()), "; pass an out of dtype ", dtype_name(dtype));
  }
  TORCH_CHECK(self.device() == out.device(), "safeops::", name(op),
              ": out must be on the device of input, ", self.device(), ", got ", out.device(),
              "; allocate it there");
}

}  // namespace safeops
