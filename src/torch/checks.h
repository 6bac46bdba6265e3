#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/resolution.h"
#include "safeops/diagnostics.h"

namespace safeops {

// Checks of the arguments that operators share. They throw what torch throws for the same mistake,
// in a sentence that names operator, argument, expectation, value and remedy.

/// "" is nobody's choice and means stock.
Policy checked_policy(Operator op, std::string_view policy);

/// The dims as non-negative numbers; an empty list means all of them, as for torch's reductions.
std::vector<std::int64_t> reduced_dims(Operator op, const at::Tensor& self, at::IntArrayRef dim);

/// Refuses more dims than ReducedDims holds.
void check_rank(Operator op, const at::Tensor& self);

/// Refuses an eps that resolve_eps found negative or not finite.
void check_eps_is_a_threshold(Operator op, const ResolvedEps& resolved, std::optional<double> eps);

/// A short decimal that is not below the value, so that what a message advises works.
std::string rounded_up(double value);

/// False for a tensor that is sparse, nested, quantized or of another layout that no kernel knows.
inline bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_nested() && !tensor.is_quantized();
}

/// The storage type of the elements, for complex dtypes that of their parts; nothing for dtypes
/// that no kernel knows.
std::optional<Element> element_of(at::ScalarType dtype);

/// Refuses the dtype of an argument; `accepted` lists the others.
[[noreturn]] void refuse_dtype(Operator op, const char* argument, const char* accepted,
                               at::ScalarType dtype);

/// True if `value` is of `dtype` and of the shape of self with the reduced dims kept as size 1.
bool is_row_value(const at::Tensor& value, const at::Tensor& self,
                  const std::vector<std::int64_t>& dims, at::ScalarType dtype = at::kDouble);

/// Refuses an argument of the backward operator on another device than the incoming gradient.
void check_device_of(Operator op, const char* argument, const at::Tensor& value,
                     const at::Tensor& grad);

/// Refuses an `out` on another device, or whose dtype cannot hold the result.
enum class OutDtype : std::uint8_t { same, castable };
void check_out(Operator op, const at::Tensor& self, at::ScalarType dtype, OutDtype accepted,
               const at::Tensor& out);

}  // namespace safeops
