#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cases/element_format.h"
#include "core/row_layout.h"

namespace safeops::cases {

/// Rows as the caller means them, whatever the memory looks like.
struct Rows {
  Element element = Element::float32;
  std::size_t rows = 0;
  std::size_t length = 0;
  std::vector<std::uint64_t> bits;

  Rows() = default;
  Rows(Element of, std::size_t count, std::size_t each)
      : element(of), rows(count), length(each), bits(count * each) {}

  double at(std::size_t row, std::size_t i) const {
    return decode(element, bits[row * length + i]);
  }
  void set(std::size_t row, std::size_t i, double value) {
    bits[row * length + i] = encode(element, value);
  }

  Rows row(std::size_t index) const {
    Rows one(element, 1, length);
    std::copy_n(bits.begin() + static_cast<std::ptrdiff_t>(index * length), length,
                one.bits.begin());
    return one;
  }
  bool row_is_zero(std::size_t row) const {
    for (std::size_t i = 0; i < length; ++i) {
      if (at(row, i) != 0) return false;
    }
    return true;
  }
  bool same_row(std::size_t row, const Rows& other, std::size_t other_row) const {
    return std::equal(bits.begin() + static_cast<std::ptrdiff_t>(row * length),
                      bits.begin() + static_cast<std::ptrdiff_t>((row + 1) * length),
                      other.bits.begin() + static_cast<std::ptrdiff_t>(other_row * length));
  }
  friend bool operator==(const Rows&, const Rows&) = default;
};

/// The rows with every NaN in one spelling: no contract speaks about its sign and payload.
inline Rows canonical(Rows rows) {
  const std::uint64_t quiet = encode(rows.element, std::numeric_limits<double>::quiet_NaN());
  for (std::uint64_t& bits : rows.bits) {
    if (is_nan(rows.element, bits)) bits = quiet;
  }
  return rows;
}

/// The start of a row for a failure message, in a spelling that can be pasted back.
inline std::string describe(const Rows& rows, std::size_t row) {
  std::string text = std::string(name(rows.element)) + "[" + std::to_string(rows.length) + "] {";
  for (std::size_t i = 0; i < std::min<std::size_t>(rows.length, 6); ++i) {
    char number[40];
    std::snprintf(number, sizeof number, "%s%a", i == 0 ? "" : ", ", rows.at(row, i));
    text += number;
  }
  return text + (rows.length > 6 ? ", ...}" : "}");
}

/// How the rows of one operand lie in memory.
struct Arrangement {
  RowLayout::Kind kind = RowLayout::Kind::contiguous;
  std::vector<std::size_t> kept;  ///< sizes of the kept dims; empty: one dim that holds all rows
  std::size_t gap = 0;          ///< elements that belong to no row, wherever the layout allows some
  std::size_t shift = 0;        ///< elements by which the first row misses 64-byte alignment
  bool reversed = false;        ///< the first kept dim lies innermost of those that may
  bool step_outermost = false;  ///< side_by_side: one element of all rows, then the next
  bool repeated = false;  ///< stride 0 in the first kept dim; for inputs whose rows agree along it
};

inline std::vector<std::size_t> kept_sizes(const Arrangement& arrangement, std::size_t rows) {
  return arrangement.kept.empty() ? std::vector<std::size_t>{rows} : arrangement.kept;
}

inline RowLayout::Strides strides(const Arrangement& arrangement, std::size_t rows,
                                  std::size_t length) {
  const std::vector<std::size_t> kept = kept_sizes(arrangement, rows);
  const bool side_by_side = arrangement.kind == RowLayout::Kind::side_by_side;
  RowLayout::Strides result;
  std::size_t extent = length + arrangement.gap;
  std::size_t free_dims = kept.size();
  if (side_by_side) {
    result.kept[--free_dims] = 1;
    extent = kept.back() + arrangement.gap;
    if (!arrangement.step_outermost) {
      result.step = static_cast<std::ptrdiff_t>(extent);
      extent = extent * length + arrangement.gap;
    }
  }
  for (std::size_t k = 0; k < free_dims; ++k) {
    const std::size_t d = arrangement.reversed ? k : free_dims - 1 - k;
    if (d == 0 && arrangement.repeated) continue;
    result.kept[d] = static_cast<std::ptrdiff_t>(extent);
    extent = extent * kept[d] + arrangement.gap;
  }
  if (side_by_side && arrangement.step_outermost) result.step = static_cast<std::ptrdiff_t>(extent);
  return result;
}

/// A layout whose operands are arranged as listed.
inline RowLayout layout_of(std::size_t rows, std::size_t length,
                           std::initializer_list<const Arrangement*> operands) {
  RowLayout layout;
  const Arrangement& first = **operands.begin();
  const std::vector<std::size_t> kept = kept_sizes(first, rows);
  layout.kind = first.kind;
  layout.rows = rows;
  layout.length = length;
  layout.kept_dims = kept.size();
  std::copy(kept.begin(), kept.end(), layout.kept_size);
  RowLayout::Strides* out = layout.operand;
  for (const Arrangement* arrangement : operands) *out++ = strides(*arrangement, rows, length);
  return layout;
}

/// Memory of one operand: exactly as long as the rows need, so that a sanitizer sees every step
/// past its end, and full of NaN patterns where no row lies, so that a kernel that reads there
/// gives itself away.
class Operand {
 public:
  /// `parts` is 2 for complex elements, of which `rows.length` counts the parts.
  Operand(const Rows& rows, const Arrangement& arrangement, std::size_t parts = 1)
      : rows_(rows.rows), length_(rows.length / parts), parts_(parts), element_(rows.element) {
    layout_ = layout_of(rows_, length_, {&arrangement});
    std::size_t end = 0;
    for (std::size_t r = 0; r < rows_ && length_ != 0; ++r)
      end = std::max(end, place(r, length_ - 1, parts_ - 1) + 1);
    const std::size_t width = format(element_).bytes;
    shift_ = arrangement.shift * width;
    size_ = shift_ + end * width;
    memory_.reset(static_cast<unsigned char*>(::operator new(size_, kAlignment)));
    std::memset(memory_.get(), kJunk, size_);
    belongs_.assign(size_, false);
    scatter(rows);
  }

  void* data() { return memory_.get() + shift_; }

  /// What the rows hold now.
  Rows gather() const {
    Rows rows(element_, rows_, length_ * parts_);
    visit([&](std::size_t index, const unsigned char* at) {
      std::memcpy(&rows.bits[index], at, format(element_).bytes);
    });
    return canonical(std::move(rows));
  }

  /// Bytes outside all rows that no longer hold what they were filled with.
  std::size_t disturbed() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < size_; ++i)
      count += !belongs_[i] && memory_.get()[i] != kJunk ? 1 : 0;
    return count;
  }

 private:
  static constexpr unsigned char kJunk = 0xFF;  // all ones is NaN in every format
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(unsigned char* memory) const { ::operator delete(memory, kAlignment); }
  };

  std::size_t place(std::size_t row, std::size_t i, std::size_t part) const {
    const std::ptrdiff_t element =
        layout_.offset(0, row) + static_cast<std::ptrdiff_t>(i) * layout_.operand[0].step;
    return static_cast<std::size_t>(element) * parts_ + part;
  }

  template <class Body>
  void visit(const Body& body) const {
    const std::size_t width = format(element_).bytes;
    std::size_t index = 0;
    for (std::size_t r = 0; r < rows_; ++r) {
      const std::size_t start =
          shift_ + static_cast<std::size_t>(layout_.offset(0, r)) * parts_ * width;
      const std::size_t step = static_cast<std::size_t>(layout_.operand[0].step) * parts_ * width;
      for (std::size_t i = 0; i < length_; ++i) {
        for (std::size_t part = 0; part < parts_; ++part) {
          body(index++, memory_.get() + start + i * step + part * width);
        }
      }
    }
  }

  void scatter(const Rows& rows) {
    const std::size_t width = format(element_).bytes;
    visit([&](std::size_t index, unsigned char* at) {
      std::memcpy(at, &rows.bits[index], width);
      std::fill_n(belongs_.begin() + (at - memory_.get()), width, true);
    });
  }

  std::size_t rows_, length_, parts_;
  Element element_;
  RowLayout layout_;
  std::size_t shift_ = 0;
  std::size_t size_ = 0;
  std::unique_ptr<unsigned char, Free> memory_;
  std::vector<bool> belongs_;
};

}  // namespace safeops::cases
