#pragma once

#include <cstddef>

#include "core/resolution.h"

namespace safeops {

inline constexpr std::size_t kMaxKeptDims = 6;
inline constexpr std::size_t kMaxOperands = 4;
/// The operand number of a mask.
inline constexpr std::size_t kMaskOperand = 3;

/// How the rows of the operands lie in memory. Kept dims are listed in logical (row-major) order,
/// so that row r is the r-th index over them; strides and steps count elements. What `kind`
/// promises holds for inputs and output; a mask may have any strides, 0 where it is broadcast.
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

/// How operands are stored that are staged: copied, converted and masked, to a scratch of float32
/// or float64 before a row program sees them, and back (docs/architecture.md, section 4).
struct Storage {
  Element input[2] = {Element::float32, Element::float32};
  Element output = Element::float32;  ///< operands that do not exist repeat that of input 0
  const bool* mask = nullptr;         ///< true: the element takes part; null: all do
  double masked_input[2] = {};        ///< what stands for an element that takes no part
  double masked_output = 0;
  /// Whether a row that the policy fills with NaN is filled as a whole, masked elements included.
  bool nan_fill_covers_masked = false;
};

/// One call of a row kernel. Operand numbers of the layout: inputs first, the output after them (so
/// 0, 1 or 0, 1, 2), the mask at kMaskOperand. The output may be an input of the same element type:
/// every row is read completely before any of it is written.
struct RowArguments {
  RowLayout layout;
  Element element =
      Element::float32;  ///< of the operands; of the arithmetic, where they are staged
  Storage storage;       ///< read by programs that stage their operands
  const void* input[2] = {};
  void* output = nullptr;         ///< null: inspect only, nothing is written
  const double* saved = nullptr;  ///< one value per row, from forward
  /// One value per row: the incoming gradient of an operator whose result is one value per row.
  const double* row_gradient = nullptr;
  double* save = nullptr;  ///< one value per row, for backward; may be null
  bool streams = false;    ///< the output is too large for the cache: store past it
  Resolution policy;
};

/// Whether the operands of a program that stages are anything but plain arrays of its arithmetic.
inline bool is_staged(const RowArguments& arguments) {
  const Storage& storage = arguments.storage;
  return storage.mask != nullptr || storage.input[0] != arguments.element ||
         storage.input[1] != arguments.element || storage.output != arguments.element;
}

}  // namespace safeops
