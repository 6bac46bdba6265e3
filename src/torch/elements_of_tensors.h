#pragma once

#include <ATen/TensorIterator.h>
#include <c10/util/FunctionRef.h>

#include <array>

#include "core/element_arguments.h"

namespace safeops {

/// Which operand of an iterator is which of the kernel; kAbsent for none.
struct ElementPlaces {
  static constexpr int kAbsent = -1;
  std::array<int, kElementOutputs> output = {kAbsent, kAbsent};
  std::array<int, kElementInputs> input = {kAbsent, kAbsent, kAbsent};
};

/// Calls kernel(arguments) with the elements that `iterator` walks, unless there are none; fills in
/// size, operands, the element type, numbering and streams. The operands of the iterator have one
/// dtype, and the first is an output, whose elements are numbered.
void run_on_elements(const at::TensorIteratorBase& iterator, const ElementPlaces& places,
                     ElementArguments arguments,
                     c10::function_ref<void(const ElementArguments&)> kernel);

/// Whether the elements of `output` can be numbered by where they lie: every stride spans the
/// elements of all smaller ones. What torch allocates is such a tensor.
bool can_be_numbered(const at::Tensor& output);

}  // namespace safeops
