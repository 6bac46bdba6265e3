#include "operators/division/division_torch.h"
#include "safeops/operators.h"

namespace safeops {

// Through the dispatcher, never straight to a kernel: it resolves negative and conjugate views,
// autograd and vmap.
at::Tensor div(const at::Tensor& input, const at::Tensor& other,
               std::optional<std::string_view> rounding_mode, std::optional<double> eps,
               std::optional<Policy> policy) {
  return div_operator<Tensor>().call(input, other, rounding_mode, eps, policy_argument(policy));
}

at::Tensor& div_out(at::Tensor& out, const at::Tensor& input, const at::Tensor& other,
                    std::optional<std::string_view> rounding_mode, std::optional<double> eps,
                    std::optional<Policy> policy) {
  div_out_operator<Tensor>().call(input, other, rounding_mode, eps, policy_argument(policy), out);
  return out;
}

at::Tensor& div_(at::Tensor& input, const at::Tensor& other,
                 std::optional<std::string_view> rounding_mode, std::optional<double> eps,
                 std::optional<Policy> policy) {
  div_in_place_operator<Tensor>().call(input, other, rounding_mode, eps, policy_argument(policy));
  return input;
}

at::Tensor div(const at::Tensor& input, const at::Scalar& other,
               std::optional<std::string_view> rounding_mode, std::optional<double> eps,
               std::optional<Policy> policy) {
  return div_operator<Scalar>().call(input, other, rounding_mode, eps, policy_argument(policy));
}

at::Tensor& div_out(at::Tensor& out, const at::Tensor& input, const at::Scalar& other,
                    std::optional<std::string_view> rounding_mode, std::optional<double> eps,
                    std::optional<Policy> policy) {
  div_out_operator<Scalar>().call(input, other, rounding_mode, eps, policy_argument(policy), out);
  return out;
}

at::Tensor& div_(at::Tensor& input, const at::Scalar& other,
                 std::optional<std::string_view> rounding_mode, std::optional<double> eps,
                 std::optional<Policy> policy) {
  div_in_place_operator<Scalar>().call(input, other, rounding_mode, eps, policy_argument(policy));
  return input;
}

at::Tensor reciprocal(const at::Tensor& input, std::optional<double> eps,
                      std::optional<Policy> policy) {
  return unary_operator<Operator::reciprocal>().call(input, eps, policy_argument(policy));
}

at::Tensor& reciprocal_out(at::Tensor& out, const at::Tensor& input, std::optional<double> eps,
                           std::optional<Policy> policy) {
  unary_out_operator<Operator::reciprocal>().call(input, eps, policy_argument(policy), out);
  return out;
}

at::Tensor& reciprocal_(at::Tensor& input, std::optional<double> eps,
                        std::optional<Policy> policy) {
  unary_in_place_operator<Operator::reciprocal>().call(input, eps, policy_argument(policy));
  return input;
}

at::Tensor rsqrt(const at::Tensor& input, std::optional<double> eps, std::optional<Policy> policy) {
  return unary_operator<Operator::rsqrt>().call(input, eps, policy_argument(policy));
}

at::Tensor& rsqrt_out(at::Tensor& out, const at::Tensor& input, std::optional<double> eps,
                      std::optional<Policy> policy) {
  unary_out_operator<Operator::rsqrt>().call(input, eps, policy_argument(policy), out);
  return out;
}

at::Tensor& rsqrt_(at::Tensor& input, std::optional<double> eps, std::optional<Policy> policy) {
  unary_in_place_operator<Operator::rsqrt>().call(input, eps, policy_argument(policy));
  return input;
}

at::Tensor sqrt(const at::Tensor& input, std::optional<double> eps, std::optional<Policy> policy) {
  return unary_operator<Operator::sqrt>().call(input, eps, policy_argument(policy));
}

at::Tensor& sqrt_out(at::Tensor& out, const at::Tensor& input, std::optional<double> eps,
                     std::optional<Policy> policy) {
  unary_out_operator<Operator::sqrt>().call(input, eps, policy_argument(policy), out);
  return out;
}

at::Tensor& sqrt_(at::Tensor& input, std::optional<double> eps, std::optional<Policy> policy) {
  unary_in_place_operator<Operator::sqrt>().call(input, eps, policy_argument(policy));
  return input;
}

at::Tensor log(const at::Tensor& input, std::optional<double> eps, std::optional<Policy> policy) {
  return unary_operator<Operator::log>().call(input, eps, policy_argument(policy));
}

at::Tensor& log_out(at::Tensor& out, const at::Tensor& input, std::optional<double> eps,
                    std::optional<Policy> policy) {
  unary_out_operator<Operator::log>().call(input, eps, policy_argument(policy), out);
  return out;
}

at::Tensor& log_(at::Tensor& input, std::optional<double> eps, std::optional<Policy> policy) {
  unary_in_place_operator<Operator::log>().call(input, eps, policy_argument(policy));
  return input;
}

}  // namespace safeops
