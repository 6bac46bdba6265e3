#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <array>
#include <optional>

#include "torch/operator_node.h"

namespace safeops {

inline bool has_tangent(const at::Tensor& tensor) {
  return torch::autograd::isFwGradDefined(std::optional<at::Tensor>(tensor));
}

/// The node that graft() names Room::kBackwardName: hands gradients on unchanged.
template <class Room>
struct Graft {
  static constexpr const char* kName = Room::kBackwardName;
  static constexpr std::size_t kSaved = 0, kInputs = 1;
  struct Attributes {
    template <class F>
    void each(const F&) {}
    template <class F>
    void each(const F&) const {}
  };
  static variable_list apply(const variable_list& grads, const std::array<at::Tensor, 0>&,
                             const std::array<bool, 1>&, const Attributes&) {
    return {grads[0]};
  }
};

/// Gives `value`, which a fused kernel computed, the derivatives of `formula`, which computes the
/// same of the same tensors in differentiable operators.
template <class Room>
void graft(const at::Tensor& value, const at::Tensor& formula) {
  if (formula.requires_grad()) {
    const auto node = make_node<OperatorNode<Graft<Room>>>();
    node->set_next_edges(torch::autograd::collect_next_edges(formula));
    torch::autograd::set_history(value, node);
    announce(NodePointer(node));
  }
  if (has_tangent(formula)) value._set_fw_grad(formula._fw_grad(0), 0, /*is_inplace_op=*/false);
}

}  // namespace safeops
