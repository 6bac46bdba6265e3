#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "cases/rows.h"

namespace safeops::cases {

/// Which elements of a call take part, whatever the memory looks like.
class Mask {
 public:
  Mask(std::size_t rows, std::size_t length, bool all)
      : length_(length), bits_(rows * length, all) {}

  bool at(std::size_t row, std::size_t i) const { return bits_[row * length_ + i]; }
  void set(std::size_t row, std::size_t i, bool takes_part) {
    bits_[row * length_ + i] = takes_part;
  }
  void set_row(std::size_t row, bool takes_part) {
    std::fill_n(bits_.begin() + static_cast<std::ptrdiff_t>(row * length_), length_, takes_part);
  }
  Mask row(std::size_t index) const {
    Mask one(1, length_, true);
    for (std::size_t i = 0; i < length_; ++i) one.set(0, i, at(index, i));
    return one;
  }
  std::size_t rows() const { return length_ == 0 ? 0 : bits_.size() / length_; }

 private:
  std::size_t length_;
  std::vector<bool> bits_;
};

/// No mask: everything takes part.
inline bool takes_part(const Mask* mask, std::size_t row, std::size_t i) {
  return mask == nullptr || mask->at(row, i);
}

/// How a mask lies in memory. Broadcasting is for masks that agree along what is broadcast.
struct MaskArrangement {
  bool same_along_rows = false;    ///< step 0
  bool same_for_all_rows = false;  ///< every kept stride 0
  bool same_along_first = false;   ///< stride 0 in the first kept dim
  bool transposed = false;         ///< neighbouring rows are neighbours in memory
  std::size_t stretch = 1;         ///< multiplies every stride
};

inline RowLayout::Strides strides(const MaskArrangement& arrangement,
                                  const std::vector<std::size_t>& kept, std::size_t length) {
  RowLayout::Strides result;
  std::size_t extent = arrangement.stretch * (arrangement.transposed ? 1 : length);
  for (std::size_t d = kept.size(); d-- > 0; extent *= kept[d])
    result.kept[d] = static_cast<std::ptrdiff_t>(extent);
  result.step = static_cast<std::ptrdiff_t>(arrangement.transposed ? extent : arrangement.stretch);
  if (arrangement.same_along_rows) result.step = 0;
  if (arrangement.same_along_first) result.kept[0] = 0;
  if (arrangement.same_for_all_rows) std::fill_n(result.kept, kept.size(), 0);
  return result;
}

/// The memory of a mask, exactly as long as it needs to be. Bytes between belong to no element.
class MaskMemory {
 public:
  /// `layout` has the strides of the mask at kMaskOperand.
  MaskMemory(const Mask& mask, const RowLayout& layout) {
    const std::ptrdiff_t step = layout.operand[kMaskOperand].step;
    const auto place = [&](std::size_t row, std::size_t i) {
      return static_cast<std::size_t>(layout.offset(kMaskOperand, row) +
                                      static_cast<std::ptrdiff_t>(i) * step);
    };
    std::size_t end = 0;
    for (std::size_t r = 0; r < layout.rows && layout.length != 0; ++r)
      end = std::max(end, place(r, layout.length - 1) + 1);
    memory_ = std::make_unique<bool[]>(end);
    for (std::size_t r = 0; r < layout.rows; ++r) {
      for (std::size_t i = 0; i < layout.length; ++i) memory_[place(r, i)] = mask.at(r, i);
    }
  }
  const bool* data() const { return memory_.get(); }

 private:
  std::unique_ptr<bool[]> memory_;
};

}  // namespace safeops::cases
