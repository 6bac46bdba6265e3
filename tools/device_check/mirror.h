// A call whose arguments point to memory of the host, made on copies on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/element_arguments.h"
#include "core/row_layout.h"
#include "memory.h"

namespace safeops::device_check {

/// Copies in when memory is named, and back at the end what may have been written. Memory that is
/// named twice is one, as in an operation in place.
class Mirror {
 public:
  /// `raw`: scratch memory is left uninitialized. All else is copied in and so never is.
  explicit Mirror(bool raw) : raw_(raw) {}
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  ~Mirror() {
    for (auto& [host, copy] : copies_) release(copy.base);
    for (void* memory : scratch_) release(memory);
  }

  /// The place on the device of `host`, of which bytes [low, high) are touched. It misses the
  /// alignment of the widest access by as much as `host` does: what lies in front of it is no more.
  template <class T>
  T* place(T* host, std::ptrdiff_t low, std::ptrdiff_t high) {
    if (host == nullptr || low >= high) return host;
    auto* start = reinterpret_cast<unsigned char*>(const_cast<std::remove_const_t<T>*>(host)) + low;
    const auto bytes = static_cast<std::size_t>(high - low);
    const auto [entry, is_new] = copies_.try_emplace(start);
    Copy& copy = entry->second;
    if (is_new) {
      const std::size_t shift = reinterpret_cast<std::uintptr_t>(start) % kWidestAccess;
      copy.base = allocate(bytes + shift);
      copy.data = static_cast<unsigned char*>(copy.base) + shift;
      copy.bytes = bytes;
      copy_in(copy.data, start, bytes);
    }
    return reinterpret_cast<T*>(copy.data - low);
  }

  void bring_back() {
    for (const auto& [host, copy] : copies_) copy_out(host, copy.data, copy.bytes);
  }

  static void* allocate_scratch(void* self, std::size_t bytes) {
    auto& mirror = *static_cast<Mirror*>(self);
    return mirror.scratch_.emplace_back(allocate(bytes, !mirror.raw_));
  }

 private:
  static constexpr std::size_t kWidestAccess = 16;
  struct Copy {
    void* base = nullptr;
    unsigned char* data = nullptr;
    std::size_t bytes = 0;
  };
  bool raw_;
  std::map<unsigned char*, Copy> copies_;
  std::vector<void*> scratch_;
};

inline std::size_t width(Element element) {
  switch (element) {
    case Element::float16:
    case Element::bfloat16:
      return 2;
    case Element::float32:
      return 4;
    case Element::float64:
      break;
  }
  return 8;
}

/// Bytes that an operand of `layout` touches, from its first element on.
inline std::pair<std::ptrdiff_t, std::ptrdiff_t> extent(const RowLayout& layout, std::size_t which,
                                                        std::size_t element_width) {
  if (layout.rows == 0 || layout.length == 0) return {0, 0};
  const RowLayout::Strides& strides = layout.operand[which];
  std::ptrdiff_t low = 0, high = 0;
  const auto reach = [&](std::size_t size, std::ptrdiff_t stride) {
    const std::ptrdiff_t last = (static_cast<std::ptrdiff_t>(size) - 1) * stride;
    (last < 0 ? low : high) += last;
  };
  reach(layout.length, strides.step);
  for (std::size_t d = 0; d < layout.kept_dims; ++d) reach(layout.kept_size[d], strides.kept[d]);
  const auto bytes = static_cast<std::ptrdiff_t>(element_width);
  return {low * bytes, (high + 1) * bytes};
}

inline RowArguments on_device(RowArguments call, Mirror& mirror, bool staged) {
  const auto operand = [&](auto*& host, std::size_t which, Element element) {
    const auto [low, high] = extent(call.layout, which, width(element));
    host = mirror.place(static_cast<unsigned char*>(const_cast<void*>(host)), low, high);
  };
  const Storage& storage = call.storage;
  const std::size_t inputs = call.input[1] == nullptr ? 1 : 2;
  for (std::size_t k = 0; k < inputs; ++k)
    operand(call.input[k], k, staged ? storage.input[k] : call.element);
  operand(call.output, inputs, staged ? storage.output : call.element);
  if (storage.mask != nullptr) {
    const auto [low, high] = extent(call.layout, kMaskOperand, 1);
    call.storage.mask = mirror.place(storage.mask, low, high);
  }
  const auto per_row = static_cast<std::ptrdiff_t>(call.layout.rows * sizeof(double));
  call.saved = mirror.place(call.saved, 0, per_row);
  call.row_gradient = mirror.place(call.row_gradient, 0, per_row);
  call.save = mirror.place(call.save, 0, per_row);
  return call;
}

inline ElementArguments on_device(ElementArguments call, Mirror& mirror) {
  const auto operand = [&](ElementOperand& which) {
    if (which.data == nullptr) return;
    std::ptrdiff_t low = 0, high = 0;
    for (std::size_t d = 0; d < call.size.size(); ++d) {
      const std::ptrdiff_t last = (call.size[d] - 1) * which.stride[d];
      (last < 0 ? low : high) += last;
    }
    const auto bytes = static_cast<std::ptrdiff_t>(width(call.element));
    which.data = mirror.place(static_cast<unsigned char*>(which.data), low, high + bytes);
  };
  for (ElementOperand& input : call.input) operand(input);
  for (ElementOperand& output : call.output) operand(output);
  operand(call.numbered);
  return call;
}

}  // namespace safeops::device_check
