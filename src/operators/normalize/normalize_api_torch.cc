#include "operators/normalize/normalize_torch.h"
#include "safeops/operators.h"

namespace safeops {
namespace {

std::string_view chosen(std::optional<Policy> policy) {
  if (!policy) policy = PolicyGuard::current();
  return policy ? name(*policy) : std::string_view();
}

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

}  // namespace

const c10::TypedOperatorHandle<Normalize>& normalize_operator() {
  static const auto handle = find<Normalize>("safeops::normalize");
  return handle;
}
const c10::TypedOperatorHandle<NormalizeOut>& normalize_out_operator() {
  static const auto handle = find<NormalizeOut>("safeops::normalize", "out");
  return handle;
}
const c10::TypedOperatorHandle<NormalizeForward>& normalize_forward_operator() {
  static const auto handle = find<NormalizeForward>("safeops::_normalize_forward");
  return handle;
}
const c10::TypedOperatorHandle<NormalizeBackward>& normalize_backward_operator() {
  static const auto handle = find<NormalizeBackward>("safeops::_normalize_backward");
  return handle;
}

// Through the dispatcher, never straight to a kernel: it resolves negative and conjugate views,
// autograd and vmap.
at::Tensor normalize(const at::Tensor& input, double p, at::IntArrayRef dim,
                     std::optional<double> eps, std::optional<Policy> policy) {
  return normalize_operator().call(input, p, dim, eps, chosen(policy));
}

at::Tensor& normalize_out(at::Tensor& out, const at::Tensor& input, double p, at::IntArrayRef dim,
                          std::optional<double> eps, std::optional<Policy> policy) {
  normalize_out_operator().call(input, p, dim, eps, chosen(policy), out);
  return out;
}

}  // namespace safeops
