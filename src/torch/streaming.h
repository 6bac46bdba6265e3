#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>

namespace safeops {

/// Whether a kernel should store `output`, walked with these strides in bytes, past the cache. Such
/// stores save reading the lines that they overwrite. They pay from half a last-level cache on, and
/// only where runs begin and end with a line: one that two runs share would go to memory twice.
inline bool worth_streaming(const at::TensorBase& output, at::IntArrayRef strides) {
  constexpr std::size_t kBytes = std::size_t{1} << 24;
  constexpr std::int64_t kLine = 64;
  const auto element = static_cast<std::int64_t>(output.itemsize());
  return output.nbytes() >= kBytes &&
         std::all_of(strides.begin(), strides.end(),
                     [&](std::int64_t stride) { return stride == element || stride % kLine == 0; });
}

}  // namespace safeops
