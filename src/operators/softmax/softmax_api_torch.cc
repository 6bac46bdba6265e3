#include "operators/softmax/softmax_torch.h"
#include "safeops/operators.h"

namespace safeops {

const c10::TypedOperatorHandle<LogSumExp>& logsumexp_operator() {
  static const auto handle = find_operator<LogSumExp>("safeops::logsumexp");
  return handle;
}
const c10::TypedOperatorHandle<LogSumExpOut>& logsumexp_out_operator() {
  static const auto handle = find_operator<LogSumExpOut>("safeops::logsumexp", "out");
  return handle;
}
const c10::TypedOperatorHandle<LogSumExpForward>& logsumexp_forward_operator() {
  static const auto handle = find_operator<LogSumExpForward>("safeops::_logsumexp_forward");
  return handle;
}
const c10::TypedOperatorHandle<LogSumExpBackward>& logsumexp_backward_operator() {
  static const auto handle = find_operator<LogSumExpBackward>("safeops::_logsumexp_backward");
  return handle;
}

// Through the dispatcher, never straight to a kernel: it resolves negative views, autograd and
// vmap.
at::Tensor softmax(const at::Tensor& input, std::int64_t dim, std::optional<at::ScalarType> dtype,
                   const std::optional<at::Tensor>& where, std::optional<double> eps,
                   std::optional<Policy> policy) {
  return softmax_operator<SoftmaxKind::softmax>().call(input, dim, dtype, where, eps,
                                                       policy_argument(policy));
}

at::Tensor& softmax_out(at::Tensor& out, const at::Tensor& input, std::int64_t dim,
                        std::optional<at::ScalarType> dtype, const std::optional<at::Tensor>& where,
                        std::optional<double> eps, std::optional<Policy> policy) {
  softmax_out_operator<SoftmaxKind::softmax>().call(input, dim, dtype, where, eps,
                                                    policy_argument(policy), out);
  return out;
}

at::Tensor log_softmax(const at::Tensor& input, std::int64_t dim,
                       std::optional<at::ScalarType> dtype, const std::optional<at::Tensor>& where,
                       std::optional<double> eps, std::optional<Policy> policy) {
  return softmax_operator<SoftmaxKind::log_softmax>().call(input, dim, dtype, where, eps,
                                                           policy_argument(policy));
}

at::Tensor& log_softmax_out(at::Tensor& out, const at::Tensor& input, std::int64_t dim,
                            std::optional<at::ScalarType> dtype,
                            const std::optional<at::Tensor>& where, std::optional<double> eps,
                            std::optional<Policy> policy) {
  softmax_out_operator<SoftmaxKind::log_softmax>().call(input, dim, dtype, where, eps,
                                                        policy_argument(policy), out);
  return out;
}

at::Tensor logsumexp(const at::Tensor& input, at::IntArrayRef dim, bool keepdim,
                     const std::optional<at::Tensor>& where, std::optional<Policy> policy) {
  return logsumexp_operator().call(input, dim, keepdim, where, policy_argument(policy));
}

at::Tensor& logsumexp_out(at::Tensor& out, const at::Tensor& input, at::IntArrayRef dim,
                          bool keepdim, const std::optional<at::Tensor>& where,
                          std::optional<Policy> policy) {
  logsumexp_out_operator().call(input, dim, keepdim, where, policy_argument(policy), out);
  return out;
}

}  // namespace safeops
