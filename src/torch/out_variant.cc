#include "torch/out_variant.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>

#include <algorithm>

#include "torch/execution.h"

namespace safeops {

void fill_out(at::Tensor& out, std::initializer_list<at::Tensor> inputs, Policy policy,
              const EmptyResult& result, const std::function<void(const at::Tensor&)>& fill) {
  at::assert_no_internal_overlap(out);
  const bool same_sizes = out.sizes() == result.sizes;
  const auto apart = [&](const at::Tensor& input) {
    return !input.defined() || out.is_same(input) ||
           at::get_overlap_status(out, input) == at::MemOverlapStatus::No;
  };
  const bool may_throw = policy == Policy::raise && throws_itself(out);
  if (!may_throw && same_sizes && out.scalar_type() == result.dtype && !out.is_conj() &&
      !out.is_neg() && std::all_of(inputs.begin(), inputs.end(), apart)) {
    fill(out);
    return;
  }
  for (const at::Tensor& input : inputs) {
    if (same_sizes && input.defined()) at::assert_no_partial_overlap(out, input);
  }
  const at::Tensor temporary = result.make();
  fill(temporary);
  if (at::native::resize_output(out, result.sizes))
    out.as_strided_(temporary.sizes(), temporary.strides());
  out.copy_(temporary);
}

}  // namespace safeops
