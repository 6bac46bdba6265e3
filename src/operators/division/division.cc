#include "operators/division/division.h"

#include <cmath>
#include <limits>

#include "core/float_environment.h"

namespace safeops {
namespace {

// A constant, for those whose argument is one number.
double floored_value(DivisionKind kind, double eps) {
  switch (kind) {
    case DivisionKind::rsqrt:
      return 1 / std::sqrt(eps);
    case DivisionKind::sqrt:
      return std::sqrt(eps);
    case DivisionKind::log:
      return std::log(eps);
    default:
      return 0;
  }
}

}  // namespace

constinit CudaKernel<ElementArguments, DivisionKind> division_forward_on_cuda,
    division_backward_on_cuda;

Resolution resolve_element(Policy policy, DivisionKind kind, double eps, bool backward) {
  // Stock has no floor: eps only says what is counted.
  if (policy == Policy::stock) return {eps, 0, 0, false};
  Resolution resolution = resolve(policy, eps, backward);
  if (policy == Policy::epsilon && kind != DivisionKind::quotient) {
    // A caller that flushes to zero would find the root of a subnormal eps to be 0.
    const FloatEnvironment environment;
    const bool divides = kind == DivisionKind::truncated || kind == DivisionKind::floored;
    resolution.fills = backward || !divides;
    resolution.fill = backward ? 0 : floored_value(kind, eps);
  }
  return resolution;
}

}  // namespace safeops
