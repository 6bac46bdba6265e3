#pragma once

#include <cstdint>
#include <vector>

namespace safeops {

/// The SIMD targets that were compiled and that this processor has, best first. For tests and
/// fuzzing.
std::vector<std::int64_t> supported_targets();
const char* target_name(std::int64_t target);
/// Makes every later kernel of this process run on one target; 0 restores the best.
void use_target(std::int64_t target);
/// The target in use.
std::int64_t current_target();

}  // namespace safeops
