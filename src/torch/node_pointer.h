#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace safeops {

// torch holds nodes by std::shared_ptr up to some version and by c10::intrusive_ptr from then on.
// What getptr() returns says which, so no version number is compared.
using NodePointer = decltype(std::declval<torch::autograd::Node&>().getptr());
inline constexpr bool kSharedNodes =
    std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>;

template <class T>
using NodePointerTo = std::conditional_t<kSharedNodes, std::shared_ptr<T>, c10::intrusive_ptr<T>>;

template <class T>
NodePointerTo<T> make_node() {
  if constexpr (kSharedNodes) {
    // deleteNode exists only where nodes are shared; the generic lambda finds it by
    // argument-dependent lookup.
    return NodePointerTo<T>(new T, [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>();
  }
}

// Newer torch tells torch.autograd.graph.node_creation_hook of a node only if its maker does. To be
// called last, when the saved variables are in place.
template <class Pointer>
void announce(const Pointer& node) {
  if constexpr (requires { fire_node_creation_hooks(node); }) fire_node_creation_hooks(node);
}

}  // namespace safeops
