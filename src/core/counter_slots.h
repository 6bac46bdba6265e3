#pragma once

#include <cstdint>

#include "safeops/diagnostics.h"

namespace safeops {

inline constexpr int kDirections = 2, kDevices = 2;
inline constexpr int kSlots = kOperators * kConditions * kDirections * kDevices;

/// One counter as its readers see it.
struct Standing {
  safeops_record record;  ///< since the last reset; its count may be 0
  std::uint64_t ever;     ///< as counted_ever
};

/// What the slot has counted since the process started. No reset sets it back, so a reader that
/// remembers it learns what is new, whoever resets meanwhile.
std::uint64_t counted_ever(int slot);

Standing standing(int slot);

/// Moves in every child of a fork, where the other threads of the parent do not exist.
std::uint64_t forks();

}  // namespace safeops
