#pragma once

#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "torch/node_pointer.h"

namespace safeops {

using torch::autograd::variable_list;

/// Attributes of a node and the serial of its forward call if that hit. Compiled graphs do not
/// carry it.
template <class Attributes>
struct WithSerial {
  Attributes plain;
  std::uint64_t serial = 0;

  template <class F>
  void each(const F& f) {
    plain.each(f);
  }
  template <class F>
  void each(const F& f) const {
    plain.each(f);
  }
};

/// The autograd node of an operator, compiled autograd included. `Rule` says what it computes:
///  - kName: shown as grad_fn and in error messages
///  - kSaved, kInputs: number of saved tensors, of tensor inputs of the forward operator
///  - Attributes: plain values; each(f) calls f on every one that compiled autograd must know
///  - apply(grads, saved, wanted, attributes): one gradient per input, of which those that are not
///    wanted may be undefined
template <class Rule>
class OperatorNode final : public torch::autograd::Node {
 public:
  using Saved = std::array<at::Tensor, Rule::kSaved>;
  using Wanted = std::array<bool, Rule::kInputs>;

  void save(std::size_t index, const at::Tensor& tensor, bool is_output) {
    saved_[index] = torch::autograd::SavedVariable(tensor, is_output);
    is_output_[index] = is_output;
  }

  std::string name() const override { return Rule::kName; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& saved : saved_) saved.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Wanted wanted;
    for (std::size_t i = 0; i < Rule::kInputs; ++i) wanted[i] = task_should_compute_output(i);
    const bool none_wanted = std::find(wanted.begin(), wanted.end(), true) == wanted.end();
    if (none_wanted || none_defined(grads)) return variable_list(Rule::kInputs);
    return Rule::apply(grads, unpack(), wanted, attributes);
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    for (std::size_t i = 0; i < Rule::kSaved; ++i) args.collect(saved_[i], is_output_[i]);
    attributes.each([&](const auto& value) { args.collect(value); });
  }

  variable_list apply_with_saved(const variable_list& grads,
                                 torch::dynamo::autograd::SwapSavedVariables& swap) override {
    namespace compiled = torch::dynamo::autograd;
    for (auto& saved : saved_) swap.before(saved);
    compiled::PackedArgs packed;
    // The graph is cached by the edges that there are, not by what one task asks for.
    std::vector<bool> wanted;
    for (std::size_t i = 0; i < Rule::kInputs; ++i) wanted.push_back(should_compute_output(i));
    packed.pack(wanted);
    for (const auto& tensor : unpack()) packed.pack(tensor);
    attributes.each([&](const auto& value) { packed.pack(value); });
    const auto values = std::move(packed).vec();
    std::vector<at::TypePtr> types;
    for (const auto& value : values) {
      types.emplace_back(value.isTensor() ? at::TypePtr(at::TensorType::get()) : value.type());
    }
    const auto metadata =
        compiled::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
            compiled::get_input_metadata(next_edges()));
    const auto& python = compiled::getPyCompilerInterface();
    const auto function = python->bind_function(swap.get_py_compiler(), name(), apply_packed, types,
                                                /*is_custom=*/true, /*traceable=*/true);
    auto result = python->call_function(swap.get_py_compiler(), "apply_functional", function, grads,
                                        values, metadata);
    for (auto& saved : saved_) swap.after(saved);
    return result;
  }

  typename Rule::Attributes attributes;

 private:
  static bool none_defined(const variable_list& grads) {
    return std::none_of(grads.begin(), grads.end(),
                        [](const at::Tensor& grad) { return grad.defined(); });
  }

  static variable_list apply_packed(const variable_list& grads,
                                    const std::vector<c10::IValue>& values) {
    torch::dynamo::autograd::PackedArgs packed(values);
    Wanted wanted = {};
    const auto edges = packed.unpack<std::vector<bool>>();
    std::copy_n(edges.begin(), wanted.size(), wanted.begin());
    Saved saved;
    for (auto& tensor : saved) tensor = packed.unpack<at::Tensor>();
    typename Rule::Attributes attributes;
    attributes.each([&](auto& value) { value = packed.unpack<std::decay_t<decltype(value)>>(); });
    if (none_defined(grads)) return variable_list(Rule::kInputs);
    return Rule::apply(grads, saved, wanted, attributes);
  }

  Saved unpack() {
    Saved tensors;
    for (std::size_t i = 0; i < Rule::kSaved; ++i) {
      tensors[i] = is_output_[i] ? saved_[i].unpack(getptr()) : saved_[i].unpack();
    }
    return tensors;
  }

  std::array<torch::autograd::SavedVariable, Rule::kSaved> saved_;
  std::array<bool, Rule::kSaved> is_output_{};
};

}  // namespace safeops
