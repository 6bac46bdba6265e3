#pragma once

#include <cstddef>
#include <vector>

#include "cases/random_rows.h"
#include "cuda/device.h"

namespace safeops::cases {

/// Around every edge of the walks of a device: vectors, groups of lanes, warps, slices of 8192,
/// what fits in shared memory and what does not.
inline std::vector<std::size_t> row_lengths() {
  if (!kThorough) return {1, 3, 4, 5, 33, 257, 1000, 2049, 8193, 16385};
  std::vector<std::size_t> result;
  for (std::size_t i = 1; i <= 17; ++i) result.push_back(i);
  for (std::size_t edge = 32; edge <= 8192; edge *= 2) {
    for (const std::size_t length : {edge - 1, edge, edge + 1}) result.push_back(length);
  }
  for (const std::size_t length : {1000, 16385, 70000}) result.push_back(length);
  return result;
}

/// One length for each walk.
inline const std::vector<std::size_t> kWalkLengths = {2, 7, 40, 256, 1000, 2050, 8191, 20000};

/// Few rows where they are long, so that a call stays short.
inline std::size_t rows_of(std::size_t length, Random& random) {
  const std::size_t most = kThorough ? 40 : 9;
  return 1 + random.below(length > 5000 ? 3 : length > 600 ? 9 : most);
}

/// Ways to lay out an operand of `rows` rows.
inline std::vector<Arrangement> row_arrangements(RowLayout::Kind kind) {
  Arrangement dense;
  dense.kind = kind;
  Arrangement odd = dense, aligned = dense, stepped = dense;
  odd.shift = 1;
  odd.gap = 1;
  aligned.gap = 8;
  stepped.gap = 3;
  stepped.step_outermost = true;
  if (kind == RowLayout::Kind::contiguous) return {dense, odd, aligned};
  return {dense, odd, stepped};
}

/// Whether threads meet at a barrier so often that a call takes seconds.
inline bool is_slow(RowLayout::Kind kind, std::size_t length) {
  return kind == RowLayout::Kind::side_by_side && length > 20000;
}

/// Calls body(arrangement, length) for every layout and length.
template <class Body>
void for_every_layout(const Body& body) {
  for (const std::size_t length : row_lengths()) {
    for (const RowLayout::Kind kind :
         {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side}) {
      for (const Arrangement& arrangement : row_arrangements(kind)) {
        if (is_slow(kind, length) && arrangement.gap != 0) continue;
        body(arrangement, length);
        ASSERT_FALSE(::testing::Test::HasFailure())
            << length << " elements, kind " << static_cast<int>(kind) << ", gap " << arrangement.gap
            << ", shift " << arrangement.shift;
      }
    }
  }
}

/// Devices on which calls take other ways: rows that do not fit in a block, many or few blocks.
inline std::vector<Device> devices() {
  std::vector<Device> result;
  for (const int multiprocessors : {1, 132}) {
    for (const std::size_t shared_memory : {16, 64, 227}) {
      Device device;
      device.multiprocessors = multiprocessors;
      device.shared_memory = shared_memory << 10;
      result.push_back(device);
    }
  }
  return result;
}

}  // namespace safeops::cases
