#include "core/run_rows.h"

#include <stdexcept>
#include <vector>

#include "core/share_out.h"

namespace safeops {
namespace {

// A row is split when it has at least this many slices and there are fewer rows than this.
constexpr std::size_t kSlicesWorthSplitting = 8, kFewRows = 16;

double combine(SplitPass::Reached reached, const std::vector<double>& partial) {
  const FloatEnvironment environment;
  if (reached == SplitPass::Reached::sum) {
    CompensatedSum sum;
    for (const double share : partial) sum.add(share);
    return sum.value();
  }
  double largest = partial.front();
  for (const double share : partial) largest = share > largest || share != share ? share : largest;
  return largest;
}

SplitPass::Reached run_pass(const RowArguments& arguments, const RowKernels& kernels,
                            const SplitPass& pass, std::size_t row, std::size_t slices,
                            Executor& executor, Hits& hits) {
  std::atomic<SplitPass::Reached> reached{SplitPass::Reached::end};
  share_out(
      slices, kSliceLength, executor, hits, [&](std::size_t begin, std::size_t end, Hits& met) {
        for (std::size_t slice = begin; slice < end; ++slice) {
          reached.store(kernels.slice(arguments, pass, row, slice, met), std::memory_order_relaxed);
        }
      });
  return reached;
}

void run_split(const RowArguments& arguments, const RowKernels& kernels, Executor& executor,
               Hits& hits) {
  const std::size_t slices = (arguments.layout.length + kSliceLength - 1) / kSliceLength;
  std::vector<double> partial(slices);
  for (std::size_t row = 0; row < arguments.layout.rows; ++row) {
    SplitPass pass;
    pass.partial = partial.data();
    for (;;) {
      const auto reached = run_pass(arguments, kernels, pass, row, slices, executor, hits);
      if (reached == SplitPass::Reached::end) break;
      if (pass.answered == SplitPass::kMaxReductions) {
        throw std::logic_error("a row program has more reductions than SplitPass holds");
      }
      pass.answer[pass.answered++] = combine(reached, partial);
    }
  }
}

}  // namespace

void run_rows(const RowArguments& arguments, const RowKernels& kernels, Executor& executor,
              Hits& hits) {
  const RowLayout& layout = arguments.layout;
  if (layout.rows == 0 || layout.length == 0) return;
  if (kernels.slice != nullptr && layout.kind == RowLayout::Kind::contiguous &&
      layout.rows < kFewRows && layout.length >= kSlicesWorthSplitting * kSliceLength) {
    return run_split(arguments, kernels, executor, hits);
  }
  share_out(layout.rows, layout.length, executor, hits,
            [&](std::size_t begin, std::size_t end, Hits& met) {
              kernels.rows(arguments, begin, end, met);
            });
}

}  // namespace safeops
