#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>

#include "core/executor.h"
#include "core/float_environment.h"
#include "core/hits.h"

namespace safeops {

/// Calls body(begin, end, hits) for parts of [0, rows), each of about 16K elements and of `least`
/// rows, under the default floating-point environment, and merges what the parts met.
template <class Body>
void share_out(std::size_t rows, std::size_t length, Executor& executor, Hits& hits,
               const Body& body, std::size_t least = 1) {
  constexpr std::size_t kElementsPerPart = 16384, kRowsPerBatch = 16;
  const std::size_t wanted =
      std::max<std::size_t>(1, kElementsPerPart / std::max<std::size_t>(1, length));
  const std::size_t part = (wanted + kRowsPerBatch - 1) / kRowsPerBatch * kRowsPerBatch;
  const std::size_t rows_per_part =
      std::max(least, length >= kElementsPerPart / kRowsPerBatch ? wanted : part);
  struct Context {
    const Body& body;
    std::size_t rows, rows_per_part;
    Hits& hits;
    std::mutex merging;
  } context{body, rows, rows_per_part, hits, {}};
  const auto run = [](void* opaque, std::size_t begin, std::size_t end) {
    Context& shared = *static_cast<Context*>(opaque);
    const FloatEnvironment environment;
    Hits met;
    shared.body(begin * shared.rows_per_part, std::min(end * shared.rows_per_part, shared.rows),
                met);
    if (!met.any()) return;
    const std::lock_guard<std::mutex> lock(shared.merging);
    shared.hits.merge(met);
  };
  executor.run((rows + rows_per_part - 1) / rows_per_part, run, &context);
}

}  // namespace safeops
