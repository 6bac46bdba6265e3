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
};

/// "normalize.out" of "normalize.out(Tensor input, ...".
constexpr std::string_view name_in(std::string_view schema) {
  return schema.substr(0, schema.find('('));
}

}  // namespace safeops
