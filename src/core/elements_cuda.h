// The arguments of element-wise kernels for CUDA: from the position of an element in the walk to
// its place in every operand, and to its number.
#pragma once

#include "core/element_arguments.h"
#include "core/report_cuda.h"

SAFEOPS_BEGIN_LANES

// Positions are below 2^31: in_parts makes several calls of one with more elements.
inline constexpr std::uint64_t kMostPositions = (std::uint64_t{1} << 31) - 1;

// Division of numbers below 2^31 by a product and a shift (T. Granlund, P. Montgomery, "Division by
// invariant integers using multiplication", 1994).
struct Divisor {
  std::uint32_t factor, shift;

  Divisor() = default;
  explicit Divisor(std::uint32_t divisor) : shift(0) {
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    const std::uint64_t beyond = (std::uint64_t{1} << shift) - divisor;
    factor = static_cast<std::uint32_t>((beyond << 32) / divisor + 1);
  }
  SAFEOPS_INLINE std::uint32_t quotient(std::uint32_t x) const {
    const auto high = static_cast<std::uint32_t>(std::uint64_t{x} * factor >> 32);
    return (high + x) >> shift;
  }
};

// Where a part of a call begins: its first position, and the offset of that element in the numbered
// operand.
struct PartStart {
  std::uint64_t position = 0;
  std::int64_t numbered = 0;
};

// Part of a call that fits_cuda, with copies of what its spans and pointers name.
struct DeviceElements {
  std::uint32_t elements;
  int dims, steps;
  CellArguments cell;
  const char* input[kElementInputs];  // null: every element is the number
  double number[kElementInputs];
  char* output[kElementOutputs];  // null: not wanted
  PartStart start;
  std::uint32_t size[kMaxCudaDims];
  Divisor divisor[kMaxCudaDims];
  std::int64_t input_stride[kElementInputs][kMaxCudaDims];
  std::int64_t output_stride[kElementOutputs][kMaxCudaDims];
  std::int64_t numbered_stride[kMaxCudaDims];
  ElementNumbering::Step step[kMaxCudaDims];

  DeviceElements(const ElementArguments& arguments, const PartStart& part)
      : elements(static_cast<std::uint32_t>(arguments.elements())),
        dims(static_cast<int>(arguments.size.size())),
        steps(static_cast<int>(arguments.numbering.steps.size())),
        cell(arguments.cell()),
        start(part) {
    for (std::size_t k = 0; k < kElementInputs; ++k) {
      input[k] = static_cast<const char*>(arguments.input[k].data);
      number[k] = arguments.number[k];
      copy(arguments.input[k], input_stride[k]);
    }
    for (std::size_t k = 0; k < kElementOutputs; ++k) {
      output[k] = static_cast<char*>(arguments.output[k].data);
      copy(arguments.output[k], output_stride[k]);
    }
    copy(arguments.numbered, numbered_stride);
    for (int d = 0; d < dims; ++d) {
      size[d] = static_cast<std::uint32_t>(arguments.size[static_cast<std::size_t>(d)]);
      divisor[d] = Divisor(size[d]);
    }
    for (int s = 0; s < steps; ++s)
      step[s] = arguments.numbering.steps[static_cast<std::size_t>(s)];
  }

  // Calls f(d, i, coordinate) for every dim of the positions position + i * apart.
  template <int kPositions, class F>
  SAFEOPS_INLINE void each_coordinate(std::uint32_t position, std::uint32_t apart,
                                      const F& f) const {
    std::uint32_t rest[kPositions];
    SAFEOPS_UNROLL for (int i = 0; i < kPositions; ++i) {
      rest[i] = position + static_cast<std::uint32_t>(i) * apart;
    }
    SAFEOPS_ROLL for (int d = 0; d < dims; ++d) {
      SAFEOPS_UNROLL for (int i = 0; i < kPositions; ++i) {
        const std::uint32_t quotient = d + 1 == dims ? 0 : divisor[d].quotient(rest[i]);
        f(d, i, static_cast<std::int64_t>(rest[i] - quotient * size[d]));
        rest[i] = quotient;
      }
    }
  }

  // As ElementNumbers::number.
  SAFEOPS_INLINE std::uint64_t number_of(std::uint32_t position) const {
    if (steps == 0) return start.position + position;
    std::int64_t offset = start.numbered;
    each_coordinate<1>(position, 0, [&](int d, int, std::int64_t coordinate) SAFEOPS_LANES {
      offset += coordinate * numbered_stride[d];
    });
    std::uint64_t sum = 0;
    SAFEOPS_ROLL for (int s = 0; s < steps; ++s) {
      const std::int64_t steps_over = offset / step[s].bytes;
      sum += static_cast<std::uint64_t>(steps_over * step[s].numbers);
      offset -= steps_over * step[s].bytes;
    }
    return sum;
  }

 private:
  void copy(const ElementOperand& operand, std::int64_t (&stride)[kMaxCudaDims]) const {
    for (int d = 0; d < dims; ++d) stride[d] = operand.data == nullptr ? 0 : operand.stride[d];
  }
};

// Where elements lie in the operands of a cell, in bytes.
template <int kPositions, int kInputs, int kOutputs>
struct ElementOffsets {
  std::int64_t input[kPositions][kInputs] = {}, output[kPositions][kOutputs] = {};

  SAFEOPS_INLINE ElementOffsets(const DeviceElements& elements, std::uint32_t position,
                                std::uint32_t apart) {
    const auto add = [&](int d, int i, std::int64_t coordinate) SAFEOPS_LANES {
      SAFEOPS_UNROLL for (int k = 0; k < kInputs; ++k) {
        input[i][k] += coordinate * elements.input_stride[k][d];
      }
      SAFEOPS_UNROLL for (int k = 0; k < kOutputs; ++k) {
        output[i][k] += coordinate * elements.output_stride[k][d];
      }
    };
    elements.each_coordinate<kPositions>(position, apart, add);
  }
};

// Calls run(arguments, start) for parts of at most `most` positions until one does not succeed.
template <class F>
CudaStatus in_parts(const ElementArguments& whole, const PartStart& start, std::uint64_t most,
                    const F& run) {
  if (whole.elements() <= most) return run(whole, start);
  std::int64_t size[kMaxCudaDims];
  std::uint64_t inner = 1;
  std::size_t dims = 0;
  // The dims up to the outermost that can be cut.
  for (std::size_t d = 0; d < whole.size.size(); ++d) {
    size[d] = whole.size[d];
    if (size[d] > 1) dims = d + 1;
  }
  for (std::size_t d = 0; d + 1 < dims; ++d) inner *= static_cast<std::uint64_t>(size[d]);
  const std::size_t outer = dims - 1;
  // A multiple, so that what is aligned stays aligned.
  constexpr std::int64_t kMultiple = 1024;
  std::int64_t cut = size[outer] / 2;
  if (cut > kMultiple) cut -= cut % kMultiple;

  ElementArguments part = whole;
  part.size = {size, whole.size.size()};
  size[outer] = cut;
  const CudaStatus status = in_parts(part, start, most, run);
  if (status != cudaSuccess) return status;
  size[outer] = whole.size[outer] - cut;
  const auto move = [&](ElementOperand& operand) {
    if (operand.data != nullptr)
      operand.data = static_cast<char*>(operand.data) + cut * operand.stride[outer];
  };
  for (ElementOperand& input : part.input) move(input);
  for (ElementOperand& output : part.output) move(output);
  PartStart rest = start;
  rest.position += static_cast<std::uint64_t>(cut) * inner;
  if (whole.numbered.data != nullptr) rest.numbered += cut * whole.numbered.stride[outer];
  return in_parts(part, rest, most, run);
}

SAFEOPS_END_LANES
