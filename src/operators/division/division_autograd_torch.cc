// div: autograd.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/real.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sgn.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <limits>
#include <string>

#include "operators/division/division_torch.h"
#include "torch/element_autograd.h"
#include "torch/out_kernels.h"
#include "torch/singular_multiple.h"

namespace safeops {
namespace {

using Tensors = std::array<Tensor, 2>;  // a and b

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct DivAttributes {
  std::optional<std::string> rounding_mode;
  double eps = 0;
  std::string policy;
  std::optional<Scalar> divisor;  // where other is a number
  bool real_dividend = true;

  template <class F>
  void each(const F& f) {
    f(rounding_mode), f(eps), f(policy), f(divisor), f(real_dividend);
  }
  template <class F>
  void each(const F& f) const {
    f(rounding_mode), f(eps), f(policy), f(divisor), f(real_dividend);
  }
};

RoundingMode mode_of(const DivAttributes& attributes) {
  return attributes.rounding_mode ? RoundingMode(*attributes.rounding_mode) : std::nullopt;
}

// Halves in float32: a kernel computes there too. A number of the host goes to the device, where
// masks are, as an argument of a kernel, so that nobody waits and a graph may be captured.
Tensor wide(const Tensor& u, const Tensor& result) {
  if (!u.defined()) return u;
  const Tensor converted = u.to(at::toOpMathType(result.scalar_type()));
  if (u.device() == result.device()) return converted;
  return at::ones({}, converted.options().device(result.device())) * converted;
}

// A number as a tensor, in the precision in which halves are divided by it. Made by the dispatcher,
// so that a graph that is being traced knows it. The host's, for kernels take it as a number.
Tensor divisor_of(const Tensors& saved, const DivAttributes& attributes, const Tensor& like) {
  if (saved[1].defined()) return saved[1];
  const auto options = like.options().dtype(at::toOpMathType(like.scalar_type()));
  return at::scalar_tensor(*attributes.divisor,
                           like.is_cuda() ? options.device(at::kCPU) : options);
}

// The derivatives of a / b as linear maps. Under stock they are PyTorch's, whatever these are;
// otherwise singular elements do not enter the arithmetic. A rounded quotient has no slope.
class QuotientSlopes {
 public:
  // a may be undefined.
  QuotientSlopes(const Tensor& a, const Tensor& b, const DivAttributes& attributes)
      : policy_(checked_policy(Operator::div, attributes.policy)),
        rounded_(attributes.rounding_mode.has_value()),
        a_(a),
        b_(b) {
    if (policy_ == Policy::stock) return;
    const Tensor divisor = b.detach();
    singular_ = singular_elements(divisor, attributes.eps, /*has_sign=*/false);
    if (a.defined()) singular_ = singular_.logical_and(at::isnan(a.detach()).logical_not());
    if (policy_ != Policy::epsilon) return;
    floored_ = divisor.is_complex() ? at::sgn(divisor).masked_fill(divisor == 0, 1) * attributes.eps
                                    : at::copysign(at::full_like(divisor, attributes.eps), divisor);
  }

  // u / b; where b is floored that is u / b', and b' is constant.
  Tensor along_a(const Tensor& u) const {
    if (rounded_) return marked(at::zeros_like(u), {u, b_});
    const Tensor regular = without(u, 0) / without(b_, 1);
    if (policy_ != Policy::epsilon) return marked(regular, {u, b_});
    const Tensor elsewhere = singular_.logical_not();
    return regular + (u.masked_fill(elsewhere, 0) / floored_).masked_fill(elsewhere, 0);
  }

  // -u (a / b) / b
  Tensor along_b(const Tensor& u) const {
    if (rounded_) return marked(at::zeros_like(u), {u, a_, b_});
    const Tensor b = without(b_, 1);
    return marked(-without(u, 0) * ((without(a_, 0) / b) / b), {u, a_, b_});
  }

 private:
  Tensor without(const Tensor& u, double fill) const {
    return policy_ == Policy::stock ? u : u.masked_fill(singular_, fill);
  }

  Tensor marked(Tensor sum, std::initializer_list<Tensor> marks) const {
    if (policy_ != Policy::nan) return sum;
    for (const Tensor& u : marks) {
      if (u.defined()) sum = sum + singular_multiple(u, singular_, kNan);
    }
    return sum;
  }

  Policy policy_;
  bool rounded_;
  Tensor a_, b_, singular_, floored_;
};

struct DivRoom {
  static constexpr const char* kForwardName = "SafeopsDivBackward";
  static constexpr const char* kBackwardName = "SafeopsDivBackwardBackward";
  static constexpr std::size_t kInputs = 2;
  using Attributes = DivAttributes;

  // a is of use for the gradient of b alone.
  static Tensors saved(const Tensors& inputs, const WantedGradients& wanted) {
    return {wanted[1] ? inputs[0] : Tensor(), inputs[1]};
  }

  static Tensors gradients(const Tensor& g, const Tensors& saved, const WantedGradients& wanted,
                           const Attributes& attributes) {
    const Tensor& a = saved[0];
    const Tensor b = divisor_of(saved, attributes, g);
    const auto [da, db] = div_backward_operator().call(
        g, a.defined() ? OptionalTensor(a) : std::nullopt, b, mode_of(attributes), attributes.eps,
        attributes.policy, wanted);
    const auto gradient = [](const Tensor& d, bool is_wanted, bool is_real) {
      if (!is_wanted) return Tensor();
      return is_real && d.is_complex() ? at::real(d) : d;
    };
    return {gradient(da, wanted[0], attributes.real_dividend),
            gradient(db, wanted[1], !b.is_complex())};
  }

  static Tensors backward_formula(const Tensor& grad, const Tensors& saved,
                                  const WantedGradients& wanted, const Attributes& attributes) {
    const at::ScalarType dtype = grad.scalar_type();
    const Tensor g = wide(grad, grad), a = wide(saved[0], grad), b = wide(saved[1], grad);
    // A lazy conj would be dropped in compiled inference graphs.
    const QuotientSlopes slopes(a.defined() ? at::conj_physical(a) : a, at::conj_physical(b),
                                attributes);
    return {wanted[0] ? slopes.along_a(g).to(dtype) : Tensor(),
            wanted[1] ? slopes.along_b(g).to(dtype) : Tensor()};
  }

  static Tensor tangent(const Tensors& tangents, const Tensors& inputs, const Tensor& result,
                        const Attributes& attributes) {
    const at::ScalarType dtype = result.scalar_type();
    const QuotientSlopes slopes(wide(inputs[0], result),
                                wide(divisor_of(inputs, attributes, result), result), attributes);
    const Tensor t_a = wide(tangents[0], result), t_b = wide(tangents[1], result);
    const Tensor through_a = t_a.defined() ? slopes.along_a(t_a) : Tensor();
    const Tensor through_b = t_b.defined() ? slopes.along_b(t_b) : Tensor();
    const Tensor sum = !through_b.defined()   ? through_a
                       : !through_a.defined() ? through_b
                                              : through_a + through_b;
    return sum.to(dtype).expand_as(result);
  }
};

using DivAutograd = ElementAutograd<DivRoom>;

// What is not dense goes on to its refusal.
bool is_recorded(const Tensor& self, const Tensor& other) {
  return is_dense(self) && is_dense(other) && is_differentiated(self, other);
}
bool is_recorded(const Tensor& self, const Scalar&) {
  return is_dense(self) && is_differentiated(self);
}

Tensors inputs_of(const Tensor& self, const Tensor& other) { return {self, other}; }
Tensors inputs_of(const Tensor& self, const Scalar&) { return {self, Tensor()}; }

std::optional<Scalar> number_of(const Tensor&) { return std::nullopt; }
std::optional<Scalar> number_of(const Scalar& other) { return other; }

template <class Other>
Tensor div_autograd(c10::DispatchKeySet keys, const Tensor& self, const Other& other,
                    RoundingMode rounding_mode, OptionalEps eps, std::string_view policy) {
  const auto below = [&] {
    return div_operator<Other>().redispatch(keys & c10::after_autograd_keyset, self, other,
                                            rounding_mode, eps, policy);
  };
  if (!is_recorded(self, other)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return below();
  }
  const DivisionCall call = checked_division(self, other, rounding_mode, eps, policy);
  const DivAttributes attributes{
      rounding_mode ? std::optional(std::string(*rounding_mode)) : std::nullopt, call.eps,
      std::string(policy), number_of(other), !self.is_complex()};
  return DivAutograd::forward(attributes, inputs_of(self, other), below);
}

std::tuple<Tensor, Tensor> backward_autograd(c10::DispatchKeySet keys, const Tensor& grad,
                                             const OptionalTensor& self, const Tensor& other,
                                             RoundingMode rounding_mode, double eps,
                                             std::string_view policy, WantedGradients wanted) {
  const DivAttributes attributes{
      rounding_mode ? std::optional(std::string(*rounding_mode)) : std::nullopt, eps,
      std::string(policy), std::nullopt, false};
  const auto [da, db] = DivAutograd::backward(
      attributes, grad, {self.value_or(Tensor()), other}, wanted, [&]() -> Tensors {
        const auto gradients =
            div_backward_operator().redispatch(keys & c10::after_autograd_keyset, grad, self, other,
                                               rounding_mode, eps, policy, wanted);
        return {std::get<0>(gradients), std::get<1>(gradients)};
      });
  return {da, db};
}

using Out = OutKernels<div_out_operator<Tensor>, DivOut<Tensor>>;
using OutOfNumber = OutKernels<div_out_operator<Scalar>, DivOut<Scalar>>;

}  // namespace

TORCH_LIBRARY_IMPL(safeops, Autograd, library) {
  library.impl("div", div_autograd<Tensor>);
  library.impl("div.Scalar", div_autograd<Scalar>);
  library.impl("div.out", Out::autograd);
  library.impl("div.Scalar_out", OutOfNumber::autograd);
  library.impl("_div_backward", backward_autograd);
}

TORCH_LIBRARY_IMPL(safeops, ADInplaceOrView, library) {
  library.impl("div.out", Out::counting);
  library.impl("div.Scalar_out", OutOfNumber::counting);
}

TORCH_LIBRARY_IMPL(safeops, Conjugate, library) {
  library.impl("div.out", Out::lazy);
  library.impl("div.Scalar_out", OutOfNumber::lazy);
}

TORCH_LIBRARY_IMPL(safeops, Negative, library) {
  library.impl("div.out", Out::lazy);
  library.impl("div.Scalar_out", OutOfNumber::lazy);
}

}  // namespace safeops
