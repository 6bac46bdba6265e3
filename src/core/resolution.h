#pragma once

#include <cstdint>
#include <optional>

#include "safeops/policy.h"

namespace safeops {

/// How elements are stored. Complex tensors come as their real view.
enum class Element : std::uint8_t { float16, bfloat16, float32, float64 };

/// A policy as a kernel sees it. Singular means: exactly zero, or below `threshold`. A singular row
/// is filled with `fill` if `fills`; otherwise its denominator is raised to `floor`.
struct Resolution {
  double threshold = 0;
  double floor = 0;
  double fill = 0;
  bool fills = false;
};

/// What an operator makes of eps where its denominator or argument is raised to it: 1/eps (a
/// quotient, the gradient of a norm), 1/sqrt(eps), or what is finite for every eps above 0.
enum class AtFloor : std::uint8_t { reciprocal, reciprocal_root, finite };

/// The eps a call works with, or why its eps is refused.
struct ResolvedEps {
  enum class Refusal : std::uint8_t { none, not_finite_or_negative, too_small };
  double value = 0;
  Refusal refusal = Refusal::none;
  double smallest_usable = 0;  ///< set with too_small
};

/// eps=None means: `stock_eps` under stock; 1e-12 (float16: 2^-14) under epsilon; 0 otherwise.
/// Under epsilon what the operator makes of eps must be finite in the dtype, so that a floored row
/// cannot produce an infinite number out of a finite one of magnitude 1.
ResolvedEps resolve_eps(Policy policy, std::optional<double> eps, double stock_eps, Element element,
                        AtFloor at_floor = AtFloor::reciprocal);

/// `backward` decides the fill of `raise`: a forward result is discarded, a gradient at a row whose
/// incoming gradient is zero is kept and must be zero.
Resolution resolve(Policy policy, double eps, bool backward);

}  // namespace safeops
