#pragma once

#include <cstddef>

namespace safeops {

/// At least that many bytes of this thread's own, aligned to 64. What was there before is lost with
/// the next call.
void* thread_scratch(std::size_t bytes);

}  // namespace safeops
