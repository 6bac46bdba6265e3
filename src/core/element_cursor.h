#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/element_arguments.h"

namespace safeops {

/// A place among the elements of a call: where it lies in every operand.
class ElementCursor {
 public:
  ElementCursor(const ElementArguments& arguments, std::size_t position) : size_(arguments.size) {
    for (std::size_t k = 0; k < kElementOutputs; ++k) start(k, arguments.output[k]);
    for (std::size_t k = 0; k < kElementInputs; ++k) start(kElementOutputs + k, arguments.input[k]);
    for (std::size_t d = 0; d < size_.size(); ++d) {
      const auto extent = static_cast<std::size_t>(size_[d]);
      coordinate_[d] = static_cast<std::int64_t>(position % extent);
      position /= extent;
      for (std::size_t k = 0; k < kOperands; ++k) at_[k] += coordinate_[d] * stride(k, d);
    }
  }

  /// Null where the operand does not exist.
  char* output(std::size_t k) const { return place(k); }
  const char* input(std::size_t k) const { return place(kElementOutputs + k); }

  /// Elements from here to the end of the first dim.
  std::size_t run() const {
    return size_.empty() ? 1 : static_cast<std::size_t>(size_[0] - coordinate_[0]);
  }
  /// Runs from here to the end of the second dim, this one included.
  std::size_t runs() const {
    return size_.size() < 2 ? 1 : static_cast<std::size_t>(size_[1] - coordinate_[1]);
  }

  /// Goes on by at most run() elements.
  void advance(std::size_t elements) {
    if (size_.empty()) return;
    step(0, elements);
    carry(0);
  }
  /// Goes on by at most runs() whole runs.
  void advance_runs(std::size_t runs) {
    if (size_.size() < 2) return advance(run());
    step(1, runs);
    carry(1);
  }

 private:
  static constexpr std::size_t kOperands = kElementOutputs + kElementInputs, kMaxDims = 64;

  void start(std::size_t k, const ElementOperand& operand) {
    base_[k] = static_cast<char*>(operand.data);
    stride_[k] = operand.data == nullptr ? nullptr : operand.stride;
  }
  std::int64_t stride(std::size_t k, std::size_t d) const {
    return stride_[k] == nullptr ? 0 : stride_[k][d];
  }
  void step(std::size_t d, std::size_t by) {
    const auto moved = static_cast<std::int64_t>(by);
    coordinate_[d] += moved;
    for (std::size_t k = 0; k < kOperands; ++k) at_[k] += moved * stride(k, d);
  }
  void carry(std::size_t d) {
    for (; coordinate_[d] == size_[d] && d + 1 < size_.size(); ++d) {
      for (std::size_t k = 0; k < kOperands; ++k) at_[k] -= size_[d] * stride(k, d);
      coordinate_[d] = 0;
      step(d + 1, 1);
    }
  }
  char* place(std::size_t k) const { return base_[k] == nullptr ? nullptr : base_[k] + at_[k]; }

  std::span<const std::int64_t> size_;
  std::array<char*, kOperands> base_;
  std::array<const std::int64_t*, kOperands> stride_;
  std::array<std::int64_t, kOperands> at_ = {};
  std::array<std::int64_t, kMaxDims> coordinate_;
};

/// The numbers of elements that hit.
class ElementNumbers {
 public:
  explicit ElementNumbers(const ElementArguments& arguments)
      : arguments_(arguments), ascends_(true) {
    for (std::size_t d = 1; d < arguments.size.size() && !in_order(); ++d) {
      const std::int64_t* const stride = arguments.numbered.stride;
      ascends_ = ascends_ && stride[d] >= arguments.size[d - 1] * stride[d - 1];
    }
  }

  bool in_order() const { return arguments_.numbering.steps.empty(); }
  /// Of the element that is walked at `position`.
  std::size_t number(std::size_t position) const {
    return in_order() ? position : arguments_.numbering.number(offset(position));
  }
  /// No element that is walked at `position` or later has a smaller number.
  std::size_t least_from(std::size_t position) const {
    if (in_order()) return position;
    if (!ascends_) return 0;
    const ElementNumbering::Step outermost = arguments_.numbering.steps.front();
    return static_cast<std::size_t>(offset(position) / outermost.bytes * outermost.numbers);
  }

 private:
  std::int64_t offset(std::size_t position) const {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < arguments_.size.size(); ++d) {
      const auto extent = static_cast<std::size_t>(arguments_.size[d]);
      sum += static_cast<std::int64_t>(position % extent) * arguments_.numbered.stride[d];
      position /= extent;
    }
    return sum;
  }

  const ElementArguments& arguments_;
  bool ascends_;  // whether the walk goes up in the memory of the numbered operand
};

}  // namespace safeops
