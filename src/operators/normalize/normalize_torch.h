#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <tuple>

#include "torch/checks.h"
#include "torch/operator_handle.h"

namespace safeops {

using at::Tensor;

/// The operators as their schemas in library.cc declare them.
using Normalize = Tensor(const Tensor&, double, at::IntArrayRef, std::optional<double>,
                         std::string_view);
using NormalizeForward = std::tuple<Tensor, Tensor>(const Tensor&, double, at::IntArrayRef, double,
                                                    std::string_view);
using NormalizeBackward = Tensor(const Tensor&, const Tensor&, const Tensor&, double,
                                 at::IntArrayRef, double, std::string_view);

using NormalizeOut = void(const Tensor&, double, at::IntArrayRef, std::optional<double>,
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

}  // namespace safeops
