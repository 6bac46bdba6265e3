#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "core/counters.h"
#include "torch/graft.h"

namespace safeops {

/// True if autograd records a call with these tensors; undefined ones do not count.
template <class... Tensors>
bool is_differentiated(const Tensors&... tensors) {
  return torch::autograd::compute_requires_grad(tensors...) || (has_tangent(tensors) || ...);
}

/// Autograd of an element-wise operator of one or several inputs, which broadcast, with one result.
/// A Room states
///  - kForwardName, kBackwardName: node names
///  - kInputs: number of inputs; one that is undefined is a number, kept in the attributes
///  - Attributes: plain values; each(f) as in OperatorNode
///  - saved(inputs, wanted): what backward needs of the inputs to give the wanted gradients
///  - gradients(g, saved, wanted, attributes): by the fused backward operator
///  - backward_formula(g, saved, wanted, attributes): the same as differentiable ATen expressions
///  - tangent(t, inputs, result, attributes): of the result, from the tangents of inputs that are
///    defined
/// Gradients have the shape and dtype of the result: the engine sums them to the shape of their
/// input, and casts them.
///
/// The node sits on the public operator and saves inputs, so that singular elements can be told
/// from what overflowed, and the result may be changed in place.
template <class Room>
class ElementAutograd {
 public:
  static constexpr std::size_t kInputs = Room::kInputs;
  using Tensors = std::array<at::Tensor, kInputs>;
  using Wanted = std::array<bool, kInputs>;
  using Attributes = typename Room::Attributes;

  /// `below()` computes the result without autograd.
  template <class Below>
  static at::Tensor forward(const Attributes& attributes, const Tensors& inputs,
                            const Below& below) {
    NodePointerTo<OperatorNode<FirstOrder>> node;
    if (std::apply([](const auto&... x) { return torch::autograd::compute_requires_grad(x...); },
                   inputs)) {
      node = make_node<OperatorNode<FirstOrder>>();
      node->set_next_edges(std::apply(
          [](const auto&... x) { return torch::autograd::collect_next_edges(x...); }, inputs));
    }
    const ForwardWatch watch;
    const at::Tensor result = [&] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return below();
    }();
    if (node) torch::autograd::set_history(result, node);
    set_tangent(result, inputs, attributes);
    if (node) {
      // Only now: a saved variable takes a snapshot of the tangent.
      node->attributes = {attributes, watch.serial()};
      Wanted wanted;
      for (std::size_t i = 0; i < kInputs; ++i) wanted[i] = node->should_compute_output(i);
      const Tensors saved = Room::saved(inputs, wanted);
      for (std::size_t i = 0; i < kInputs; ++i) node->save(i, saved[i], /*is_output=*/false);
      announce(NodePointer(node));
    }
    return result;
  }

  /// The fused kernel gives the values, below autograd by `fused()`, the formula their derivatives.
  template <class Fused>
  static Tensors backward(const Attributes& attributes, const at::Tensor& g, const Tensors& saved,
                          const Wanted& wanted, const Fused& fused) {
    const bool differentiated =
        std::apply([&](const auto&... x) { return is_differentiated(g, x...); }, saved);
    const Tensors formula =
        differentiated ? Room::backward_formula(g, saved, wanted, attributes) : Tensors();
    const Tensors gradients = [&] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return fused();
    }();
    for (std::size_t i = 0; i < kInputs; ++i) {
      if (formula[i].defined()) graft<Room>(gradients[i], formula[i]);
    }
    return gradients;
  }

 private:
  static void set_tangent(const at::Tensor& result, const Tensors& inputs,
                          const Attributes& attributes) {
    if (std::none_of(inputs.begin(), inputs.end(), has_tangent)) return;
    Tensors tangents, primals;
    for (std::size_t i = 0; i < kInputs; ++i) {
      if (!inputs[i].defined()) continue;
      if (has_tangent(inputs[i])) tangents[i] = inputs[i]._fw_grad(0);
      primals[i] = inputs[i]._fw_primal(0);
    }
    result._set_fw_grad(Room::tangent(tangents, primals, result, attributes), 0,
                        /*is_inplace_op=*/false);
  }

  struct FirstOrder {
    static constexpr const char* kName = Room::kForwardName;
    static constexpr std::size_t kSaved = Room::kInputs, kInputs = Room::kInputs;
    using Attributes = WithSerial<typename Room::Attributes>;

    static variable_list apply(const variable_list& grads, const Tensors& saved,
                               const Wanted& wanted, const Attributes& attributes) {
      const SerialScope scope(attributes.serial);
      const Tensors gradients = Room::gradients(grads[0], saved, wanted, attributes.plain);
      return {gradients.begin(), gradients.end()};
    }
  };
};

}  // namespace safeops
