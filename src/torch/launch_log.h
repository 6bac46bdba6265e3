#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "safeops/diagnostics.h"

namespace safeops {

/// Remembers what the deferred calls under policy `raise` were, until their errors come.
class LaunchLog {
 public:
  /// Kept until so many later ones were added: more than a device has ever queued.
  static constexpr std::uint64_t kKept = 8192;

  /// Returns the number that find() knows it by. What is captured is kept for good, for a graph may
  /// be replayed at any time.
  std::uint64_t add(const safeops_hit& launch, bool captured);

  /// Nothing if it was added too long ago.
  std::optional<safeops_hit> find(std::uint64_t serial) const;

 private:
  struct Numbered {
    std::uint64_t serial = 0;
    safeops_hit launch = {};
  };
  mutable std::mutex mutex_;
  std::uint64_t added_ = 0;
  std::vector<Numbered> recent_;
  std::unordered_map<std::uint64_t, safeops_hit> captured_;
};

}  // namespace safeops
