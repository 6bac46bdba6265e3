#include "core/simd_target.h"

#include "hwy/highway.h"
#include "safeops/diagnostics.h"

namespace safeops {

std::vector<std::int64_t> supported_targets() {
  // Asked once, before use_target hides the others.
  static const std::int64_t all = hwy::SupportedTargets() & HWY_TARGETS;
  std::vector<std::int64_t> targets;
  for (std::int64_t left = all; left != 0; left &= left - 1) targets.push_back(left & -left);
  return targets;
}

const char* target_name(std::int64_t target) { return hwy::TargetName(target); }

void use_target(std::int64_t target) {
  supported_targets();
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::int64_t current_target() {
  const std::int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return usable & -usable;
}

}  // namespace safeops

const char* safeops_simd_target() { return safeops::target_name(safeops::current_target()); }
