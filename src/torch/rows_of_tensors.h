#pragma once

#include <ATen/core/Tensor.h>

#include <bitset>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/row_layout.h"

namespace safeops {

using ReducedDims = std::bitset<64>;

ReducedDims as_set(const std::vector<std::int64_t>& dims);

/// Rows of `self` over the reduced dims.
std::uint64_t count_rows(const at::Tensor& self, const std::vector<std::int64_t>& dims);

/// An uninitialised float64 tensor with one value per row: the shape of `self` with the reduced
/// dims kept as size 1. Also for tensors without data.
at::Tensor empty_row_value(const at::Tensor& self, const std::vector<std::int64_t>& dims);

/// Which rows a kernel walks without a unit step: any neighbouring ones, none, or those that tiles
/// pay for.
enum class WalkableRows : unsigned char { any, contiguous_only, tiles };

/// Tensors of one shape. `output` may be undefined, for a kernel that only inspects; so may `mask`,
/// bool, when all elements take part.
struct RowOperands {
  std::vector<at::Tensor> inputs;
  at::Tensor output, mask;
};

/// Calls kernel(arguments) with the rows of the operands over the reduced dims; fills in layout,
/// input, output, the element types and the mask of `arguments`. Inputs that no Row can walk are
/// copied: the first into the output, to run in place, if it has its dtype, others to its strides;
/// or, if the reduced dims do not lie together in memory, all through permuted copies. A mask is
/// walked as it lies and copied only where its dims cannot be merged with those of the rest.
void run_on_rows(RowOperands operands, const ReducedDims& reduced, WalkableRows walkable,
                 RowArguments arguments, const std::function<void(const RowArguments&)>& kernel);

/// A tensor of x's shape and dtype with the strides that torch would give x / n, where n has size 1
/// in the reduced dims.
at::Tensor empty_elementwise(const at::Tensor& x, const std::vector<std::int64_t>& reduced);

}  // namespace safeops
