#pragma once

#include <ATen/core/Tensor.h>

#include <bitset>
#include <functional>
#include <vector>

#include "core/executor.h"
#include "core/row_layout.h"

namespace safeops {

using ReducedDims = std::bitset<64>;

/// Row arithmetic over the threads of at::parallel_for.
class TorchExecutor final : public Executor {
 public:
  void run(std::size_t tasks, void (*body)(void*, std::size_t, std::size_t),
           void* context) override;
};

enum class WalkableRows : unsigned char { any, contiguous_only };

/// Calls kernel(arguments) with the rows of `inputs` and `output`, which have one shape, over the
/// reduced dims; fills in layout, input and output of `arguments`. What no Row can walk is copied:
/// first into the output, to run in place, then, if the reduced dims do not lie together in memory,
/// through a permuted copy.
void run_on_rows(std::vector<at::Tensor> inputs, const at::Tensor& output,
                 const ReducedDims& reduced, WalkableRows walkable, RowArguments arguments,
                 const std::function<void(const RowArguments&)>& kernel);

/// A tensor of x's shape and dtype with the strides that torch would give x / n, where n has size 1
/// in the reduced dims.
at::Tensor empty_elementwise(const at::Tensor& x, const std::vector<std::int64_t>& reduced);

}  // namespace safeops
