#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "safeops/export.h"

namespace safeops {

/// What an operator does at a singular point, in value and in gradient.
///
/// | policy  | value                           | gradient                              |
/// |---------|---------------------------------|---------------------------------------|
/// | stock   | what PyTorch documents          | exact derivative of that              |
/// | nan     | NaN over the singular row       | NaN                                   |
/// | epsilon | the denominator is floored      | exact derivative of the floored form  |
/// | zero    | the neutral value               | exactly 0, at every order             |
/// | raise   | nothing: an error is thrown     | the same                              |
///
/// A policy never changes a bit of a regular row.
enum class Policy : std::uint8_t { stock, nan, epsilon, zero, raise };

inline constexpr int kPolicies = 5;

/// The spelling used in schemas, messages and documents.
SAFEOPS_EXPORT std::string_view name(Policy policy);

/// The policy of that name; nothing for any other text, the empty one included.
SAFEOPS_EXPORT std::optional<Policy> parse_policy(std::string_view text);

/// Sets the policy of C++ calls that name none, on this thread, until the guard is destroyed.
/// Guards nest. Backward passes are not affected: a node keeps the policy of its forward call.
class SAFEOPS_EXPORT PolicyGuard {
 public:
  explicit PolicyGuard(Policy policy);
  ~PolicyGuard();
  PolicyGuard(const PolicyGuard&) = delete;
  PolicyGuard& operator=(const PolicyGuard&) = delete;

  /// The policy of the innermost guard on this thread, if there is one.
  static std::optional<Policy> current();

 private:
  std::optional<Policy> outer_;
};

}  // namespace safeops
