#include "core/scratch.h"

#include <cstdlib>
#include <memory>
#include <new>

namespace safeops {
namespace {

struct Release {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

// Kept between calls: allocating it for every part of a call would cost more than the part when the
// allocator maps and unmaps pages.
void* thread_scratch(std::size_t bytes) {
  thread_local std::unique_ptr<void, Release> memory;
  thread_local std::size_t size = 0;
  if (size < bytes) {
    memory.reset();
    size = 0;
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    memory.reset(std::aligned_alloc(64, rounded));
    if (!memory) throw std::bad_alloc();
    size = rounded;
  }
  return memory.get();
}

}  // namespace safeops
