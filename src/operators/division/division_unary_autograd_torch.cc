// reciprocal, rsqrt, sqrt and log: autograd and autocast.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sqrt.h>
#include <torch/library.h>

#include <limits>
#include <string>

#include "operators/division/division_torch.h"
#include "torch/element_autograd.h"
#include "torch/out_kernels.h"
#include "torch/singular_multiple.h"

namespace safeops {
namespace {

using Tensors = std::array<Tensor, 1>;
using Wanted = std::array<bool, 1>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct UnaryAttributes {
  double eps = 0;
  std::string policy;

  template <class F>
  void each(const F& f) {
    f(eps), f(policy);
  }
  template <class F>
  void each(const F& f) const {
    f(eps), f(policy);
  }
};

Tensor slope(Operator op, const Tensor& x) {
  switch (op) {
    case Operator::rsqrt: {
      const Tensor y = at::rsqrt(x);
      return y * y * y * -0.5;
    }
    case Operator::sqrt:
      return at::reciprocal(at::sqrt(x) * 2);
    case Operator::log:
      return at::reciprocal(x);
    default:
      return -(at::reciprocal(x) / x);
  }
}

// u f'(x), as a linear map of u. Under stock it is PyTorch's, whatever that is; otherwise singular
// elements do not enter the arithmetic. A floored argument has no slope.
Tensor along(Operator op, const Tensor& u, const Tensor& x, const UnaryAttributes& attributes) {
  const Policy policy = checked_policy(op, attributes.policy);
  if (policy == Policy::stock) return u * slope(op, x);
  const Tensor singular = singular_elements(x, attributes.eps, op != Operator::reciprocal);
  const Tensor regular = u.masked_fill(singular, 0) * slope(op, x.masked_fill(singular, 1));
  if (policy != Policy::nan) return regular;
  return regular + singular_multiple(u, singular, kNan) + singular_multiple(x, singular, kNan);
}

template <Operator op>
struct UnaryNames;
template <>
struct UnaryNames<Operator::reciprocal> {
  static constexpr const char* kForwardName = "SafeopsReciprocalBackward";
  static constexpr const char* kBackwardName = "SafeopsReciprocalBackwardBackward";
};
template <>
struct UnaryNames<Operator::rsqrt> {
  static constexpr const char* kForwardName = "SafeopsRsqrtBackward";
  static constexpr const char* kBackwardName = "SafeopsRsqrtBackwardBackward";
};
template <>
struct UnaryNames<Operator::sqrt> {
  static constexpr const char* kForwardName = "SafeopsSqrtBackward";
  static constexpr const char* kBackwardName = "SafeopsSqrtBackwardBackward";
};
template <>
struct UnaryNames<Operator::log> {
  static constexpr const char* kForwardName = "SafeopsLogBackward";
  static constexpr const char* kBackwardName = "SafeopsLogBackwardBackward";
};

template <Operator op>
struct UnaryRoom : UnaryNames<op> {
  static constexpr std::size_t kInputs = 1;
  using Attributes = UnaryAttributes;

  static Tensors saved(const Tensors& inputs, const Wanted&) { return inputs; }

  static Tensors gradients(const Tensor& g, const Tensors& saved, const Wanted&,
                           const Attributes& attributes) {
    return {unary_backward_operator<op>().call(g, saved[0], attributes.eps, attributes.policy)};
  }

  static Tensors backward_formula(const Tensor& g, const Tensors& saved, const Wanted&,
                                  const Attributes& attributes) {
    // A lazy conj would be dropped in compiled inference graphs.
    return {along_wide(g, at::conj_physical(saved[0]), attributes)};
  }

  static Tensor tangent(const Tensors& tangents, const Tensors& inputs, const Tensor&,
                        const Attributes& attributes) {
    return along_wide(tangents[0], inputs[0], attributes);
  }

 private:
  // Halves in float32: a kernel computes there too.
  static Tensor along_wide(const Tensor& u, const Tensor& x, const Attributes& attributes) {
    const at::ScalarType dtype = u.scalar_type(), wide = at::toOpMathType(dtype);
    return along(op, u.to(wide), x.to(wide), attributes).to(dtype);
  }
};

template <Operator op>
Tensor unary_autograd(c10::DispatchKeySet keys, const Tensor& self, OptionalEps eps,
                      std::string_view policy) {
  const auto below = [&] {
    return unary_operator<op>().redispatch(keys & c10::after_autograd_keyset, self, eps, policy);
  };
  // What is not dense goes on to its refusal.
  if (!is_dense(self) || !is_differentiated(self)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return below();
  }
  const DivisionCall call = checked_unary(op, self, eps, policy);
  return ElementAutograd<UnaryRoom<op>>::forward({call.eps, std::string(policy)}, {self}, below);
}

template <Operator op>
Tensor backward_autograd(c10::DispatchKeySet keys, const Tensor& grad, const Tensor& self,
                         double eps, std::string_view policy) {
  const auto [gradient] = ElementAutograd<UnaryRoom<op>>::backward(
      {eps, std::string(policy)}, grad, {self}, {true}, [&]() -> Tensors {
        return {unary_backward_operator<op>().redispatch(keys & c10::after_autograd_keyset, grad,
                                                         self, eps, policy)};
      });
  return gradient;
}

// As torch's own list for CUDA, which has no sqrt.
template <Operator op>
Tensor autocast_cuda(const Tensor& self, OptionalEps eps, std::string_view policy) {
  const c10::impl::ExcludeDispatchKeyGuard outside(c10::DispatchKey::AutocastCUDA);
  return unary_operator<op>().call(
      at::autocast::cached_cast(at::kFloat, self, c10::DeviceType::CUDA), eps, policy);
}

template <Operator op>
using Out = OutKernels<unary_out_operator<op>, UnaryOut>;

template <class F>
void for_each_operator(const F& f) {
  f.template operator()<Operator::reciprocal>();
  f.template operator()<Operator::rsqrt>();
  f.template operator()<Operator::sqrt>();
  f.template operator()<Operator::log>();
}

std::string out_of(Operator op) { return std::string(name(op)) + ".out"; }

}  // namespace

TORCH_LIBRARY_IMPL(safeops, Autograd, library) {
  for_each_operator([&]<Operator op>() {
    const std::string operation(name(op));
    library.impl(operation.c_str(), unary_autograd<op>);
    library.impl(out_of(op).c_str(), Out<op>::autograd);
    library.impl(("_" + operation + "_backward").c_str(), backward_autograd<op>);
  });
}

TORCH_LIBRARY_IMPL(safeops, ADInplaceOrView, library) {
  for_each_operator([&]<Operator op>() { library.impl(out_of(op).c_str(), Out<op>::counting); });
}

TORCH_LIBRARY_IMPL(safeops, Conjugate, library) {
  for_each_operator([&]<Operator op>() { library.impl(out_of(op).c_str(), Out<op>::lazy); });
}

TORCH_LIBRARY_IMPL(safeops, Negative, library) {
  for_each_operator([&]<Operator op>() { library.impl(out_of(op).c_str(), Out<op>::lazy); });
}

TORCH_LIBRARY_IMPL(safeops, AutocastCUDA, library) {
  library.impl("reciprocal", autocast_cuda<Operator::reciprocal>);
  library.impl("rsqrt", autocast_cuda<Operator::rsqrt>);
  library.impl("log", autocast_cuda<Operator::log>);
}

}  // namespace safeops
