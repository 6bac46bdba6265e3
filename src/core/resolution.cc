#include "core/resolution.h"

#include <cmath>
#include <limits>

namespace safeops {
namespace {

// The largest finite value of the dtype, the bound on 1 / eps.
double largest(Element element) {
  switch (element) {
    case Element::float16:
      return 65504;
    case Element::bfloat16:
      return 0x1.fep127;
    case Element::float32:
      return std::numeric_limits<float>::max();
    case Element::float64:
      break;
  }
  return std::numeric_limits<double>::max();
}

}  // namespace

ResolvedEps resolve_eps(Policy policy, std::optional<double> eps, double stock_eps,
                        Element element) {
  if (!eps) {
    if (policy == Policy::stock) return {stock_eps};
    // 1 / 1e-12 overflows float16; 2^-14 is its smallest normal number.
    if (policy == Policy::epsilon) return {element == Element::float16 ? 0x1p-14 : 1e-12};
    return {0};
  }
  if (!std::isfinite(*eps) || *eps < 0) return {0, ResolvedEps::Refusal::not_finite_or_negative};
  double smallest = 1 / largest(element);
  // 1 / max is subnormal for float64, and its own reciprocal overflows.
  while (1 / smallest > largest(element)) smallest = std::nextafter(smallest, 1.0);
  if (policy == Policy::epsilon && !(*eps >= smallest)) {
    return {0, ResolvedEps::Refusal::reciprocal_overflows, smallest};
  }
  return {*eps};
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
