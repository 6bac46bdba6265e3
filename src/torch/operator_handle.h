#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>

#include "safeops/policy.h"

namespace safeops {

/// The operator of that name; a search, so callers keep what it returns.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

/// The policy argument of a call from C++: its own, else the guard's, else "", nobody's choice.
inline std::string_view policy_argument(std::optional<Policy> policy) {
  if (!policy) policy = PolicyGuard::current();
  return policy ? name(*policy) : std::string_view();
}

}  // namespace safeops
