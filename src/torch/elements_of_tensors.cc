#include "torch/elements_of_tensors.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

#include "torch/checks.h"
#include "torch/streaming.h"

namespace safeops {
namespace {

using Steps = c10::SmallVector<ElementNumbering::Step, 6>;

struct NumberedDim {
  std::int64_t size, stride, numbers;  // in elements
};

// The dims of a tensor that hold more than one index, by descending stride.
c10::SmallVector<NumberedDim, 6> numbered_dims(const at::TensorBase& tensor) {
  c10::SmallVector<NumberedDim, 6> dims;
  std::int64_t numbers = 1;
  for (std::int64_t d = tensor.dim(); d-- > 0;) {
    if (tensor.size(d) != 1) dims.push_back({tensor.size(d), tensor.stride(d), numbers});
    numbers *= tensor.size(d);
  }
  std::sort(dims.begin(), dims.end(),
            [](const NumberedDim& a, const NumberedDim& b) { return a.stride > b.stride; });
  return dims;
}

// A contiguous output is walked in the order of its numbers.
Steps steps_of(const at::TensorBase& output) {
  Steps steps;
  if (output.is_contiguous()) return steps;
  const auto bytes = static_cast<std::int64_t>(output.itemsize());
  for (const NumberedDim& dim : numbered_dims(output))
    steps.push_back({dim.stride * bytes, dim.numbers});
  return steps;
}

}  // namespace

bool can_be_numbered(const at::Tensor& output) {
  if (output.is_contiguous() || output.numel() == 0) return true;
  const auto dims = numbered_dims(output);
  std::int64_t spanned = 1;
  return std::all_of(dims.rbegin(), dims.rend(), [&](const NumberedDim& dim) {
    const bool beyond = dim.stride >= spanned;
    spanned = dim.stride * dim.size;
    return beyond;
  });
}

void run_on_elements(const at::TensorIteratorBase& iterator, const ElementPlaces& places,
                     ElementArguments arguments,
                     c10::function_ref<void(const ElementArguments&)> kernel) {
  if (iterator.numel() == 0) return;
  // On the CPU the iterator has converted what a kernel reads, elsewhere whoever built it.
  const auto operand = [&](int place) {
    TORCH_INTERNAL_ASSERT(iterator.dtype(place) == iterator.dtype(0) &&
                          iterator.device(place) == iterator.device(0));
    return ElementOperand{iterator.data_ptr(place), iterator.strides(place).data()};
  };
  for (std::size_t k = 0; k < kElementOutputs; ++k) {
    if (places.output[k] != ElementPlaces::kAbsent) arguments.output[k] = operand(places.output[k]);
  }
  for (std::size_t k = 0; k < kElementInputs; ++k) {
    if (places.input[k] != ElementPlaces::kAbsent) arguments.input[k] = operand(places.input[k]);
  }
  const at::TensorBase& numbered = iterator.tensor_base(0);
  const Steps steps = steps_of(numbered);
  arguments.size = iterator.shape();
  arguments.numbered = operand(0);
  arguments.numbering.steps = steps;
  arguments.streams = worth_streaming(numbered, iterator.strides(0));
  if (const auto element = element_of(iterator.dtype(0))) arguments.element = *element;
  kernel(arguments);
}

}  // namespace safeops
