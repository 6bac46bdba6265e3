#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "operators/division/division.h"
#include "torch/checks.h"
#include "torch/elements_of_tensors.h"
#include "torch/operator_handle.h"

namespace safeops {

using at::Scalar;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using RoundingMode = std::optional<std::string_view>;
using OptionalEps = std::optional<double>;

/// div as its schemas declare it; Other is Tensor or Scalar.
template <class Other>
using Div = Tensor(const Tensor&, const Other&, RoundingMode, OptionalEps, std::string_view);
template <class Other>
using DivOut = void(const Tensor&, const Other&, RoundingMode, OptionalEps, std::string_view,
                    Tensor&);
template <class Other>
using DivInPlace = void(Tensor&, const Other&, RoundingMode, OptionalEps, std::string_view);
using WantedGradients = std::array<bool, 2>;
using DivBackward = std::tuple<Tensor, Tensor>(const Tensor&, const OptionalTensor&, const Tensor&,
                                               RoundingMode, double, std::string_view,
                                               WantedGradients);

/// The operators of one argument: reciprocal, rsqrt, sqrt and log.
using Unary = Tensor(const Tensor&, OptionalEps, std::string_view);
using UnaryOut = void(const Tensor&, OptionalEps, std::string_view, Tensor&);
using UnaryInPlace = void(Tensor&, OptionalEps, std::string_view);
using UnaryBackward = Tensor(const Tensor&, const Tensor&, double, std::string_view);

/// Handles of div by a tensor or by a number.
template <class Other>
inline constexpr bool kByNumber = std::is_same_v<Other, Scalar>;
template <class Other>
const auto& div_operator() {
  static const auto handle =
      find_operator<Div<Other>>("safeops::div", kByNumber<Other> ? "Scalar" : "");
  return handle;
}
template <class Other>
const auto& div_out_operator() {
  static const auto handle =
      find_operator<DivOut<Other>>("safeops::div", kByNumber<Other> ? "Scalar_out" : "out");
  return handle;
}
template <class Other>
const auto& div_in_place_operator() {
  static const auto handle =
      find_operator<DivInPlace<Other>>("safeops::div_", kByNumber<Other> ? "Scalar" : "");
  return handle;
}
inline const auto& div_backward_operator() {
  static const auto handle = find_operator<DivBackward>("safeops::_div_backward");
  return handle;
}

/// Handles of the operators of one argument.
template <Operator op>
const auto& unary_operator() {
  static const auto handle = find_operator<Unary>(("safeops::" + std::string(name(op))).c_str());
  return handle;
}
template <Operator op>
const auto& unary_out_operator() {
  static const auto handle =
      find_operator<UnaryOut>(("safeops::" + std::string(name(op))).c_str(), "out");
  return handle;
}
template <Operator op>
const auto& unary_in_place_operator() {
  static const auto handle =
      find_operator<UnaryInPlace>(("safeops::" + std::string(name(op)) + "_").c_str());
  return handle;
}
template <Operator op>
const auto& unary_backward_operator() {
  static const auto handle =
      find_operator<UnaryBackward>(("safeops::_" + std::string(name(op)) + "_backward").c_str());
  return handle;
}

/// What no floating-point kernel is asked for.
inline bool is_integral(at::ScalarType dtype) {
  return at::isIntegralType(dtype, /*includeBool=*/true);
}

/// What a call of an operator of the family works with.
struct DivisionCall {
  Operator op;
  DivisionKind kind;
  at::ScalarType dtype;  ///< of the result
  Policy policy;
  double eps;

  bool is_rounded() const {
    return kind == DivisionKind::truncated || kind == DivisionKind::floored;
  }
};

/// The kernel of an operator of one argument.
constexpr DivisionKind kind_of(Operator op) {
  switch (op) {
    case Operator::rsqrt:
      return DivisionKind::rsqrt;
    case Operator::sqrt:
      return DivisionKind::sqrt;
    case Operator::log:
      return DivisionKind::log;
    default:
      return DivisionKind::quotient;
  }
}

/// What a rounding mode makes of a quotient; throws for any that torch does not know.
DivisionKind kind_of(RoundingMode rounding_mode);

/// Checks the arguments of a public call.
DivisionCall checked_division(const Tensor& self, const Tensor& other, RoundingMode rounding_mode,
                              OptionalEps eps, std::string_view policy);
DivisionCall checked_division(const Tensor& self, const Scalar& other, RoundingMode rounding_mode,
                              OptionalEps eps, std::string_view policy);
DivisionCall checked_unary(Operator op, const Tensor& self, OptionalEps eps,
                           std::string_view policy);

/// The same of a backward operator, whose gradients have the dtype of grad. `self` is undefined
/// where the gradient of other is not wanted.
DivisionCall checked_division_backward(const Tensor& grad, const Tensor& self, const Tensor& other,
                                       RoundingMode rounding_mode, double eps,
                                       std::string_view policy, WantedGradients wanted);
DivisionCall checked_unary_backward(Operator op, const Tensor& grad, const Tensor& self, double eps,
                                    std::string_view policy);

/// The divisor where it is one number for all elements, as the kernel takes it: torch divides
/// halves by a number in float32, however it would be rounded to a half. A tensor of one element
/// counts where the host can read it without waiting; on CUDA one of the host is always a number.
std::optional<double> divisor_number(const DivisionCall& call, const Tensor& other,
                                     at::Device device);
std::optional<double> divisor_number(const DivisionCall& call, const Scalar& other);

/// One kernel execution; `numbers` stand for inputs without a place.
struct DivisionRun {
  Direction direction;
  ElementPlaces places;
  std::array<double, kElementInputs> numbers = {1, 1, 1};
};

/// Runs the kernel of the call over the elements of the iterator and settles its hits, which are
/// described as those of its first output.
void run_division(const DivisionCall& call, const DivisionRun& run,
                  const at::TensorIteratorBase& iterator);

/// Where a divisor or an argument is singular, as the kernels decide: at 0, below eps in magnitude
/// and, if it is real and `has_sign`, below 0.
Tensor singular_elements(const Tensor& x, double eps, bool has_sign);

/// Writes a result of the call, computed by `fill(result)`, into `out`; `make` allocates one.
void fill_division_out(const DivisionCall& call, std::initializer_list<Tensor> inputs,
                       at::IntArrayRef sizes, const std::function<Tensor()>& make,
                       const std::function<void(const Tensor&)>& fill, Tensor& out);

/// Resizes `out` for a result without data.
void resize_out_meta(Tensor& out, const Tensor& result);

}  // namespace safeops
