#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cases/rows.h"

namespace safeops::cases {

/// The input of one run, read front to back; zeros follow its end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::size_t below(std::size_t bound) { return next() % bound; }
  std::uint64_t word(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{next()} << (8 * i);
    return value;
  }
  bool empty() const { return at_ >= size_; }

 private:
  std::uint8_t next() { return empty() ? 0 : data_[at_++]; }

  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

/// Elements past the end of the input repeat what was read, so that few bytes reach long rows.
inline Rows read_rows(Bytes& bytes, Element element, std::size_t rows, std::size_t length) {
  Rows result(element, rows, length);
  std::size_t read = 0;
  for (std::size_t i = 0; i < result.bits.size(); ++i) {
    if (!bytes.empty()) {
      result.bits[i] = bytes.word(format(element).bytes);
      ++read;
    } else if (read != 0) {
      result.bits[i] = result.bits[i % read];
    }
  }
  return result;
}

[[noreturn]] inline void stop(const std::string& where, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", where.c_str(), what.c_str());
  std::abort();
}

}  // namespace safeops::cases
