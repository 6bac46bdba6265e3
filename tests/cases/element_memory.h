#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace safeops::cases {

/// Sizes of dims, or dims by number. Elements are numbered row-major: the last dim varies fastest.
using Dims = std::vector<std::size_t>;

inline std::size_t product(const Dims& sizes) {
  std::size_t result = 1;
  for (const std::size_t size : sizes) result *= size;
  return result;
}

/// How an operand of an element-wise call lies in memory.
struct Placement {
  Dims order;            ///< dims from the outermost in memory to the innermost; empty: as they are
  Dims repeated;         ///< dims of stride 0; for inputs whose elements agree along them
  std::size_t step = 1;  ///< from one element to the next, in elements
  std::size_t gap = 0;   ///< elements that belong to nobody, at the end of every dim
  std::size_t shift = 0;  ///< elements by which the first one misses 64-byte alignment
  std::size_t guard =
      64;  ///< bytes behind the last element; with 0 AddressSanitizer sees what lies there
};

inline bool contains(const Dims& dims, std::size_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

/// In bytes, of elements of `width` bytes.
inline std::vector<std::int64_t> strides(const Placement& placement, const Dims& sizes,
                                         std::size_t width) {
  std::vector<std::int64_t> result(sizes.size(), 0);
  std::size_t extent = placement.step * width;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const std::size_t dim = placement.order.empty() ? i : placement.order[i];
    if (contains(placement.repeated, dim)) continue;
    result[dim] = static_cast<std::int64_t>(extent);
    extent = extent * sizes[dim] + placement.gap * width;
  }
  return result;
}

/// The index along every dim of the element of a number.
inline Dims indices(std::size_t number, const Dims& sizes) {
  Dims result(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0; number /= sizes[d]) result[d] = number % sizes[d];
  return result;
}

/// Makes elements agree along repeated dims. `bits` has `parts` patterns per element.
inline void repeat(std::vector<std::uint64_t>& bits, std::size_t parts, const Dims& sizes,
                   const Dims& repeated) {
  for (std::size_t i = 0; i < bits.size() / parts; ++i) {
    const Dims at = indices(i, sizes);
    std::size_t source = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      source = source * sizes[d] + (contains(repeated, d) ? 0 : at[d]);
    std::copy_n(bits.begin() + static_cast<std::ptrdiff_t>(source * parts), parts,
                bits.begin() + static_cast<std::ptrdiff_t>(i * parts));
  }
}

/// Memory of one operand, all ones where no element lies: NaN in every format, so that a kernel
/// that reads there gives itself away.
class ElementMemory {
 public:
  /// An element is `parts` numbers of `width` bytes each.
  ElementMemory(const std::vector<std::uint64_t>& bits, std::size_t width, std::size_t parts,
                Dims sizes, const Placement& placement)
      : width_(width),
        parts_(parts),
        sizes_(std::move(sizes)),
        strides_(cases::strides(placement, sizes_, width * parts)) {
    std::size_t end = 0;
    visit([&](std::size_t, std::size_t at) { end = std::max(end, at + width_ * parts_); });
    start_ = kAlignment + placement.shift * width * parts;
    size_ = start_ + end + placement.guard;
    memory_.reset(static_cast<unsigned char*>(
        ::operator new(size_, static_cast<std::align_val_t>(kAlignment))));
    std::memset(memory_.get(), kJunk, size_);
    belongs_.assign(size_, false);
    visit([&](std::size_t index, std::size_t at) {
      for (std::size_t part = 0; part < parts_; ++part)
        std::memcpy(memory_.get() + start_ + at + part * width_, &bits[index * parts_ + part],
                    width_);
      std::fill_n(belongs_.begin() + static_cast<std::ptrdiff_t>(start_ + at), width_ * parts_,
                  true);
    });
  }

  void* data() { return memory_.get() + start_; }
  const std::vector<std::int64_t>& strides() const { return strides_; }

  /// What the elements hold now.
  std::vector<std::uint64_t> gather() const {
    std::vector<std::uint64_t> bits(product(sizes_) * parts_, 0);
    visit([&](std::size_t index, std::size_t at) {
      for (std::size_t part = 0; part < parts_; ++part)
        std::memcpy(&bits[index * parts_ + part], memory_.get() + start_ + at + part * width_,
                    width_);
    });
    return bits;
  }

  /// Bytes of no element that no longer hold what they were filled with.
  std::size_t disturbed() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < size_; ++i)
      count += !belongs_[i] && memory_.get()[i] != kJunk ? 1 : 0;
    return count;
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr unsigned char kJunk = 0xFF;
  struct Free {
    void operator()(unsigned char* memory) const {
      ::operator delete(memory, static_cast<std::align_val_t>(kAlignment));
    }
  };

  /// Calls body(number, offset in bytes) for every element.
  template <class Body>
  void visit(const Body& body) const {
    const std::size_t elements = product(sizes_);
    Dims at(sizes_.size(), 0);
    std::size_t offset = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      body(i, offset);
      for (std::size_t d = sizes_.size(); d-- > 0;) {
        const auto stride = static_cast<std::size_t>(strides_[d]);
        offset += stride;
        if (++at[d] < sizes_[d]) break;
        offset -= stride * sizes_[d];
        at[d] = 0;
      }
    }
  }

  std::size_t width_, parts_;
  Dims sizes_;
  std::vector<std::int64_t> strides_;
  std::size_t start_ = 0;
  std::size_t size_ = 0;
  std::unique_ptr<unsigned char, Free> memory_;
  std::vector<bool> belongs_;
};

}  // namespace safeops::cases
