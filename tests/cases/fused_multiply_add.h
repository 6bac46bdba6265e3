#pragma once

#include <cstdint>
#include <string>

#include "core/simd_target.h"

namespace safeops::cases {

inline bool has_fused_multiply_add(std::int64_t target) {
  return std::string(target_name(target)).rfind("AVX", 0) == 0;
}

}  // namespace safeops::cases
