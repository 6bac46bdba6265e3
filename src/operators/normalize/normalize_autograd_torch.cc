#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sgn.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <cmath>

#include "operators/normalize/normalize_torch.h"
#include "torch/out_kernels.h"
#include "torch/row_autograd.h"
#include "torch/singular_multiple.h"

namespace safeops {
namespace {

using at::IntArrayRef;
using Dims = std::vector<std::int64_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor row_inner(const Tensor& a, const Tensor& b, const Dims& dims) {
  if (!a.is_complex()) return (a * b).sum(dims, /*keepdim=*/true);
  // conj_physical, because a lazy conj is dropped in compiled inference graphs.
  return at::real((at::conj_physical(a) * b).sum(dims, /*keepdim=*/true));
}

// x, n and y = x / n with singular rows taken out of the arithmetic before it starts: 0, 1 and 0
// there.
struct MaskedRows {
  Tensor singular, y, n;
};

using Saved = std::array<Tensor, 2>;  // x and n

struct Attributes {
  double p = 2, eps = 0;
  Dims dim;
  std::string policy;

  Attributes() = default;
  Attributes(double order, IntArrayRef dims, double threshold, std::string_view name)
      : p(order), eps(threshold), dim(dims.vec()), policy(name) {}

  template <class F>
  void each(const F& f) {
    f(p), f(eps), f(dim), f(policy);
  }
  template <class F>
  void each(const F& f) const {
    f(p), f(eps), f(dim), f(policy);
  }
  template <class F>
  Tensor pass(const F& f, const Tensor& grad, const Saved& saved) const {
    return f(grad, saved[0], saved[1], p, dim, eps, policy);
  }
};

MaskedRows mask(const Tensor& x, const Tensor& n, const Attributes& attributes) {
  const Tensor norm = n.detach();
  const Tensor singular = (norm == 0).logical_or(norm < attributes.eps);
  const Tensor masked = n.masked_fill(singular, 1);
  return {singular, x.masked_fill(singular, 0) / masked, masked};
}

// dn/dx on regular rows, in terms of y = x / n; 0 where y is 0.
Tensor slope(const Tensor& y, const Attributes& attributes) {
  const double p = attributes.p;
  if (p == 2) return y;
  if (p == 0) return at::zeros_like(y);
  const Tensor zero = y.detach() == 0;
  const Tensor nonzero = y.masked_fill(zero, 1);
  if (std::isinf(p)) {
    const Tensor size = y.detach().abs();
    const Tensor ties = size == (p > 0 ? at::amax(size, attributes.dim, true)
                                       : at::amin(size, attributes.dim, true));
    const Tensor outside = ties.logical_not().logical_or(zero);
    return at::sgn(nonzero).masked_fill(outside, 0) / ties.sum(attributes.dim, /*keepdim=*/true);
  }
  const Tensor direction = at::sgn(nonzero);
  return (p == 1 ? direction : direction * nonzero.abs().pow(p - 1)).masked_fill(zero, 0);
}

// The rows of u at singular points: u / eps, NaN or nothing.
Tensor singular_part(const Tensor& u, const Tensor& singular, const Attributes& attributes) {
  switch (checked_policy(Operator::normalize, attributes.policy)) {
    case Policy::stock:
    case Policy::epsilon:
      return singular_multiple(u, singular, 1 / attributes.eps);
    case Policy::nan:
      return singular_multiple(u, singular, kNan);
    case Policy::zero:
    case Policy::raise:
      break;
  }
  return Tensor();
}

struct NormalizeRoom {
  static constexpr const char* kForwardName = "SafeopsNormalizeBackward";
  static constexpr const char* kBackwardName = "SafeopsNormalizeBackwardBackward";
  // Not y, so that y may be changed in place afterwards, as with torch's own operator.
  static constexpr std::array kSaves = {Saves::input, Saves::row_value};
  static constexpr std::size_t kDifferentiable = 2;
  using Attributes = safeops::Attributes;

  static const auto& forward_operator() { return normalize_forward_operator(); }
  static const auto& backward_operator() { return normalize_backward_operator(); }

  // (g - w <y, g>) / n
  static Tensor backward_formula(const Tensor& g, const Saved& saved,
                                 const Attributes& attributes) {
    const auto& [x, n] = saved;
    const MaskedRows rows = mask(x, n, attributes);
    const Tensor regular = g.masked_fill(rows.singular, 0);
    const Tensor along = row_inner(rows.y, regular, attributes.dim);
    Tensor gradient = (regular - slope(rows.y, attributes) * along) / rows.n;
    const Tensor rest = singular_part(g, rows.singular, attributes);
    if (rest.defined()) gradient = gradient + rest;
    if (checked_policy(Operator::normalize, attributes.policy) == Policy::nan)
      gradient = gradient + singular_multiple(x, rows.singular, kNan);
    return gradient.to(g.scalar_type());
  }

  static Tensor row_gradient(const Tensor& g_n, const Saved& saved, const Attributes& attributes) {
    const auto& [x, n] = saved;
    return (g_n * slope(mask(x, n, attributes).y, attributes)).to(x.scalar_type());
  }

  // dy = (t - y <w, t>) / n and dn = <w, t>
  static std::array<Tensor, 2> tangents(const Tensor& t, const Saved& saved,
                                        const Attributes& attributes) {
    const auto& [x, n] = saved;
    const MaskedRows rows = mask(x, n, attributes);
    const Tensor regular = t.masked_fill(rows.singular, 0);
    const Tensor n_tangent = row_inner(slope(rows.y, attributes), regular, attributes.dim);
    Tensor y_tangent = (regular - rows.y * n_tangent) / rows.n;
    const Tensor rest = singular_part(t, rows.singular, attributes);
    if (rest.defined()) y_tangent = y_tangent + rest;
    return {y_tangent.to(t.scalar_type()), n_tangent.to(n.scalar_type())};
  }
};

using NormalizeAutograd = RowAutograd<NormalizeRoom>;

std::tuple<Tensor, Tensor> forward_autograd(c10::DispatchKeySet keys, const Tensor& self, double p,
                                            IntArrayRef dim, double eps, std::string_view policy) {
  const Dims dims = reduced_dims(Operator::normalize, self, dim);
  return NormalizeAutograd::forward(keys, Attributes(p, dims, eps, policy), Tensor(), self, p, dims,
                                    eps, policy);
}

Tensor backward_autograd(c10::DispatchKeySet keys, const Tensor& grad, const Tensor& self,
                         const Tensor& norm, double p, IntArrayRef dim, double eps,
                         std::string_view policy) {
  const Dims dims = reduced_dims(Operator::normalize, self, dim);
  return NormalizeAutograd::backward(keys, Attributes(p, dims, eps, policy), grad, {self, norm});
}

Tensor normalize_autograd(c10::DispatchKeySet keys, const Tensor& self, double p, IntArrayRef dim,
                          std::optional<double> eps, std::string_view policy) {
  // What is not dense goes on to its refusal, which then names this operator.
  if (is_dense(self) && (torch::autograd::compute_requires_grad(self) || has_tangent(self))) {
    const double threshold = checked_eps(self, p, dim, eps, policy);
    return std::get<0>(normalize_forward_operator().call(self, p, dim, threshold, policy));
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return normalize_operator().redispatch(keys & c10::after_autograd_keyset, self, p, dim, eps,
                                         policy);
}

using Out = OutKernels<normalize_out_operator, NormalizeOut>;

// As torch's own list for CUDA: the norm is taken, and the result stays, in float32.
Tensor normalize_autocast_cuda(const Tensor& self, double p, IntArrayRef dim,
                               std::optional<double> eps, std::string_view policy) {
  const c10::impl::ExcludeDispatchKeyGuard outside(c10::DispatchKey::AutocastCUDA);
  return normalize_operator().call(
      at::autocast::cached_cast(at::kFloat, self, c10::DeviceType::CUDA), p, dim, eps, policy);
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, Autograd, library) {
  library.impl("normalize", normalize_autograd);
  library.impl("normalize.out", Out::autograd);
  library.impl("_normalize_forward", forward_autograd);
  library.impl("_normalize_backward", backward_autograd);
}

TORCH_LIBRARY_IMPL(safeops, ADInplaceOrView, library) {
  library.impl("normalize.out", Out::counting);
}

TORCH_LIBRARY_IMPL(safeops, Conjugate, library) { library.impl("normalize.out", Out::lazy); }

TORCH_LIBRARY_IMPL(safeops, Negative, library) { library.impl("normalize.out", Out::lazy); }

TORCH_LIBRARY_IMPL(safeops, AutocastCUDA, library) {
  library.impl("normalize", normalize_autocast_cuda);
}

}  // namespace safeops
