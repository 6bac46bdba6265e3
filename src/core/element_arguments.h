#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/resolution.h"

namespace safeops {

inline constexpr std::size_t kElementOutputs = 2, kElementInputs = 3;

/// Where the first element of an operand lies and how many bytes lie between neighbours along each
/// dim: 0 where one element is repeated.
struct ElementOperand {
  void* data = nullptr;
  const std::int64_t* stride = nullptr;
};

/// From the place of an element in memory to its number, its index in row-major order over the
/// dims of the tensor: along each dim, by descending stride, so many bytes are so many numbers.
struct ElementNumbering {
  struct Step {
    std::int64_t bytes, numbers;
  };
  std::span<const Step> steps;

  std::uint64_t number(std::int64_t offset) const {
    std::uint64_t sum = 0;
    for (const Step& step : steps) {
      sum += static_cast<std::uint64_t>(offset / step.bytes * step.numbers);
      offset %= step.bytes;
    }
    return sum;
  }
};

/// What the elements of a call have in common.
struct CellArguments {
  Resolution policy;
  bool given[kElementInputs] = {};  ///< whether an input has data, and is not a number
};

/// One call of an element-wise kernel. All operands have the same element type, which is that of
/// `element`, and a real or complex number of it per element as the kernel says. An output may be
/// an input of the same place and strides. Spans and pointers are read during the call only.
struct ElementArguments {
  std::span<const std::int64_t> size;  ///< the dim whose neighbours lie closest first; may be empty
  ElementOperand output[kElementOutputs];  ///< null data: not wanted, nothing is written
  ElementOperand input[kElementInputs];
  /// What stands for every element of an input without data: not rounded to a half type.
  double number[kElementInputs] = {1, 1, 1};
  Element element = Element::float32;
  Resolution policy;
  ElementOperand numbered;     ///< the operand whose elements `numbering` numbers, an output
  ElementNumbering numbering;  ///< without steps: in the order in which they are walked
  bool streams = false;        ///< the outputs are too large for the cache: store past it

  std::size_t elements() const {
    std::size_t product = 1;
    for (const std::int64_t extent : size) product *= static_cast<std::size_t>(extent);
    return product;
  }
  CellArguments cell() const {
    CellArguments common{policy};
    for (std::size_t k = 0; k < kElementInputs; ++k) common.given[k] = input[k].data != nullptr;
    return common;
  }
};

/// Of the size and of the numbering steps that the kernels for CUDA take.
inline constexpr std::size_t kMaxCudaDims = 16;

inline bool fits_cuda(const ElementArguments& arguments) {
  return arguments.size.size() <= kMaxCudaDims && arguments.numbering.steps.size() <= kMaxCudaDims;
}

}  // namespace safeops
