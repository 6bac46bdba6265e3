#include "operators/normalize/normalize_torch.h"
#include "safeops/operators.h"

namespace safeops {
const c10::TypedOperatorHandle<Normalize>& normalize_operator() {
  static const auto handle = find_operator<Normalize>("safeops::normalize");
  return handle;
}
const c10::TypedOperatorHandle<NormalizeOut>& normalize_out_operator() {
  static const auto handle = find_operator<NormalizeOut>("safeops::normalize", "out");
  return handle;
}
const c10::TypedOperatorHandle<NormalizeForward>& normalize_forward_operator() {
  static const auto handle = find_operator<NormalizeForward>("safeops::_normalize_forward");
  return handle;
}
const c10::TypedOperatorHandle<NormalizeBackward>& normalize_backward_operator() {
  static const auto handle = find_operator<NormalizeBackward>("safeops::_normalize_backward");
  return handle;
}

// Through the dispatcher, never straight to a kernel: it resolves negative and conjugate views,
// autograd and vmap.
at::Tensor normalize(const at::Tensor& input, double p, at::IntArrayRef dim,
                     std::optional<double> eps, std::optional<Policy> policy) {
  return normalize_operator().call(input, p, dim, eps, policy_argument(policy));
}

at::Tensor& normalize_out(at::Tensor& out, const at::Tensor& input, double p, at::IntArrayRef dim,
                          std::optional<double> eps, std::optional<Policy> policy) {
  normalize_out_operator().call(input, p, dim, eps, policy_argument(policy), out);
  return out;
}

}  // namespace safeops
