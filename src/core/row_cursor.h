#pragma once

#include <cstddef>

#include "core/hits.h"
#include "core/row_layout.h"

namespace safeops {

/// A row is added up in slices of this many elements, whatever the vector width and however it is
/// shared out.
inline constexpr std::size_t kSliceLength = 8192;
/// Rows up to this length are transposed and walked side by side.
inline constexpr std::size_t kTinyLength = 4;
/// Rows up to this length share their per-row arithmetic, a row a lane.
inline constexpr std::size_t kShortLength = 256;

/// Neighbouring rows that are staged together, so that every element of theirs is met in a run of
/// at least 128 bytes (memory is fetched by pairs of lines), and the tile stays in the second-level
/// cache while it can.
constexpr std::size_t rows_of_tile(std::size_t length) {
  const std::size_t fitting = 65536 / length / 16 * 16;
  return fitting < 32 ? 32 : fitting > 512 ? 512 : fitting;
}

/// Longer rows are reduced slice by slice, each relative to a reference of its own, and their terms
/// are computed again when they are written; those that fit the second-level cache with their terms
/// keep them.
inline constexpr std::size_t kKeptLength = 65535;
/// Staged rows up to this length are transposed and walked side by side.
inline constexpr std::size_t kTransposedLength = 12;

/// Where one row starts in every operand. `output` is null when nothing is to be written.
template <class E, std::size_t kInputs>
struct RowPointers {
  const E* input[kInputs];
  E* output;

  /// The row that many rows further in the same run along the last kept dim.
  RowPointers neighbour(const RowLayout& layout, std::size_t rows) const {
    RowPointers other;
    for (std::size_t k = 0; k < kInputs; ++k) other.input[k] = input[k] + distance(layout, k, rows);
    other.output = output ? output + distance(layout, kInputs, rows) : nullptr;
    return other;
  }

 private:
  static std::ptrdiff_t distance(const RowLayout& layout, std::size_t which, std::size_t rows) {
    if (layout.kept_dims == 0) return 0;
    return layout.operand[which].kept[layout.kept_dims - 1] * static_cast<std::ptrdiff_t>(rows);
  }
};

/// Walks rows in order without dividing: an odometer over the kept dims. A mask is followed only
/// where kOperands includes it.
template <class E, std::size_t kInputs, std::size_t kOperands = kInputs + 1>
class RowCursor {
 public:
  RowCursor(const RowArguments& arguments, std::size_t row) : arguments_(arguments) {
    for (std::size_t k = 0; k < kOperands; ++k) offset_[k] = arguments.layout.offset(k, row);
    for (std::size_t d = arguments.layout.kept_dims; d-- > 0;) {
      index_[d] = row % arguments.layout.kept_size[d];
      row /= arguments.layout.kept_size[d];
    }
  }

  RowPointers<E, kInputs> pointers() const {
    RowPointers<E, kInputs> at;
    for (std::size_t k = 0; k < kInputs; ++k)
      at.input[k] = static_cast<const E*>(arguments_.input[k]) + offset_[k];
    at.output = arguments_.output ? static_cast<E*>(arguments_.output) + offset_[kInputs] : nullptr;
    return at;
  }

  /// Elements from the start of operand `which` to the start of the row.
  std::ptrdiff_t offset(std::size_t which) const { return offset_[which]; }

  /// Rows from here to the end of the run along the last kept dim.
  std::size_t left_in_run() const {
    const std::size_t last = arguments_.layout.kept_dims;
    return last == 0 ? 1 : arguments_.layout.kept_size[last - 1] - index_[last - 1];
  }

  /// `rows` must not pass the end of the run, but may reach it.
  void advance(std::size_t rows) {
    const RowLayout& layout = arguments_.layout;
    std::size_t step = rows;
    for (std::size_t d = layout.kept_dims; d-- > 0; step = 1) {
      index_[d] += step;
      move(d, static_cast<std::ptrdiff_t>(step));
      if (index_[d] < layout.kept_size[d]) return;
      move(d, -static_cast<std::ptrdiff_t>(layout.kept_size[d]));
      index_[d] = 0;
    }
  }

 private:
  void move(std::size_t dim, std::ptrdiff_t steps) {
    for (std::size_t k = 0; k < kOperands; ++k)
      offset_[k] += steps * arguments_.layout.operand[k].kept[dim];
  }

  const RowArguments& arguments_;
  std::size_t index_[kMaxKeptDims] = {};
  std::ptrdiff_t offset_[kOperands] = {};
};

/// Adds in order, keeping what each addition rounds away (Knuth's TwoSum), so that a row of many
/// slices loses no more than its slices do. A sum that overflowed stays infinite: the correction
/// would be NaN then.
class CompensatedSum {
 public:
  constexpr void add(double term) {
    const double sum = sum_ + term;
    const double shifted = sum - sum_;
    lost_ += (sum_ - (sum - shifted)) + (term - shifted);
    sum_ = sum;
  }
  constexpr double value() const {
    const double corrected = sum_ + lost_;
    return corrected == corrected ? corrected : sum_;
  }

 private:
  double sum_ = 0, lost_ = 0;
};

/// What a slice of a split row has computed: the first reduction that the pass did not answer, as
/// that many numbers, and how those of two neighbouring slices become one. No numbers: it has
/// reached the end of the program.
struct Reached {
  std::size_t numbers = 0;
  void (*merge)(double* into, const double* next) = nullptr;
};

/// One pass of a split row (see SplitRow). `answer` holds the numbers of the reductions that
/// earlier passes computed, one after another; the slice's own go to `share`.
struct SplitPass {
  static constexpr std::size_t kMaxNumbers = 32, kMaxShare = 4;
  std::size_t answered = 0;
  double answer[kMaxNumbers] = {};
  double* share = nullptr;
};

/// What an operator compiles to for one target, element type and program. `slice` is null where the
/// program is never split.
struct RowKernels {
  void (*rows)(const RowArguments& arguments, std::size_t begin, std::size_t end, Hits& hits);
  Reached (*slice)(const RowArguments& arguments, const SplitPass& pass, std::size_t row,
                   std::size_t slice, Hits& hits);
  /// Rows may be staged; those of more than kKeptLength elements come as slices then.
  bool stages = false;
};

}  // namespace safeops
