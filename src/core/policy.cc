#include "safeops/policy.h"

#include <array>

namespace safeops {
namespace {

constexpr std::array<std::string_view, kPolicies> kNames = {"stock", "nan", "epsilon", "zero",
                                                            "raise"};
thread_local std::optional<Policy> innermost;

}  // namespace

std::string_view name(Policy policy) { return kNames[static_cast<std::size_t>(policy)]; }

std::optional<Policy> parse_policy(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<Policy>(i);
  }
  return std::nullopt;
}

PolicyGuard::PolicyGuard(Policy policy) : outer_(innermost) { innermost = policy; }
PolicyGuard::~PolicyGuard() { innermost = outer_; }
std::optional<Policy> PolicyGuard::current() { return innermost; }

}  // namespace safeops
