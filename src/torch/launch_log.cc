#include "torch/launch_log.h"

namespace safeops {

std::uint64_t LaunchLog::add(const safeops_hit& launch, bool captured) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t serial = ++added_;
  if (captured) {
    captured_.emplace(serial, launch);
  } else {
    if (recent_.empty()) recent_.resize(kKept);
    recent_[serial % kKept] = {serial, launch};
  }
  return serial;
}

std::optional<safeops_hit> LaunchLog::find(std::uint64_t serial) const {
  const std::lock_guard lock(mutex_);
  if (!recent_.empty()) {
    const Numbered& candidate = recent_[serial % kKept];
    if (candidate.serial == serial) return candidate.launch;
  }
  const auto found = captured_.find(serial);
  if (found == captured_.end()) return std::nullopt;
  return found->second;
}

}  // namespace safeops
