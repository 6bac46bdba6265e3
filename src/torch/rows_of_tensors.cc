#include "torch/rows_of_tensors.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <optional>

#include "torch/checks.h"
#include "torch/streaming.h"

namespace safeops {
namespace {

using Dims = std::vector<std::int64_t>;

// What a layout is made of: the inputs, what leads, and the mask, which comes last and may be
// missing.
struct Walked {
  c10::SmallVector<const at::Tensor*, kMaxOperands> tensors;
  std::size_t elements = 0;  // so many of them are not the mask
};

// One dim that stands for several adjacent ones.
struct MergedDim {
  std::int64_t size = 1;
  std::array<std::int64_t, kMaxOperands> stride = {1, 1, 1, 1};  // per tensor
};

std::vector<MergedDim> merge(const Walked& walked, const Dims& dims) {
  std::vector<MergedDim> merged;
  const std::size_t tensors = walked.tensors.size();
  for (const std::int64_t dim : dims) {
    MergedDim next{walked.tensors[0]->size(dim)};
    for (std::size_t k = 0; k < tensors; ++k) next.stride[k] = walked.tensors[k]->stride(dim);
    const auto continues = [&](const MergedDim& outer) {
      for (std::size_t k = 0; k < tensors; ++k) {
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

bool unit_stride(const MergedDim& dim, const Walked& walked) {
  return std::all_of(dim.stride.begin(),
                     dim.stride.begin() + static_cast<std::ptrdiff_t>(walked.elements),
                     [](std::int64_t stride) { return stride == 1; });
}

std::optional<RowLayout::Kind> kind_of(const std::vector<MergedDim>& kept, const MergedDim& row,
                                       const Walked& walked) {
  if (row.size == 1 || unit_stride(row, walked)) return RowLayout::Kind::contiguous;
  if (!kept.empty() && unit_stride(kept.back(), walked)) return RowLayout::Kind::side_by_side;
  return std::nullopt;
}

bool walks(WalkableRows walkable, const RowLayout& layout) {
  // A tile holds as many columns as fit a cache beside its rows. Of longer rows, or where fewer
  // rows lie side by side, it would use a small part of every line of memory.
  constexpr std::size_t kLongestTile = 16384, kNarrowestTile = 4;
  if (layout.kind == RowLayout::Kind::contiguous || walkable == WalkableRows::any) return true;
  return walkable == WalkableRows::tiles && layout.length <= kLongestTile &&
         layout.run() >= kNarrowestTile;
}

// What decides the order of the elements within a row.
const at::Tensor& leading(const RowOperands& operands) {
  return operands.output.defined() ? operands.output : operands.inputs.front();
}

// The usual case, without a list: everything contiguous, the reduced dims last.
std::optional<RowLayout> contiguous_layout(const RowOperands& operands,
                                           const ReducedDims& reduced) {
  const auto& [inputs, output, mask] = operands;
  const auto is_contiguous = [](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.is_contiguous();
  };
  if (!std::all_of(inputs.begin(), inputs.end(), is_contiguous) || !is_contiguous(output) ||
      !is_contiguous(mask)) {
    return std::nullopt;
  }
  std::int64_t rows = 1, length = 1;
  for (std::int64_t d = inputs.front().dim(); d-- > 0;) {
    const std::int64_t size = inputs.front().size(d);
    if (!reduced[static_cast<std::size_t>(d)]) {
      rows *= size;
    } else if (rows == 1 || size == 1) {
      length *= size;
    } else {
      return std::nullopt;
    }
  }
  RowLayout layout;
  layout.rows = layout.kept_size[0] = static_cast<std::size_t>(rows);
  layout.length = static_cast<std::size_t>(length);
  layout.kept_dims = 1;
  for (RowLayout::Strides& strides : layout.operand) strides.kept[0] = length;
  return layout;
}

// The rows of the operands as they lie, if a Row can walk them. Kept dims stay in logical order,
// which is the order in which rows are numbered.
std::optional<RowLayout> row_layout(const RowOperands& operands, const ReducedDims& reduced,
                                    WalkableRows walkable) {
  if (const auto layout = contiguous_layout(operands, reduced)) return layout;
  const at::Tensor& lead = leading(operands);
  Walked walked;
  for (const auto& input : operands.inputs) walked.tensors.push_back(&input);
  walked.tensors.push_back(&lead);
  walked.elements = walked.tensors.size();
  if (operands.mask.defined()) walked.tensors.push_back(&operands.mask);

  Dims kept_dims, row_dims;
  for (std::int64_t d = 0; d < lead.dim(); ++d) {
    if (lead.size(d) != 1)
      (reduced[static_cast<std::size_t>(d)] ? row_dims : kept_dims).push_back(d);
  }
  std::stable_sort(row_dims.begin(), row_dims.end(),
                   [&](std::int64_t a, std::int64_t b) { return lead.stride(a) > lead.stride(b); });
  const auto kept = merge(walked, kept_dims), rows = merge(walked, row_dims);
  if (rows.size() > 1 || kept.size() > kMaxKeptDims) return std::nullopt;
  const MergedDim row = rows.empty() ? MergedDim() : rows.front();
  const auto kind = kind_of(kept, row, walked);
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
  for (std::size_t k = 0; k < walked.tensors.size(); ++k) {
    RowLayout::Strides& strides = layout.operand[k < walked.elements ? k : kMaskOperand];
    strides.step = row.stride[k];
    for (std::size_t d = 0; d < kept.size(); ++d) strides.kept[d] = kept[d].stride[k];
  }
  if (!walks(walkable, layout)) return std::nullopt;
  return layout;
}

// The same, with a copy of the mask if nothing else is in the way.
std::optional<RowLayout> row_layout_or_copy_mask(RowOperands& operands, const ReducedDims& reduced,
                                                 WalkableRows walkable) {
  const auto layout = row_layout(operands, reduced, walkable);
  const at::Tensor& lead = leading(operands);
  if (layout || !operands.mask.defined() || !lead.is_non_overlapping_and_dense() ||
      !row_layout({operands.inputs, operands.output, at::Tensor()}, reduced, walkable)) {
    return layout;
  }
  operands.mask =
      at::empty_strided(lead.sizes(), lead.strides(), operands.mask.options()).copy_(operands.mask);
  return row_layout(operands, reduced, walkable);
}

bool stores_past_cache(const at::Tensor& output, const RowLayout::Strides& strides,
                       std::size_t kept_dims) {
  const auto element = static_cast<std::int64_t>(output.itemsize());
  c10::SmallVector<std::int64_t, kMaxKeptDims + 1> bytes = {strides.step * element};
  for (std::size_t d = 0; d < kept_dims; ++d) bytes.push_back(strides.kept[d] * element);
  return worth_streaming(output, bytes);
}

bool try_run(RowOperands& operands, const ReducedDims& reduced, WalkableRows walkable,
             RowArguments& arguments, const std::function<void(const RowArguments&)>& kernel) {
  const auto layout = row_layout_or_copy_mask(operands, reduced, walkable);
  if (!layout) return false;
  const auto& [inputs, output, mask] = operands;
  arguments.layout = *layout;
  for (Element& stored : arguments.storage.input)
    stored = element_of(inputs.front().scalar_type()).value();
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    arguments.input[k] = inputs[k].const_data_ptr();
    arguments.storage.input[k] = element_of(inputs[k].scalar_type()).value();
  }
  arguments.output = output.defined() ? output.mutable_data_ptr() : nullptr;
  arguments.storage.output = element_of(leading(operands).scalar_type()).value();
  arguments.storage.mask = mask.defined() ? mask.const_data_ptr<bool>() : nullptr;
  arguments.streams = output.defined() &&
                      stores_past_cache(output, layout->operand[inputs.size()], layout->kept_dims);
  kernel(arguments);
  return true;
}

// Inputs with the strides of the output; the first in the output itself, if they have one dtype.
void lay_out_as_output(RowOperands& operands) {
  const at::Tensor& output = operands.output;
  for (std::size_t k = 0; k < operands.inputs.size(); ++k) {
    at::Tensor& input = operands.inputs[k];
    if (input.strides() == output.strides()) continue;
    const bool in_place = k == 0 && input.scalar_type() == output.scalar_type();
    const at::Tensor copy =
        in_place ? output : at::empty_strided(output.sizes(), output.strides(), input.options());
    input = copy.copy_(input);
  }
}

// Contiguous copies with the kept dims first and the reduced ones last.
RowOperands permuted_copies(const RowOperands& operands, const Dims& order) {
  RowOperands copies;
  for (const auto& input : operands.inputs)
    copies.inputs.push_back(input.permute(order).contiguous());
  if (operands.output.defined())
    copies.output = at::empty(copies.inputs[0].sizes(), operands.output.options());
  if (operands.mask.defined()) copies.mask = operands.mask.permute(order);
  return copies;
}

}  // namespace

ReducedDims as_set(const std::vector<std::int64_t>& dims) {
  ReducedDims set;
  for (const std::int64_t d : dims) set.set(static_cast<std::size_t>(d));
  return set;
}

std::uint64_t count_rows(const at::Tensor& self, const std::vector<std::int64_t>& dims) {
  const ReducedDims reduced = as_set(dims);
  std::uint64_t rows = 1;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (!reduced[static_cast<std::size_t>(d)]) rows *= static_cast<std::uint64_t>(self.size(d));
  }
  return rows;
}

at::Tensor empty_row_value(const at::Tensor& self, const std::vector<std::int64_t>& dims) {
  std::vector<c10::SymInt> sizes = self.sym_sizes().vec();
  if (!sizes.empty()) {
    for (const std::int64_t d : dims) sizes[static_cast<std::size_t>(d)] = 1;
  }
  return at::empty_symint(sizes, self.options().dtype(at::kDouble).memory_format(std::nullopt));
}

void run_on_rows(RowOperands operands, const ReducedDims& reduced, WalkableRows walkable,
                 RowArguments arguments, const std::function<void(const RowArguments&)>& kernel) {
  const at::Tensor& lead = leading(operands);
  if (lead.numel() == 0) return;
  if (try_run(operands, reduced, walkable, arguments, kernel)) return;
  const at::Tensor output = operands.output;
  if (output.defined() && row_layout({{output}, output, at::Tensor()}, reduced, walkable)) {
    lay_out_as_output(operands);
    if (try_run(operands, reduced, walkable, arguments, kernel)) return;
  }

  Dims order, row_dims;
  ReducedDims last;
  for (std::int64_t d = 0; d < lead.dim(); ++d) {
    (reduced[static_cast<std::size_t>(d)] ? row_dims : order).push_back(d);
  }
  for (std::size_t d = order.size(); d < static_cast<std::size_t>(lead.dim()); ++d) last.set(d);
  order.insert(order.end(), row_dims.begin(), row_dims.end());
  RowOperands permuted = permuted_copies(operands, order);
  TORCH_INTERNAL_ASSERT(try_run(permuted, last, walkable, arguments, kernel));
  if (output.defined()) output.permute(order).copy_(permuted.output);
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
