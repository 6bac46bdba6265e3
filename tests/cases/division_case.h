#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cases/element_memory.h"
#include "cases/outcome.h"
#include "operators/division/division.h"

namespace safeops::cases {

inline constexpr DivisionKind kDivisionKinds[] = {DivisionKind::quotient, DivisionKind::truncated,
                                                  DivisionKind::floored,  DivisionKind::rsqrt,
                                                  DivisionKind::sqrt,     DivisionKind::log};
inline constexpr DivisionKind kComplexKinds[] = {DivisionKind::quotient, DivisionKind::rsqrt,
                                                 DivisionKind::sqrt, DivisionKind::log};

constexpr const char* name(DivisionKind kind) {
  constexpr const char* kNames[] = {"quotient", "truncated", "floored", "rsqrt", "sqrt", "log"};
  return kNames[static_cast<int>(kind)];
}
constexpr bool has_divisor(DivisionKind kind) { return kind <= DivisionKind::floored; }
constexpr bool rounds(DivisionKind kind) {
  return kind == DivisionKind::truncated || kind == DivisionKind::floored;
}

/// How a call is made. Nothing of it but `kind`, `policy`, `eps` and which inputs there are may
/// show in the result of an element.
struct DivisionTrial {
  DivisionKind kind = DivisionKind::quotient;
  Policy policy = Policy::stock;
  std::optional<double> eps;
  bool backward = false;
  std::optional<Dims> sizes;  ///< none: one dim of all elements
  Dims walk;  ///< dims in the order in which the kernel gets them; empty: last first
  Placement input[kElementInputs], output[kElementOutputs];
  std::optional<std::size_t> in_place[kElementOutputs];  ///< the output is this input
  bool wanted[kElementOutputs] = {true, true};
  double number[kElementInputs] = {1, 1, 1};  ///< for every element of an input that is null
  bool numbers = true;  ///< hits are numbered over `sizes`, else in the order of the walk
  bool streams = false;
  Executor* executor = nullptr;  ///< null: SerialExecutor
  /// Kernels that this library does not have; then `executor` says nothing.
  std::function<void(const ElementArguments&, Hits&)> elsewhere;
};

/// The operands of a call, an element per row, its parts along the row: a and b, or x; backward g,
/// b and a, or g and x. Null: a number, or nothing.
using Inputs = std::array<const Rows*, kElementInputs>;

/// One of the first two inputs is always there.
inline const Rows& first_of(const Inputs& inputs) {
  return inputs[0] != nullptr ? *inputs[0] : *inputs[1];
}

inline double eps_of(const DivisionTrial& trial, Element element) {
  if (trial.eps) return *trial.eps;
  if (trial.policy != Policy::epsilon) return 0;
  return element == Element::float16 ? 0x1p-14 : 1e-12;
}
/// Below it an element is singular: eps as the format computed in holds it, and not as 0.
inline double threshold_of(const DivisionTrial& trial, Element element) {
  const double eps = eps_of(trial, element);
  if (element == Element::float64 || eps == 0) return eps;
  return std::max(rounded(Element::float32, eps), smallest_subnormal(Element::float32));
}
inline Dims sizes_of(const DivisionTrial& trial, std::size_t elements) {
  return trial.sizes.value_or(Dims{elements});
}
inline Dims walk_of(const DivisionTrial& trial, const Dims& sizes) {
  if (!trial.walk.empty()) return trial.walk;
  Dims walk;
  for (std::size_t d = sizes.size(); d-- > 0;) walk.push_back(d);
  return walk;
}
inline std::size_t outputs_of(const DivisionTrial& trial) {
  return trial.backward && has_divisor(trial.kind) ? 2 : 1;
}
inline bool writes(const DivisionTrial& trial, std::size_t output) {
  return output < outputs_of(trial) && trial.wanted[output];
}
/// The number by which hits call an element.
inline std::size_t number_of(const DivisionTrial& trial, const Dims& sizes, std::size_t element) {
  if (trial.numbers) return element;
  const Dims at = indices(element, sizes), walk = walk_of(trial, sizes);
  std::size_t number = 0;
  for (std::size_t k = walk.size(); k-- > 0;) number = number * sizes[walk[k]] + at[walk[k]];
  return number;
}

/// What an input holds for an element. A number is not rounded to a half type.
inline double input_at(const Inputs& inputs, std::size_t i, std::size_t element,
                       const DivisionTrial& trial) {
  if (inputs[i] != nullptr) return inputs[i]->at(element, 0);
  return first_of(inputs).element == Element::float64 ? trial.number[i]
                                                      : rounded(Element::float32, trial.number[i]);
}

/// What a call left behind.
struct DivisionOutcome {
  Rows output[kElementOutputs];  ///< without rows where nothing was to be written
  Hits hits;
  std::size_t disturbed = 0;  ///< bytes changed that the call does not own
};

/// Lays operands out for a kernel. Elements of `width` bytes per part.
class ElementCall {
 public:
  ElementCall(const DivisionTrial& trial, std::size_t elements, std::size_t width,
              std::size_t parts)
      : trial_(trial),
        sizes_(sizes_of(trial, elements)),
        walk_(walk_of(trial, sizes_)),
        width_(width),
        parts_(parts) {
    for (const std::size_t dim : walk_) size_.push_back(static_cast<std::int64_t>(sizes_[dim]));
    arguments.size = size_;
    arguments.streams = trial.streams;
  }

  ElementArguments arguments;

  void add_input(std::size_t i, const std::vector<std::uint64_t>& bits) {
    input_[i] = add(bits, trial_.input[i], arguments.input[i], input_strides_[i]);
  }
  void add_output(std::size_t i, const std::vector<std::uint64_t>& untouched) {
    if (trial_.in_place[i]) {
      arguments.output[i] = arguments.input[*trial_.in_place[i]];
      output_[i] = input_[*trial_.in_place[i]];
    } else {
      output_[i] = add(untouched, trial_.output[i], arguments.output[i], output_strides_[i]);
    }
    if (arguments.numbered.data == nullptr) number_by(i);
  }

  Executor& executor() { return trial_.executor != nullptr ? *trial_.executor : serial_; }
  std::vector<std::uint64_t> written(std::size_t i) const { return output_[i]->gather(); }
  /// Bytes changed that are not those of an output.
  std::size_t disturbed(std::initializer_list<const std::vector<std::uint64_t>*> inputs) const {
    std::size_t count = 0, i = 0;
    for (const std::vector<std::uint64_t>* bits : inputs) {
      const ElementMemory* memory = input_[i++].get();
      if (memory == nullptr) continue;
      count += memory->disturbed();
      if (memory != output_[0].get() && memory != output_[1].get())
        count += memory->gather() == *bits ? 0 : 1;
    }
    for (const auto& memory : output_) count += memory == nullptr ? 0 : memory->disturbed();
    return count;
  }

 private:
  using Memory = std::shared_ptr<ElementMemory>;

  Memory add(const std::vector<std::uint64_t>& bits, const Placement& placement,
             ElementOperand& operand, std::vector<std::int64_t>& kept) {
    auto memory = std::make_shared<ElementMemory>(bits, width_, parts_, sizes_, placement);
    for (const std::size_t dim : walk_) kept.push_back(memory->strides()[dim]);
    operand = {memory->data(), kept.data()};
    return memory;
  }

  /// As a binding does: along each dim of the output, by descending stride.
  void number_by(std::size_t i) {
    arguments.numbered = arguments.output[i];
    if (!trial_.numbers) return;
    std::int64_t numbers = 1;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      if (sizes_[d] > 1) steps_.push_back({output_[i]->strides()[d], numbers});
      numbers *= static_cast<std::int64_t>(sizes_[d]);
    }
    std::sort(steps_.begin(), steps_.end(),
              [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    arguments.numbering.steps = steps_;
  }

  const DivisionTrial& trial_;
  Dims sizes_, walk_;
  std::size_t width_, parts_;
  std::vector<std::int64_t> size_;
  std::vector<std::int64_t> input_strides_[kElementInputs], output_strides_[kElementOutputs];
  std::vector<ElementNumbering::Step> steps_;
  Memory input_[kElementInputs], output_[kElementOutputs];
  SerialExecutor serial_;
};

inline void launch(const ElementArguments& arguments, const DivisionTrial& trial, bool complex,
                   Executor& executor, Hits& hits) {
  if (trial.elsewhere) return trial.elsewhere(arguments, hits);
  if (complex) {
    return trial.backward ? division_backward_complex(arguments, trial.kind, executor, hits)
                          : division_forward_complex(arguments, trial.kind, executor, hits);
  }
  return trial.backward ? division_backward(arguments, trial.kind, executor, hits)
                        : division_forward(arguments, trial.kind, executor, hits);
}

/// Rows of two parts are complex numbers.
inline DivisionOutcome divide(const Inputs& inputs, const DivisionTrial& trial) {
  static const std::vector<std::uint64_t> kNone;
  const Rows& first = first_of(inputs);
  ElementCall call(trial, first.rows, format(first.element).bytes, first.length);
  call.arguments.element = first.element;
  call.arguments.policy =
      resolve_element(trial.policy, trial.kind, eps_of(trial, first.element), trial.backward);
  for (std::size_t i = 0; i < kElementInputs; ++i) {
    call.arguments.number[i] = trial.number[i];
    if (inputs[i] != nullptr) call.add_input(i, inputs[i]->bits);
  }
  DivisionOutcome outcome;
  for (std::size_t i = 0; i < kElementOutputs; ++i) {
    if (!writes(trial, i)) continue;
    outcome.output[i] = untouched(first);
    call.add_output(i, outcome.output[i].bits);
  }
  launch(call.arguments, trial, first.length == 2, call.executor(), outcome.hits);
  for (std::size_t i = 0; i < kElementOutputs; ++i) {
    if (!writes(trial, i)) continue;
    outcome.output[i].bits = call.written(i);
    outcome.output[i] = canonical(outcome.output[i]);
  }
  const auto bits = [&](std::size_t i) { return inputs[i] != nullptr ? &inputs[i]->bits : &kNone; };
  outcome.disturbed = call.disturbed({bits(0), bits(1), bits(2)});
  return outcome;
}

inline std::string difference(const Hit& a, const Hit& b) {
  if (a.count == b.count && a.first == b.first) return "";
  return std::to_string(a.count) + " elements, first " + std::to_string(a.first) + ", against " +
         std::to_string(b.count) + ", first " + std::to_string(b.first);
}

/// The first thing in which two hits differ; empty if nothing does.
inline std::string difference(const Hits& a, const Hits& b) {
  for (int i = 0; i < kConditions; ++i) {
    const std::string differs = difference(a.of[i], b.of[i]);
    if (!differs.empty()) return std::string(name(static_cast<Condition>(i))) + ": " + differs;
  }
  const std::string raising = difference(a.raising, b.raising);
  if (!raising.empty()) return "raising: " + raising;
  const std::string latent = difference(a.latent, b.latent);
  return latent.empty() ? "" : "latent: " + latent;
}

/// The first thing in which two outcomes differ; empty if nothing does.
inline std::string difference(const DivisionOutcome& a, const DivisionOutcome& b) {
  if (a.disturbed + b.disturbed != 0) return "memory outside the outputs was written";
  for (std::size_t k = 0; k < kElementOutputs; ++k) {
    for (std::size_t i = 0; i < a.output[k].bits.size(); ++i) {
      if (a.output[k].bits[i] != b.output[k].bits[i])
        return "output " + std::to_string(k) + " element " +
               std::to_string(i / a.output[k].length) + ": " +
               describe(a.output[k], i / a.output[k].length) + " against " +
               describe(b.output[k], i / a.output[k].length);
    }
  }
  return difference(a.hits, b.hits);
}

}  // namespace safeops::cases
