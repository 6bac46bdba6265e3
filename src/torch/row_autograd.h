#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include <array>
#include <cstdint>
#include <tuple>

#include "core/counters.h"
#include "torch/graft.h"

namespace safeops {

/// What a backward pass may need of its forward pass. Of one result it is output and row value.
enum class Saves : std::uint8_t { input, output, row_value, mask };

/// Autograd of a row operator, x -> results: the output, one value per row, or both in this order.
/// A Room states
///  - kForwardName, kBackwardName: node names
///  - kSaves: the tensors that the backward operator takes after the incoming gradient
///  - kDifferentiable: so many results are differentiable, the first ones
///  - Attributes: the plain arguments of the backward operator; each(f) as in OperatorNode, and
///    pass(f, g, saved), which calls f with all its arguments
///  - forward_operator(), backward_operator(): typed handles of _x_forward and _x_backward
///  - backward_formula(g, saved, attributes): the gradient as one differentiable ATen expression
///  - row_gradient(g_r, saved, attributes): where both results are differentiable, what comes
///    through the row value
///  - tangents(t, saved, attributes): of the differentiable results, in forward mode
///
/// Results are saved as outputs: they stay differentiable through the node itself, which is what
/// makes higher orders right.
template <class Room>
class RowAutograd {
 public:
  using Saved = std::array<at::Tensor, Room::kSaves.size()>;
  using Attributes = typename Room::Attributes;

  /// `arguments`: those of the forward operator after x; `mask` is undefined where there is none.
  template <class... A>
  static auto forward(c10::DispatchKeySet keys, const Attributes& attributes,
                      const at::Tensor& mask, const at::Tensor& x, const A&... arguments) {
    NodePointerTo<OperatorNode<FirstOrder>> node;
    if (torch::autograd::compute_requires_grad(x)) {
      node = make_node<OperatorNode<FirstOrder>>();
      node->set_next_edges(torch::autograd::collect_next_edges(x));
    }
    const ForwardWatch watch;
    auto returned = [&] {
      const at::AutoDispatchBelowADInplaceOrView below;
      return Room::forward_operator().redispatch(keys & c10::after_autograd_keyset, x,
                                                 arguments...);
    }();
    const auto results = as_array(returned);
    if (node) {
      for (std::size_t i = 0; i < Room::kDifferentiable; ++i)
        torch::autograd::set_history(results[i], node);
    }
    if (has_tangent(x)) {
      const auto tangents =
          Room::tangents(x._fw_grad(0), choose(x._fw_primal(0), results, mask), attributes);
      for (std::size_t i = 0; i < Room::kDifferentiable; ++i)
        results[i]._set_fw_grad(tangents[i], 0, /*is_inplace_op=*/false);
    }
    if (node) {
      // Only now: a saved variable takes a snapshot of the tangent.
      node->attributes = {attributes, watch.serial()};
      const Saved saved = choose(x, results, mask);
      for (std::size_t i = 0; i < saved.size(); ++i)
        node->save(i, saved[i], is_differentiable_result(Room::kSaves[i], results.size()));
      announce(NodePointer(node));
    }
    return returned;
  }

  /// The fused kernel gives the value, the formula its derivatives.
  static at::Tensor backward(c10::DispatchKeySet keys, const Attributes& attributes,
                             const at::Tensor& g, const Saved& saved) {
    const auto fused = [&] {
      const at::AutoDispatchBelowADInplaceOrView below;
      return attributes.pass(
          [&](const auto&... arguments) {
            return Room::backward_operator().redispatch(keys & c10::after_autograd_keyset,
                                                        arguments...);
          },
          g, saved);
    };
    bool differentiated = torch::autograd::compute_requires_grad(g) || has_tangent(g);
    for (const at::Tensor& tensor : saved) {
      differentiated =
          differentiated || torch::autograd::compute_requires_grad(tensor) || has_tangent(tensor);
    }
    if (!differentiated) return fused();
    const at::Tensor formula = Room::backward_formula(g, saved, attributes);
    const at::Tensor gradient = fused();
    graft<Room>(gradient, formula);
    return gradient;
  }

 private:
  static std::array<at::Tensor, 1> as_array(const at::Tensor& result) { return {result}; }
  static std::array<at::Tensor, 2> as_array(const std::tuple<at::Tensor, at::Tensor>& results) {
    return {std::get<0>(results), std::get<1>(results)};
  }

  static bool is_differentiable_result(Saves what, std::size_t results) {
    return what == Saves::output || (what == Saves::row_value && results <= Room::kDifferentiable);
  }

  template <class Results>
  static Saved choose(const at::Tensor& x, const Results& results, const at::Tensor& mask) {
    Saved saved;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      switch (Room::kSaves[i]) {
        case Saves::input:
          saved[i] = x;
          break;
        case Saves::output:
          saved[i] = results.front();
          break;
        case Saves::row_value:
          saved[i] = results.back();
          break;
        case Saves::mask:
          saved[i] = mask;
          break;
      }
    }
    return saved;
  }

  struct FirstOrder {
    static constexpr const char* kName = Room::kForwardName;
    static constexpr std::size_t kSaved = Room::kSaves.size(), kInputs = 1;
    using Attributes = WithSerial<typename Room::Attributes>;
    static variable_list apply(const variable_list& grads, const Saved& saved,
                               const std::array<bool, 1>&, const Attributes& attributes) {
      at::Tensor gradient;
      if (grads[0].defined()) {
        const SerialScope scope(attributes.serial);
        gradient = attributes.plain.pass(
            [](const auto&... arguments) { return Room::backward_operator().call(arguments...); },
            grads[0], saved);
      }
      if constexpr (Room::kDifferentiable == 2) {
        if (grads[1].defined()) {
          const at::Tensor through_r = Room::row_gradient(grads[1], saved, attributes.plain);
          gradient = gradient.defined() ? gradient + through_r : through_r;
        }
      }
      return {gradient};
    }
  };
};

}  // namespace safeops
