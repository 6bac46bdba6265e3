#pragma once

#include <cstddef>

#include "core/resolution.h"

namespace safeops {

inline constexpr std::size_t kMaxKeptDims = 4;
inline constexpr std::size_t kMaxOperands = 3;

/// How the rows of up to three operands lie in memory. Kept dims are listed in logical (row-major)
/// order, so that row r is the r-th index over them; strides and steps count elements.
struct RowLayout {
  enum class Kind : unsigned char {
    contiguous,    ///< every row has unit step in every operand
    side_by_side,  ///< the last kept dim has unit stride in every operand: neighbouring rows are
                   ///< neighbours in memory
  };
  Kind kind = Kind::contiguous;
  std::size_t rows = 0;
  std::size_t length = 0;  ///< elements of a row
  std::size_t kept_dims = 0;
  std::size_t kept_size[kMaxKeptDims] = {};
  struct Strides {
    std::ptrdiff_t step = 1;  ///< from one element of a row to the next
    std::ptrdiff_t kept[kMaxKeptDims] = {};
  } operand[kMaxOperands];

  /// Elements from the start of operand `which` to the start of row `row`.
  std::ptrdiff_t offset(std::size_t which, std::size_t row) const {
    std::ptrdiff_t sum = 0;
    for (std::size_t d = kept_dims; d-- > 0;) {
      sum += static_cast<std::ptrdiff_t>(row % kept_size[d]) * operand[which].kept[d];
      row /= kept_size[d];
    }
    return sum;
  }
  /// Rows in a run along the last kept dim.
  std::size_t run() const { return kept_dims == 0 ? 1 : kept_size[kept_dims - 1]; }
};

/// One call of a row kernel. Operand numbers of the layout: inputs first, the output last (so 0, 1
/// or 0, 1, 2). The output may be an input: every row is read completely before any of it is
/// written.
struct RowArguments {
  RowLayout layout;
  Element element = Element::float32;
  const void* input[2] = {};
  void* output = nullptr;         ///< null: inspect only, nothing is written
  const double* saved = nullptr;  ///< one value per row, from forward
  double* save = nullptr;         ///< one value per row, for backward; may be null
  bool streams = false;           ///< the output is too large for the cache: store past it
  Resolution policy;
};

}  // namespace safeops
