#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/resolution.h"
#include "torch/out_variant.h"

namespace safeops {

using at::Tensor;

/// The operators as their schemas in library.cc declare them.
using Normalize = Tensor(const Tensor&, double, at::IntArrayRef, std::optional<double>,
                         std::string_view);
using NormalizeForward = std::tuple<Tensor, Tensor>(const Tensor&, double, at::IntArrayRef, double,
                                                    std::string_view);
using NormalizeBackward = Tensor(const Tensor&, const Tensor&, const Tensor&, double,
                                 at::IntArrayRef, double, std::string_view);

using NormalizeOut = OutResult(const Tensor&, double, at::IntArrayRef, std::optional<double>,
                               std::string_view, Tensor&);

const c10::TypedOperatorHandle<Normalize>& normalize_operator();
const c10::TypedOperatorHandle<NormalizeOut>& normalize_out_operator();
const c10::TypedOperatorHandle<NormalizeForward>& normalize_forward_operator();
const c10::TypedOperatorHandle<NormalizeBackward>& normalize_backward_operator();

/// Checks the arguments of a public call and returns the eps it works with. Throws what torch
/// throws for the same mistake, in a sentence that names operator, argument, expectation, value and
/// remedy.
double checked_eps(const Tensor& self, double p, at::IntArrayRef dim, std::optional<double> eps,
                   std::string_view policy);

/// The storage type of the elements, for complex tensors that of their parts; refuses other dtypes.
Element element_type(const Tensor& self);

/// "" is nobody's choice and means stock.
Policy checked_policy(std::string_view policy);

/// The dims as non-negative numbers; an empty list means all of them, as for torch's norm.
std::vector<std::int64_t> reduced_dims(const Tensor& self, at::IntArrayRef dim);

}  // namespace safeops
