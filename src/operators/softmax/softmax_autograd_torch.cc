#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <limits>
#include <string>

#include "operators/softmax/softmax_torch.h"
#include "torch/out_kernels.h"
#include "torch/row_autograd.h"
#include "torch/singular_multiple.h"

namespace safeops {
namespace {

using at::IntArrayRef;
using Dims = std::vector<std::int64_t>;
using Saved = std::array<Tensor, 3>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

OptionalTensor optional_of(const Tensor& mask) {
  return mask.defined() ? OptionalTensor(mask) : std::nullopt;
}

// Halves in float32: a kernel computes there too.
Tensor wide(const Tensor& u) { return u.to(at::toOpMathType(u.scalar_type())); }

bool marks_empty_rows(Operator op, const std::string& policy) {
  const Policy chosen = checked_policy(op, policy);
  return chosen == Policy::stock || chosen == Policy::nan;
}

// What must not enter the arithmetic: empty rows, and elements that take no part.
struct Excluded {
  Tensor rows, elements;  // the second undefined: all take part

  Excluded(const Tensor& row_value, const Tensor& where)
      : rows(row_value.detach() == -kInfinity),
        elements(where.defined() ? where.logical_not() : Tensor()) {}

  Tensor without_elements(const Tensor& u, double fill) const {
    return elements.defined() ? u.masked_fill(elements, fill) : u;
  }
  Tensor without(const Tensor& u, double fill) const {
    return without_elements(u.masked_fill(rows, fill), fill);
  }
  // NaN in empty rows, as a linear map of the elements that take part.
  Tensor marks(const Tensor& u) const {
    return singular_multiple(without_elements(u, 0), rows, kNan);
  }
};

struct SoftmaxAttributes {
  std::int64_t dim = 0;
  at::ScalarType input_dtype = at::kFloat;
  std::string policy;

  template <class F>
  void each(const F& f) {
    f(dim), f(input_dtype), f(policy);
  }
  template <class F>
  void each(const F& f) const {
    f(dim), f(input_dtype), f(policy);
  }
  template <class F>
  Tensor pass(const F& f, const Tensor& grad, const Saved& saved) const {
    const auto& [y, peak, where] = saved;
    return f(grad, y, peak, optional_of(where), dim, input_dtype, policy);
  }
};

/// As torch's own operators, both save y, which holds all that their derivatives need.
template <SoftmaxKind kind>
struct SoftmaxRoom {
  static constexpr bool kLog = kind == SoftmaxKind::log_softmax;
  static constexpr const char* kForwardName =
      kLog ? "SafeopsLogSoftmaxBackward" : "SafeopsSoftmaxBackward";
  static constexpr const char* kBackwardName =
      kLog ? "SafeopsLogSoftmaxBackwardBackward" : "SafeopsSoftmaxBackwardBackward";
  static constexpr std::array kSaves = {Saves::output, Saves::row_value, Saves::mask};
  static constexpr std::size_t kDifferentiable = 1;
  // y of what is excluded: its exponential is 0, or it is 0 itself.
  static constexpr double kNothing = kLog ? -kInfinity : 0;
  using Attributes = SoftmaxAttributes;

  static const auto& forward_operator() { return softmax_forward_operator<kind>(); }
  static const auto& backward_operator() { return softmax_backward_operator<kind>(); }

  // softmax: y (g - <y, g>); log_softmax: g - e^y sum g
  static Tensor backward_formula(const Tensor& g, const Saved& saved,
                                 const Attributes& attributes) {
    const auto& [y, peak, where] = saved;
    const Excluded excluded(peak, where);
    const Tensor regular = excluded.without(wide(g), 0);
    const Tensor value = excluded.without(wide(y), kNothing);
    Tensor gradient =
        kLog ? regular - value.exp() * regular.sum(attributes.dim, /*keepdim=*/true)
             : value * (regular - (value * regular).sum(attributes.dim, /*keepdim=*/true));
    if (marks_empty_rows(operator_of(kind), attributes.policy)) {
      gradient = gradient + excluded.marks(g) + excluded.marks(y);
    }
    return excluded.without_elements(gradient, 0).to(attributes.input_dtype);
  }

  // softmax: y (t - <y, t>), the same map; log_softmax: t - <e^y, t>. A marked row is NaN as a
  // whole, as y is.
  static std::array<Tensor, 1> tangents(const Tensor& t, const Saved& saved,
                                        const Attributes& attributes) {
    const auto& [y, peak, where] = saved;
    const Excluded excluded(peak, where);
    const Tensor regular = excluded.without(wide(t), 0);
    const Tensor value = excluded.without(wide(y), kNothing);
    const Tensor weight = kLog ? value.exp() : value;
    const Tensor centred = regular - (weight * regular).sum(attributes.dim, /*keepdim=*/true);
    Tensor tangent = excluded.without(kLog ? centred : value * centred, 0);
    if (marks_empty_rows(operator_of(kind), attributes.policy)) {
      tangent = tangent + excluded.marks(t) + excluded.marks(y);
    }
    return {tangent.to(y.scalar_type())};
  }
};

struct LogSumExpAttributes {
  Dims dim;
  std::string policy;

  template <class F>
  void each(const F& f) {
    f(dim), f(policy);
  }
  template <class F>
  void each(const F& f) const {
    f(dim), f(policy);
  }
  template <class F>
  Tensor pass(const F& f, const Tensor& grad, const Saved& saved) const {
    const auto& [x, lse, where] = saved;
    return f(grad, x, lse, optional_of(where), dim, policy);
  }
};

struct LogSumExpRoom {
  static constexpr const char* kForwardName = "SafeopsLogSumExpBackward";
  static constexpr const char* kBackwardName = "SafeopsLogSumExpBackwardBackward";
  static constexpr std::array kSaves = {Saves::input, Saves::row_value, Saves::mask};
  static constexpr std::size_t kDifferentiable = 1;
  using Attributes = LogSumExpAttributes;

  static const auto& forward_operator() { return logsumexp_forward_operator(); }
  static const auto& backward_operator() { return logsumexp_backward_operator(); }

  // e^(x - lse), 0 for what is excluded. Not from lse: rounded, it says nothing of rows beyond
  // 2^53, and less and less on the way there.
  static Tensor weights(const Excluded& excluded, const Tensor& x, const Attributes& attributes) {
    const Tensor logits = excluded.without(x.to(at::kDouble), -kInfinity);
    if (x.sym_numel() == 0) return logits;  // whose rows have no largest element
    const Tensor peak = at::amax(logits.detach(), attributes.dim, /*keepdim=*/true);
    const Tensor terms = (logits - peak.masked_fill(peak.abs() == kInfinity, 0)).exp();
    return terms / terms.sum(attributes.dim, /*keepdim=*/true).masked_fill(excluded.rows, 1);
  }

  // g e^(x - lse)
  static Tensor backward_formula(const Tensor& g, const Saved& saved,
                                 const Attributes& attributes) {
    const auto& [x, lse, where] = saved;
    const Excluded excluded(lse, where);
    Tensor gradient = g.masked_fill(excluded.rows, 0) * weights(excluded, x, attributes);
    if (marks_empty_rows(Operator::logsumexp, attributes.policy)) {
      gradient = gradient + excluded.marks(g.expand_as(x)) + excluded.marks(x);
    }
    return excluded.without_elements(gradient, 0).to(x.scalar_type());
  }

  // <e^(x - lse), t>
  static std::array<Tensor, 1> tangents(const Tensor& t, const Saved& saved,
                                        const Attributes& attributes) {
    const auto& [x, lse, where] = saved;
    const Excluded excluded(lse, where);
    const Tensor regular = excluded.without(t, 0);
    Tensor tangent = (weights(excluded, x, attributes) * regular).sum(attributes.dim, true);
    if (marks_empty_rows(Operator::logsumexp, attributes.policy)) {
      const Tensor marks = (excluded.marks(t) + excluded.marks(x)).sum(attributes.dim, true);
      tangent = tangent + marks;
    }
    return {tangent.to(x.scalar_type())};
  }
};

// What is not dense goes on to its refusal, which then names the public operator.
bool differentiates(const Tensor& self, const OptionalTensor& where) {
  return is_dense(self) && (!where || !where->defined() || is_dense(*where)) &&
         (torch::autograd::compute_requires_grad(self) || has_tangent(self));
}

template <SoftmaxKind kind>
std::tuple<Tensor, Tensor> forward_autograd(c10::DispatchKeySet keys, const Tensor& self,
                                            std::int64_t dim, at::ScalarType dtype,
                                            const OptionalTensor& where, double eps,
                                            std::string_view policy) {
  const Dims dims = reduced_dims(operator_of(kind), self, dim);
  return RowAutograd<SoftmaxRoom<kind>>::forward(
      keys, {dims.front(), self.scalar_type(), std::string(policy)}, where.value_or(Tensor()), self,
      dims.front(), dtype, where, eps, policy);
}

template <SoftmaxKind kind>
Tensor backward_autograd(c10::DispatchKeySet keys, const Tensor& grad, const Tensor& out,
                         const Tensor& peak, const OptionalTensor& where, std::int64_t dim,
                         at::ScalarType input_dtype, std::string_view policy) {
  const Dims dims = reduced_dims(operator_of(kind), out, dim);
  return RowAutograd<SoftmaxRoom<kind>>::backward(keys,
                                                  {dims.front(), input_dtype, std::string(policy)},
                                                  grad, {out, peak, where.value_or(Tensor())});
}

template <SoftmaxKind kind>
Tensor softmax_autograd(c10::DispatchKeySet keys, const Tensor& self, std::int64_t dim,
                        std::optional<at::ScalarType> dtype, const OptionalTensor& where,
                        std::optional<double> eps, std::string_view policy) {
  if (differentiates(self, where)) {
    const SoftmaxCall call = checked_call(kind, self, dim, dtype, where, eps, policy);
    return std::get<0>(softmax_forward_operator<kind>().call(
        as_kernel_input(self, call.dtype), call.dim, call.dtype, where, call.eps, policy));
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return softmax_operator<kind>().redispatch(keys & c10::after_autograd_keyset, self, dim, dtype,
                                             where, eps, policy);
}

std::tuple<Tensor, Tensor> logsumexp_forward_autograd(c10::DispatchKeySet keys, const Tensor& self,
                                                      IntArrayRef dim, const OptionalTensor& where,
                                                      std::string_view policy) {
  const Dims dims = reduced_dims(Operator::logsumexp, self, dim);
  return RowAutograd<LogSumExpRoom>::forward(keys, {dims, std::string(policy)},
                                             where.value_or(Tensor()), self, dims, where, policy);
}

Tensor logsumexp_backward_autograd(c10::DispatchKeySet keys, const Tensor& grad, const Tensor& self,
                                   const Tensor& lse, const OptionalTensor& where, IntArrayRef dim,
                                   std::string_view policy) {
  const Dims dims = reduced_dims(Operator::logsumexp, self, dim);
  return RowAutograd<LogSumExpRoom>::backward(keys, {dims, std::string(policy)}, grad,
                                              {self, lse, where.value_or(Tensor())});
}

Tensor logsumexp_autograd(c10::DispatchKeySet keys, const Tensor& self, IntArrayRef dim,
                          bool keepdim, const OptionalTensor& where, std::string_view policy) {
  if (differentiates(self, where)) {
    const Dims dims = checked_logsumexp_dims(self, dim, where, policy);
    logsumexp_dtype(self);  // the inner operator would refuse under its own name
    if (self.is_complex()) return complex_logsumexp(self, dims, keepdim, where);
    return squeezed(std::get<0>(logsumexp_forward_operator().call(self, dims, where, policy)), dims,
                    keepdim);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return logsumexp_operator().redispatch(keys & c10::after_autograd_keyset, self, dim, keepdim,
                                         where, policy);
}

// As torch's own list for CUDA: halves give float32, unless the call asks for a dtype.
template <SoftmaxKind kind>
Tensor softmax_autocast_cuda(const Tensor& self, std::int64_t dim,
                             std::optional<at::ScalarType> dtype, const OptionalTensor& where,
                             std::optional<double> eps, std::string_view policy) {
  const c10::impl::ExcludeDispatchKeyGuard outside(c10::DispatchKey::AutocastCUDA);
  if (!dtype && at::autocast::is_eligible(self, c10::DeviceType::CUDA)) dtype = at::kFloat;
  return softmax_operator<kind>().call(self, dim, dtype, where, eps, policy);
}

Tensor logsumexp_autocast_cuda(const Tensor& self, IntArrayRef dim, bool keepdim,
                               const OptionalTensor& where, std::string_view policy) {
  const c10::impl::ExcludeDispatchKeyGuard outside(c10::DispatchKey::AutocastCUDA);
  return logsumexp_operator().call(
      at::autocast::cached_cast(at::kFloat, self, c10::DeviceType::CUDA), dim, keepdim, where,
      policy);
}

using SoftmaxOutKernels = OutKernels<softmax_out_operator<SoftmaxKind::softmax>, SoftmaxOut>;
using LogSoftmaxOutKernels = OutKernels<softmax_out_operator<SoftmaxKind::log_softmax>, SoftmaxOut>;
using LogSumExpOutKernels = OutKernels<logsumexp_out_operator, LogSumExpOut>;

}  // namespace

TORCH_LIBRARY_IMPL(safeops, Autograd, library) {
  library.impl("softmax", softmax_autograd<SoftmaxKind::softmax>);
  library.impl("softmax.out", SoftmaxOutKernels::autograd);
  library.impl("_softmax_forward", forward_autograd<SoftmaxKind::softmax>);
  library.impl("_softmax_backward", backward_autograd<SoftmaxKind::softmax>);
  library.impl("log_softmax", softmax_autograd<SoftmaxKind::log_softmax>);
  library.impl("log_softmax.out", LogSoftmaxOutKernels::autograd);
  library.impl("_log_softmax_forward", forward_autograd<SoftmaxKind::log_softmax>);
  library.impl("_log_softmax_backward", backward_autograd<SoftmaxKind::log_softmax>);
  library.impl("logsumexp", logsumexp_autograd);
  library.impl("logsumexp.out", LogSumExpOutKernels::autograd);
  library.impl("_logsumexp_forward", logsumexp_forward_autograd);
  library.impl("_logsumexp_backward", logsumexp_backward_autograd);
}

TORCH_LIBRARY_IMPL(safeops, ADInplaceOrView, library) {
  library.impl("softmax.out", SoftmaxOutKernels::counting);
  library.impl("log_softmax.out", LogSoftmaxOutKernels::counting);
  library.impl("logsumexp.out", LogSumExpOutKernels::counting);
}

TORCH_LIBRARY_IMPL(safeops, Conjugate, library) {
  library.impl("softmax.out", SoftmaxOutKernels::lazy);
  library.impl("log_softmax.out", LogSoftmaxOutKernels::lazy);
  library.impl("logsumexp.out", LogSumExpOutKernels::lazy);
}

TORCH_LIBRARY_IMPL(safeops, Negative, library) {
  library.impl("softmax.out", SoftmaxOutKernels::lazy);
  library.impl("log_softmax.out", LogSoftmaxOutKernels::lazy);
  library.impl("logsumexp.out", LogSumExpOutKernels::lazy);
}

TORCH_LIBRARY_IMPL(safeops, AutocastCUDA, library) {
  library.impl("softmax", softmax_autocast_cuda<SoftmaxKind::softmax>);
  library.impl("log_softmax", softmax_autocast_cuda<SoftmaxKind::log_softmax>);
  library.impl("logsumexp", logsumexp_autocast_cuda);
}

}  // namespace safeops
