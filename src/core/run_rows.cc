#include "core/run_rows.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/share_out.h"

namespace safeops {
namespace {

// A row is split when it has at least this many slices and there are fewer rows than this. What is
// kept whole must not be split: its bits are those of one span.
constexpr std::size_t kSlicesWorthSplitting = 8, kFewRows = 16;
static_assert(kSlicesWorthSplitting * kSliceLength > kKeptLength);

// The numbers of the reduction that a pass has reached, all slices together.
void append(SplitPass& pass, const Reached& reached, double* shares, std::size_t slices) {
  if (pass.answered + reached.numbers > SplitPass::kMaxNumbers) {
    throw std::logic_error("a row program has more reductions than SplitPass holds");
  }
  const FloatEnvironment environment;
  double* const total = pass.answer + pass.answered;
  std::copy_n(shares, reached.numbers, total);
  for (std::size_t slice = 1; slice < slices; ++slice)
    reached.merge(total, shares + slice * SplitPass::kMaxShare);
  pass.answered += reached.numbers;
}

std::size_t slices_of(const RowArguments& arguments) {
  return (arguments.layout.length + kSliceLength - 1) / kSliceLength;
}

// The slices of one row in parallel.
void run_split_row(const RowArguments& arguments, const RowKernels& kernels, std::size_t row,
                   std::vector<double>& shares, Executor& executor, Hits& hits) {
  const std::size_t slices = slices_of(arguments);
  SplitPass pass;
  for (;;) {
    Reached reached;
    share_out(slices, kSliceLength, executor, hits,
              [&](std::size_t begin, std::size_t end, Hits& met) {
                SplitPass mine = pass;
                for (std::size_t slice = begin; slice < end; ++slice) {
                  mine.share = shares.data() + slice * SplitPass::kMaxShare;
                  const Reached here = kernels.slice(arguments, mine, row, slice, met);
                  // Every slice reaches the same reduction.
                  if (slice == 0) reached = here;
                }
              });
    if (reached.numbers == 0) return;
    append(pass, reached, shares.data(), slices);
  }
}

// The same on this thread, for one of many rows.
void replay_row(const RowArguments& arguments, const RowKernels& kernels, std::size_t row,
                Hits& hits) {
  const std::size_t slices = slices_of(arguments);
  SplitPass pass;
  for (;;) {
    double share[SplitPass::kMaxShare];
    SplitPass mine = pass;
    mine.share = share;
    const Reached reached = kernels.slice(arguments, mine, row, 0, hits);
    if (reached.numbers != 0) append(pass, reached, share, 1);
    for (std::size_t slice = 1; slice < slices; ++slice) {
      kernels.slice(arguments, mine, row, slice, hits);
      if (reached.numbers != 0) reached.merge(pass.answer + pass.answered - reached.numbers, share);
    }
    if (reached.numbers == 0) return;
  }
}

}  // namespace

void run_rows(const RowArguments& arguments, const RowKernels& kernels, Executor& executor,
              Hits& hits) {
  const RowLayout& layout = arguments.layout;
  if (layout.rows == 0 || layout.length == 0) return;
  const bool contiguous = layout.kind == RowLayout::Kind::contiguous;
  if (kernels.slice != nullptr && contiguous && layout.rows < kFewRows &&
      layout.length >= kSlicesWorthSplitting * kSliceLength) {
    std::vector<double> shares(slices_of(arguments) * SplitPass::kMaxShare);
    for (std::size_t row = 0; row < layout.rows; ++row)
      run_split_row(arguments, kernels, row, shares, executor, hits);
    return;
  }
  const bool replays =
      kernels.stages && contiguous && layout.length > kKeptLength && is_staged(arguments);
  const std::size_t least = kernels.stages && !contiguous ? rows_of_tile(layout.length) : 1;
  share_out(
      layout.rows, layout.length, executor, hits,
      [&](std::size_t begin, std::size_t end, Hits& met) {
        if (!replays) return kernels.rows(arguments, begin, end, met);
        for (std::size_t row = begin; row < end; ++row) replay_row(arguments, kernels, row, met);
      },
      least);
}

}  // namespace safeops
