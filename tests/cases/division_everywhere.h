#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases/division_check.h"
#include "cases/fused_multiply_add.h"
#include "core/simd_target.h"

namespace safeops::cases {

/// Puts the best target back whatever a test does.
class EveryTarget : public ::testing::Test {
 protected:
  void TearDown() override { use_target(0); }
};

/// Runs a call on every SIMD target. Targets that are alike must give the same bits, and `check`
/// must be content with what each gives.
template <class Check>
Report on_every_target(const Inputs& inputs, const DivisionTrial& trial, const Check& check) {
  Report report;
  std::vector<std::pair<bool, DivisionOutcome>> seen;
  for (const std::int64_t target : supported_targets()) {
    use_target(target);
    const bool fused = has_fused_multiply_add(target);
    const DivisionOutcome outcome = divide(inputs, trial);
    bool known = false;
    for (const auto& [earlier_fused, earlier] : seen) {
      const std::string differs = difference(outcome, earlier);
      known |= differs.empty();
      if (fused == earlier_fused && !differs.empty())
        report.fail(std::string(target_name(target)) +
                    " gives not the bits of another target: " + differs + "; " + spelled(trial));
    }
    if (known) continue;
    Report found = check(inputs, outcome, trial);
    if (!found.good()) found.failure = std::string(target_name(target)) + ": " + found.failure;
    report.merge(found);
    seen.emplace_back(fused, outcome);
  }
  use_target(0);
  return report;
}

inline Report check_everywhere(const Inputs& inputs, const DivisionTrial& trial) {
  return on_every_target(inputs, trial, check_division);
}

/// Whether the binding refuses the eps of a call.
inline bool is_refused(const DivisionTrial& trial, Element element) {
  if (trial.policy != Policy::epsilon || !trial.eps) return false;
  const double eps = *trial.eps, most = largest(element);
  if (eps == 0) return true;
  if (has_divisor(trial.kind)) return 1 / eps > most;
  return trial.kind == DivisionKind::rsqrt && 1 / std::sqrt(eps) > most;
}

/// None, exactly zero, below the normal range, a number of no format, one of every format, a large
/// one.
inline std::vector<std::optional<double>> eps_choices(Element element) {
  return {std::nullopt, 0.0, smallest_normal(element) / 5, 1e-3, 0.125, 3e4};
}

/// Calls body(trial) for every kind, direction, policy and eps that a binding lets through.
template <class Body>
void for_every_call(Element element, const Body& body) {
  for (const DivisionKind kind : kDivisionKinds) {
    for (const bool backward : {false, true}) {
      for (const Policy policy : kAllPolicies) {
        for (const std::optional<double>& eps : eps_choices(element)) {
          DivisionTrial trial;
          trial.kind = kind;
          trial.backward = backward;
          trial.policy = policy;
          trial.eps = eps;
          if (is_refused(trial, element)) continue;
          body(trial);
          ASSERT_FALSE(::testing::Test::HasFailure()) << name(element) << ' ' << spelled(trial);
        }
      }
    }
  }
}

}  // namespace safeops::cases
