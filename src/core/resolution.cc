#include "core/resolution.h"

#include <cmath>
#include <limits>

#include "core/float_environment.h"

namespace safeops {
namespace {

// 1 over the largest finite number of the dtype. For float64 the smallest number whose reciprocal
// is finite: it is subnormal, and 1 / max, which rounds to 2^-1024, is just too small.
double smallest_reciprocal(Element element) {
  switch (element) {
    case Element::float16:
      return 1 / 65504.0;
    case Element::bfloat16:
      return 1 / 0x1.fep127;
    case Element::float32:
      return 1 / 0x1.fffffep127;
    case Element::float64:
      break;
  }
  return 0x1.0000000000004p-1024;
}

double smallest_usable(AtFloor at_floor, Element element) {
  const double reciprocal = smallest_reciprocal(element);
  switch (at_floor) {
    case AtFloor::reciprocal:
      return reciprocal;
    case AtFloor::reciprocal_root:
      // In float64 the root of every number above 0 has a reciprocal.
      if (element != Element::float64) return reciprocal * reciprocal;
      break;
    case AtFloor::finite:
      break;
  }
  return std::numeric_limits<double>::denorm_min();
}

}  // namespace

ResolvedEps resolve_eps(Policy policy, std::optional<double> eps, double stock_eps, Element element,
                        AtFloor at_floor) {
  if (!eps) {
    if (policy == Policy::stock) return {stock_eps};
    // 1 / 1e-12 overflows float16; 2^-14 is its smallest normal number.
    if (policy == Policy::epsilon) return {element == Element::float16 ? 0x1p-14 : 1e-12};
    return {0};
  }
  if (!std::isfinite(*eps) || *eps < 0) return {0, ResolvedEps::Refusal::not_finite_or_negative};
  // A caller that flushes to zero would find every subnormal eps large enough.
  const FloatEnvironment environment;
  const double smallest = smallest_usable(at_floor, element);
  if (policy == Policy::epsilon && !(*eps >= smallest)) {
    return {0, ResolvedEps::Refusal::too_small, smallest};
  }
  return {*eps + 0.0};  // -0.0 would turn the sign of g / 0
}

Resolution resolve(Policy policy, double eps, bool backward) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  switch (policy) {
    case Policy::stock:
    case Policy::epsilon:
      return {eps, eps, 0, false};
    case Policy::nan:
      return {eps, 0, kNan, true};
    case Policy::zero:
      return {eps, 0, 0, true};
    case Policy::raise:
      break;
  }
  return {eps, 0, backward ? 0 : kNan, true};
}

}  // namespace safeops
