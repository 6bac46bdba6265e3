#include "torch/rows_of_tensors.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <optional>

namespace safeops {
namespace {

using Dims = std::vector<std::int64_t>;

// One dim that stands for several adjacent ones.
struct MergedDim {
  std::int64_t size;
  std::vector<std::int64_t> stride;  // per operand
};

std::vector<MergedDim> merge(const std::vector<at::Tensor>& operands, const Dims& dims) {
  std::vector<MergedDim> merged;
  for (const std::int64_t dim : dims) {
    MergedDim next{operands.back().size(dim), {}};
    for (const auto& operand : operands) next.stride.push_back(operand.stride(dim));
    const auto continues = [&](const MergedDim& outer) {
      for (std::size_t k = 0; k < operands.size(); ++k) {
        if (outer.stride[k] != next.stride[k] * next.size) return false;
      }
      return true;
    };
    if (!merged.empty() && continues(merged.back())) {
      merged.back().size *= next.size;
      merged.back().stride = next.stride;
    } else {
      merged.push_back(next);
    }
  }
  return merged;
}

bool all_equal(const std::vector<std::int64_t>& values, std::int64_t value) {
  return std::all_of(values.begin(), values.end(),
                     [value](std::int64_t each) { return each == value; });
}

std::optional<RowLayout::Kind> kind_of(const std::vector<MergedDim>& kept, const MergedDim& row) {
  if (row.size == 1 || all_equal(row.stride, 1)) return RowLayout::Kind::contiguous;
  if (!kept.empty() && all_equal(kept.back().stride, 1)) return RowLayout::Kind::side_by_side;
  return std::nullopt;
}

// The rows of the operands as they lie, if a Row can walk them. The output comes last and decides
// the order of the elements within a row; kept dims stay in logical order, which is the order in
// which rows are numbered.
std::optional<RowLayout> row_layout(const std::vector<at::Tensor>& operands,
                                    const ReducedDims& reduced) {
  const at::Tensor& output = operands.back();
  Dims kept_dims, row_dims;
  for (std::int64_t d = 0; d < output.dim(); ++d) {
    if (output.size(d) != 1)
      (reduced[static_cast<std::size_t>(d)] ? row_dims : kept_dims).push_back(d);
  }
  std::stable_sort(row_dims.begin(), row_dims.end(), [&](std::int64_t a, std::int64_t b) {
    return output.stride(a) > output.stride(b);
  });
  const auto kept = merge(operands, kept_dims), rows = merge(operands, row_dims);
  if (rows.size() > 1 || kept.size() > kMaxKeptDims) return std::nullopt;
  const MergedDim row =
      rows.empty() ? MergedDim{1, std::vector<std::int64_t>(operands.size(), 1)} : rows.front();
  const auto kind = kind_of(kept, row);
  if (!kind) return std::nullopt;

  RowLayout layout;
  layout.kind = *kind;
  layout.rows = 1;
  layout.length = static_cast<std::size_t>(row.size);
  layout.kept_dims = kept.size();
  for (std::size_t d = 0; d < kept.size(); ++d) {
    layout.kept_size[d] = static_cast<std::size_t>(kept[d].size);
    layout.rows *= layout.kept_size[d];
  }
  for (std::size_t k = 0; k < operands.size(); ++k) {
    layout.operand[k].step = row.stride[k];
    for (std::size_t d = 0; d < kept.size(); ++d) layout.operand[k].kept[d] = kept[d].stride[k];
  }
  return layout;
}

bool try_run(const std::vector<at::Tensor>& inputs, const at::Tensor& output,
             const ReducedDims& reduced, WalkableRows walkable, RowArguments& arguments,
             const std::function<void(const RowArguments&)>& kernel) {
  std::vector<at::Tensor> operands = inputs;
  operands.push_back(output);
  const auto layout = row_layout(operands, reduced);
  if (!layout) return false;
  if (walkable == WalkableRows::contiguous_only && layout->kind != RowLayout::Kind::contiguous)
    return false;
  arguments.layout = *layout;
  for (std::size_t k = 0; k < inputs.size(); ++k) arguments.input[k] = inputs[k].const_data_ptr();
  arguments.output = output.mutable_data_ptr();
  // Half a last-level cache or more: stores past it save reading the lines that they overwrite.
  constexpr std::size_t kStreamedBytes = std::size_t{1} << 24;
  arguments.streams = output.nbytes() >= kStreamedBytes;
  kernel(arguments);
  return true;
}

}  // namespace

void TorchExecutor::run(std::size_t tasks, void (*body)(void*, std::size_t, std::size_t),
                        void* context) {
  // A task is some 16K elements, about a microsecond of work; waking a thread costs several.
  constexpr std::int64_t kTasksPerThread = 4;
  at::parallel_for(0, static_cast<std::int64_t>(tasks), kTasksPerThread,
                   [&](std::int64_t begin, std::int64_t end) {
                     body(context, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
                   });
}

void run_on_rows(std::vector<at::Tensor> inputs, const at::Tensor& output,
                 const ReducedDims& reduced, WalkableRows walkable, RowArguments arguments,
                 const std::function<void(const RowArguments&)>& kernel) {
  if (output.numel() == 0) return;
  if (try_run(inputs, output, reduced, walkable, arguments, kernel)) return;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].strides() == output.strides()) continue;
    const at::Tensor copy =
        k == 0 ? output : at::empty_strided(output.sizes(), output.strides(), output.options());
    inputs[k] = copy.copy_(inputs[k]);
  }
  if (try_run(inputs, output, reduced, walkable, arguments, kernel)) return;

  Dims order, row_dims;
  ReducedDims last;
  for (std::int64_t d = 0; d < output.dim(); ++d) {
    (reduced[static_cast<std::size_t>(d)] ? row_dims : order).push_back(d);
  }
  for (std::size_t d = order.size(); d < static_cast<std::size_t>(output.dim()); ++d) last.set(d);
  order.insert(order.end(), row_dims.begin(), row_dims.end());
  for (auto& input : inputs) input = input.permute(order).contiguous();
  const at::Tensor permuted = at::empty(inputs[0].sizes(), output.options());
  TORCH_INTERNAL_ASSERT(try_run(inputs, permuted, last, walkable, arguments, kernel));
  output.permute(order).copy_(permuted);
}

at::Tensor empty_elementwise(const at::Tensor& x, const std::vector<std::int64_t>& reduced) {
  if (x.is_contiguous()) {
    // Dims of size 1 may have any stride and be contiguous; TensorIterator keeps some of them.
    const at::Tensor plain = at::empty(x.sizes(), x.options());
    if (plain.strides() == x.strides()) return plain;
  }
  std::vector<std::int64_t> sizes = x.sizes().vec();
  for (const std::int64_t d : reduced) sizes[static_cast<std::size_t>(d)] = 1;
  const at::Tensor norm = at::empty(sizes, x.options());
  at::Tensor output;
  const auto iterator = at::TensorIteratorConfig()
                            .add_output(output)
                            .add_const_input(x)
                            .add_const_input(norm)
                            .set_check_mem_overlap(false)
                            .build();
  return iterator.output();
}

}  // namespace safeops
