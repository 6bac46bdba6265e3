#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <optional>
#include <tuple>

#include "core/counters.h"
#include "torch/operator_node.h"

namespace safeops {

inline bool has_tangent(const at::Tensor& tensor) {
  return torch::autograd::isFwGradDefined(std::optional<at::Tensor>(tensor));
}

/// Autograd of a row operator, x -> (y, r), where r is one value per row. A Room states
///  - kForwardName, kBackwardName: node names
///  - Attributes(a...): from the operator's plain arguments; each(f) as in OperatorNode
///  - forward_operator(), backward_operator(): typed handles of _x_forward and _x_backward
///  - backward_formula(g, x, r, attributes): the gradient as one differentiable ATen expression
///  - row_gradient(g_r, x, r, attributes): the gradient that comes through r
///  - tangents(t, x, r, attributes): of y and r, in forward mode
///
/// x and r are saved, not y, so that y may be changed in place afterwards, as with torch's own
/// operator. r is saved as an output: it stays differentiable through the node itself, which is
/// what makes higher orders right.
template <class Room>
class RowAutograd {
 public:
  template <class... A>
  static std::tuple<at::Tensor, at::Tensor> forward(c10::DispatchKeySet keys, const at::Tensor& x,
                                                    A... arguments) {
    NodePointerTo<OperatorNode<FirstOrder>> node;
    if (torch::autograd::compute_requires_grad(x)) {
      node = make_node<OperatorNode<FirstOrder>>();
      node->set_next_edges(torch::autograd::collect_next_edges(x));
    }
    const std::uint64_t serial_before = last_forward_serial();
    at::Tensor y, r;
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      std::tie(y, r) =
          Room::forward_operator().redispatch(keys & c10::after_autograd_keyset, x, arguments...);
    }
    const typename Room::Attributes attributes(arguments...);
    if (node) {
      torch::autograd::set_history(y, node);
      torch::autograd::set_history(r, node);
    }
    if (has_tangent(x)) {
      const auto [y_tangent, r_tangent] =
          Room::tangents(x._fw_grad(0), x._fw_primal(0), r, attributes);
      y._set_fw_grad(y_tangent, 0, /*is_inplace_op=*/false);
      r._set_fw_grad(r_tangent, 0, /*is_inplace_op=*/false);
    }
    if (node) {
      // Only now: a saved variable takes a snapshot of the tangent.
      node->attributes = {attributes,
                          last_forward_serial() == serial_before ? 0 : last_forward_serial()};
      node->save(0, x, /*is_output=*/false);
      node->save(1, r, /*is_output=*/true);
      announce(NodePointer(node));
    }
    return {y, r};
  }

  /// The fused kernel gives the value, the formula its derivatives: a node that passes gradients
  /// through unchanged joins the one to the graph of the other.
  template <class... A>
  static at::Tensor backward(c10::DispatchKeySet keys, const at::Tensor& g, const at::Tensor& x,
                             const at::Tensor& r, A... arguments) {
    const auto fused = [&] {
      const at::AutoDispatchBelowADInplaceOrView below;
      return Room::backward_operator().redispatch(keys & c10::after_autograd_keyset, g, x, r,
                                                  arguments...);
    };
    const bool in_graph = torch::autograd::compute_requires_grad(g, x, r);
    if (!in_graph && !has_tangent(g) && !has_tangent(x) && !has_tangent(r)) return fused();
    const at::Tensor formula =
        Room::backward_formula(g, x, r, typename Room::Attributes(arguments...));
    at::Tensor gradient = fused();
    if (formula.requires_grad()) {
      const auto node = make_node<OperatorNode<Graft>>();
      node->set_next_edges(torch::autograd::collect_next_edges(formula));
      torch::autograd::set_history(gradient, node);
      announce(NodePointer(node));
    }
    if (has_tangent(formula))
      gradient._set_fw_grad(formula._fw_grad(0), 0, /*is_inplace_op=*/false);
    return gradient;
  }

 private:
  struct FirstOrder {
    static constexpr const char* kName = Room::kForwardName;
    static constexpr std::size_t kSaved = 2, kInputs = 1;
    struct Attributes {
      typename Room::Attributes room;
      std::uint64_t serial = 0;  // of the forward call if it hit; compiled graphs do not carry it
      template <class F>
      void each(const F& f) {
        room.each(f);
      }
      template <class F>
      void each(const F& f) const {
        room.each(f);
      }
    };
    static variable_list apply(const variable_list& grads, const std::array<at::Tensor, 2>& saved,
                               const Attributes& attributes) {
      const auto& [x, r] = saved;
      at::Tensor gradient;
      if (grads[0].defined()) {
        const SerialScope scope(attributes.serial);
        gradient = attributes.room.call(Room::backward_operator(), grads[0], x, r);
      }
      if (grads[1].defined()) {
        const at::Tensor through_r = Room::row_gradient(grads[1], x, r, attributes.room);
        gradient = gradient.defined() ? gradient + through_r : through_r;
      }
      return {gradient};
    }
  };

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
                               const Attributes&) {
      return {grads[0]};
    }
  };
};

}  // namespace safeops
