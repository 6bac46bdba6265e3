#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "operators/softmax/softmax.h"
#include "torch/checks.h"
#include "torch/operator_handle.h"
#include "torch/rows_of_tensors.h"

namespace safeops {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// The operators as their schemas declare them; log_softmax as softmax.
using Softmax = Tensor(const Tensor&, std::int64_t, std::optional<at::ScalarType>,
                       const OptionalTensor&, std::optional<double>, std::string_view);
using SoftmaxOut = void(const Tensor&, std::int64_t, std::optional<at::ScalarType>,
                        const OptionalTensor&, std::optional<double>, std::string_view, Tensor&);
using SoftmaxForward = std::tuple<Tensor, Tensor>(const Tensor&, std::int64_t, at::ScalarType,
                                                  const OptionalTensor&, double, std::string_view);
using SoftmaxBackward = Tensor(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                               std::int64_t, at::ScalarType, std::string_view);
using LogSumExp = Tensor(const Tensor&, at::IntArrayRef, bool, const OptionalTensor&,
                         std::string_view);
using LogSumExpOut = void(const Tensor&, at::IntArrayRef, bool, const OptionalTensor&,
                          std::string_view, Tensor&);
using LogSumExpForward = std::tuple<Tensor, Tensor>(const Tensor&, at::IntArrayRef,
                                                    const OptionalTensor&, std::string_view);
using LogSumExpBackward = Tensor(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                                 at::IntArrayRef, std::string_view);

/// Handles of softmax and log_softmax.
template <SoftmaxKind kind>
const auto& softmax_operator() {
  static const auto handle = find_operator<Softmax>(
      kind == SoftmaxKind::softmax ? "safeops::softmax" : "safeops::log_softmax");
  return handle;
}
template <SoftmaxKind kind>
const auto& softmax_out_operator() {
  static const auto handle = find_operator<SoftmaxOut>(
      kind == SoftmaxKind::softmax ? "safeops::softmax" : "safeops::log_softmax", "out");
  return handle;
}
template <SoftmaxKind kind>
const auto& softmax_forward_operator() {
  static const auto handle = find_operator<SoftmaxForward>(
      kind == SoftmaxKind::softmax ? "safeops::_softmax_forward" : "safeops::_log_softmax_forward");
  return handle;
}
template <SoftmaxKind kind>
const auto& softmax_backward_operator() {
  static const auto handle = find_operator<SoftmaxBackward>(kind == SoftmaxKind::softmax
                                                                ? "safeops::_softmax_backward"
                                                                : "safeops::_log_softmax_backward");
  return handle;
}
const c10::TypedOperatorHandle<LogSumExp>& logsumexp_operator();
const c10::TypedOperatorHandle<LogSumExpOut>& logsumexp_out_operator();
const c10::TypedOperatorHandle<LogSumExpForward>& logsumexp_forward_operator();
const c10::TypedOperatorHandle<LogSumExpBackward>& logsumexp_backward_operator();

/// The operator that a kind counts as.
Operator operator_of(SoftmaxKind kind);

/// What a call of softmax or log_softmax works with.
struct SoftmaxCall {
  std::int64_t dim;
  at::ScalarType dtype;  ///< of the result
  double eps;
  Policy policy;
};

/// Checks the arguments of a public call.
SoftmaxCall checked_call(SoftmaxKind kind, const Tensor& self, std::int64_t dim,
                         std::optional<at::ScalarType> dtype, const OptionalTensor& where,
                         std::optional<double> eps, std::string_view policy);

/// self as a kernel takes it for a result of `dtype`: halves that become float32 are converted on
/// load, whatever else is not of the dtype is converted here, differentiably.
Tensor as_kernel_input(const Tensor& self, at::ScalarType dtype);

/// Refuses a mask that is not bool, not on the device of self, or not expandable to its shape.
void check_where(Operator op, const Tensor& self, const OptionalTensor& where);

/// The mask as a view of self's shape; undefined where there is none.
Tensor expanded(const OptionalTensor& where, const Tensor& self);

/// Checks the arguments of a call of logsumexp but its dtype; returns the dims.
std::vector<std::int64_t> checked_logsumexp_dims(const Tensor& self, at::IntArrayRef dim,
                                                 const OptionalTensor& where,
                                                 std::string_view policy);

/// The dtype of the result: that of self, for integers the default; refuses the rest.
at::ScalarType logsumexp_dtype(const Tensor& self);

/// The public result of logsumexp from the one with kept dims, differentiably.
inline Tensor squeezed(const Tensor& result, const std::vector<std::int64_t>& dims, bool keepdim) {
  return keepdim ? result : result.squeeze(dims);
}

/// torch's own logsumexp, which counts no hits.
Tensor complex_logsumexp(const Tensor& self, const std::vector<std::int64_t>& dims, bool keepdim,
                         const OptionalTensor& where);

/// One kernel execution: which, and what settles its hits.
struct SoftmaxRun {
  SoftmaxKind kind;
  Direction direction;
  Policy policy;
  double eps;
};

/// Runs the kernel over the rows of the operands and settles its hits, which are described as those
/// of `input`. `arguments` brings the values per row.
void run_softmax(const SoftmaxRun& run, RowOperands operands, const Tensor& input,
                 const std::vector<std::int64_t>& dims, RowArguments arguments);

}  // namespace safeops
