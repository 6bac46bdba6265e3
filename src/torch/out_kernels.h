#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <tuple>
#include <type_traits>

#include "torch/graft.h"
#include "torch/out_variant.h"

namespace safeops {

template <auto kOperator, class Signature>
struct OutKernels;

/// What an out= overload needs besides its device kernels. kOperator() is its handle; `out` is the
/// last argument.
template <auto kOperator, class... A>
struct OutKernels<kOperator, void(A...)> {
  /// Autograd: refuses to be differentiated.
  static void autograd(c10::DispatchKeySet keys, A... arguments) {
    TORCH_CHECK(
        !(differentiated(arguments) || ...), kOperator().schema().name(),
        ": functions with out=... arguments don't support automatic differentiation, but one of "
        "the arguments requires grad; leave out= away or call it under torch.no_grad()");
    const at::AutoDispatchBelowAutograd below;
    kOperator().redispatch(keys & c10::after_autograd_keyset, arguments...);
  }

  /// ADInplaceOrView: kernels write through raw pointers; without this a saved `out` would be
  /// changed behind autograd's back.
  static void counting(c10::DispatchKeySet keys, A... arguments) {
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      kOperator().redispatch(keys & c10::after_ADInplaceOrView_keyset, arguments...);
    }
    torch::autograd::increment_version(last(arguments...));
  }

  /// Conjugate and Negative: torch's fallback for lazy views takes the result of an out= overload
  /// from the stack, where one that returns nothing has left none.
  static void lazy(A... arguments) {
    at::Tensor& out = last(arguments...);
    const bool is_lazy = out.is_conj() || out.is_neg();
    at::Tensor result = is_lazy ? at::empty({0}, out.options()) : out;
    kOperator().call(resolved(arguments, result)...);
    if (is_lazy) {
      at::native::resize_output(out, result.sizes());
      out.copy_(result);
    }
  }

 private:
  static at::Tensor& last(A&... arguments) {
    return std::get<sizeof...(A) - 1>(std::tie(arguments...));
  }

  template <class T>
  static bool differentiated(const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return torch::autograd::compute_requires_grad(argument) || has_tangent(argument);
    } else {
      return false;  // a mask is not differentiable
    }
  }

  template <class T>
  static decltype(auto) resolved(T& argument, at::Tensor& result) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return (result);
    } else if constexpr (std::is_same_v<T, const at::Tensor>) {
      return argument.resolve_conj().resolve_neg();
    } else {
      return (argument);
    }
  }
};

}  // namespace safeops
