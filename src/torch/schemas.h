#pragma once

#include <string_view>

namespace safeops {

/// Every schema of the library. What is registered for all operators alike iterates this list.
///
/// An out= overload returns nothing: compiled graphs refuse an aliased result, unless the overload
/// has Tag::out; but one that has it is what Inductor calls in place of the functional overload,
/// with the tensors first and lists flattened, so dim=(0, 2) of normalize as dim=0, eps=2.
inline constexpr const char* kSchemas[] = {
    R"(normalize(Tensor self, float p=2.0, int[1] dim=1, float? eps=None, str policy="") -> )"
    R"(Tensor)",
    R"(normalize.out(Tensor input, float p=2.0, int[1] dim=1, float? eps=None, )"
    R"(str policy="", *, Tensor(a!) out) -> ())",
    R"(_normalize_forward(Tensor self, float p, int[] dim, float eps, str policy) -> )"
    R"((Tensor out, Tensor norm))",
    R"(_normalize_backward(Tensor grad, Tensor self, Tensor norm, float p, int[] dim, float eps, )"
    R"(str policy) -> Tensor)",

    R"(softmax(Tensor self, int dim, ScalarType? dtype=None, Tensor? where=None, )"
    R"(float? eps=None, str policy="") -> Tensor)",
    R"(softmax.out(Tensor input, int dim, ScalarType? dtype=None, Tensor? where=None, )"
    R"(float? eps=None, str policy="", *, Tensor(a!) out) -> ())",
    R"(_softmax_forward(Tensor self, int dim, ScalarType dtype, Tensor? where, float eps, )"
    R"(str policy) -> (Tensor out, Tensor peak))",
    R"(_softmax_backward(Tensor grad, Tensor out, Tensor peak, Tensor? where, int dim, )"
    R"(ScalarType input_dtype, str policy) -> Tensor)",

    R"(log_softmax(Tensor self, int dim, ScalarType? dtype=None, Tensor? where=None, )"
    R"(float? eps=None, str policy="") -> Tensor)",
    R"(log_softmax.out(Tensor input, int dim, ScalarType? dtype=None, Tensor? where=None, )"
    R"(float? eps=None, str policy="", *, Tensor(a!) out) -> ())",
    R"(_log_softmax_forward(Tensor self, int dim, ScalarType dtype, Tensor? where, float eps, )"
    R"(str policy) -> (Tensor out, Tensor peak))",
    R"(_log_softmax_backward(Tensor grad, Tensor out, Tensor peak, Tensor? where, int dim, )"
    R"(ScalarType input_dtype, str policy) -> Tensor)",

    R"(logsumexp(Tensor self, int[1] dim, bool keepdim=False, Tensor? where=None, )"
    R"(str policy="") -> Tensor)",
    R"(logsumexp.out(Tensor input, int[1] dim, bool keepdim=False, Tensor? where=None, )"
    R"(str policy="", *, Tensor(a!) out) -> ())",
    R"(_logsumexp_forward(Tensor self, int[] dim, Tensor? where, str policy) -> )"
    R"((Tensor out, Tensor lse))",
    R"(_logsumexp_backward(Tensor grad, Tensor self, Tensor lse, Tensor? where, int[] dim, )"
    R"(str policy) -> Tensor)",

    R"(div(Tensor self, Tensor other, str? rounding_mode=None, float? eps=None, )"
    R"(str policy="") -> Tensor)",
    R"(div.Scalar(Tensor self, Scalar other, str? rounding_mode=None, float? eps=None, )"
    R"(str policy="") -> Tensor)",
    R"(div.out(Tensor input, Tensor other, str? rounding_mode=None, float? eps=None, )"
    R"(str policy="", *, Tensor(a!) out) -> ())",
    R"(div.Scalar_out(Tensor input, Scalar other, str? rounding_mode=None, float? eps=None, )"
    R"(str policy="", *, Tensor(a!) out) -> ())",
    R"(div_(Tensor(a!) input, Tensor other, str? rounding_mode=None, float? eps=None, )"
    R"(str policy="") -> ())",
    R"(div_.Scalar(Tensor(a!) input, Scalar other, str? rounding_mode=None, float? eps=None, )"
    R"(str policy="") -> ())",
    R"(_div_backward(Tensor grad, Tensor? self, Tensor other, str? rounding_mode, float eps, )"
    R"(str policy, bool[2] wanted) -> (Tensor grad_self, Tensor grad_other))",

    R"(reciprocal(Tensor self, float? eps=None, str policy="") -> Tensor)",
    R"(reciprocal.out(Tensor input, float? eps=None, str policy="", *, Tensor(a!) out) -> ())",
    R"(reciprocal_(Tensor(a!) input, float? eps=None, str policy="") -> ())",
    R"(_reciprocal_backward(Tensor grad, Tensor self, float eps, str policy) -> Tensor)",

    R"(rsqrt(Tensor self, float? eps=None, str policy="") -> Tensor)",
    R"(rsqrt.out(Tensor input, float? eps=None, str policy="", *, Tensor(a!) out) -> ())",
    R"(rsqrt_(Tensor(a!) input, float? eps=None, str policy="") -> ())",
    R"(_rsqrt_backward(Tensor grad, Tensor self, float eps, str policy) -> Tensor)",

    R"(sqrt(Tensor self, float? eps=None, str policy="") -> Tensor)",
    R"(sqrt.out(Tensor input, float? eps=None, str policy="", *, Tensor(a!) out) -> ())",
    R"(sqrt_(Tensor(a!) input, float? eps=None, str policy="") -> ())",
    R"(_sqrt_backward(Tensor grad, Tensor self, float eps, str policy) -> Tensor)",

    R"(log(Tensor self, float? eps=None, str policy="") -> Tensor)",
    R"(log.out(Tensor input, float? eps=None, str policy="", *, Tensor(a!) out) -> ())",
    R"(log_(Tensor(a!) input, float? eps=None, str policy="") -> ())",
    R"(_log_backward(Tensor grad, Tensor self, float eps, str policy) -> Tensor)",
};

/// "normalize.out" of "normalize.out(Tensor input, ...".
constexpr std::string_view name_in(std::string_view schema) {
  return schema.substr(0, schema.find('('));
}

/// True for "div_" and "div_.Scalar": operators in terms of others, which work in place.
constexpr bool is_in_place(std::string_view schema) {
  const std::string_view full = name_in(schema);
  return full.substr(0, full.find('.')).ends_with('_');
}

/// True for out= overloads and operators that work in place.
constexpr bool writes_argument(std::string_view schema) {
  return schema.find("(a!)") != std::string_view::npos;
}

}  // namespace safeops
