#define SAFEOPS_HIGHWAY

#include "core/run_elements.h"
#include "operators/division/division.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/division/division_forward_cpu.cc"
// Must come before anything that includes highway.h.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/walk_elements_highway-inl.h"
#include "operators/division/division_math.h"

SAFEOPS_BEGIN_LANES

template <class Real, class E>
using Quotient = QuotientForward<Real, E, DivisionKind::quotient>;
template <class Real, class E>
using Truncated = QuotientForward<Real, E, DivisionKind::truncated>;
template <class Real, class E>
using Floored = QuotientForward<Real, E, DivisionKind::floored>;
template <class Real, class E>
using Rsqrt = UnaryForward<Real, E, DivisionKind::rsqrt>;
template <class Real, class E>
using Sqrt = UnaryForward<Real, E, DivisionKind::sqrt>;
template <class Real, class E>
using Log = UnaryForward<Real, E, DivisionKind::log>;

ElementKernel division_forward_kernel(Element element, DivisionKind kind) {
  switch (kind) {
    case DivisionKind::quotient:
      return element_kernel<Quotient>(element);
    case DivisionKind::truncated:
      return element_kernel<Truncated>(element);
    case DivisionKind::floored:
      return element_kernel<Floored>(element);
    case DivisionKind::rsqrt:
      return element_kernel<Rsqrt>(element);
    case DivisionKind::sqrt:
      return element_kernel<Sqrt>(element);
    case DivisionKind::log:
      break;
  }
  return element_kernel<Log>(element);
}

SAFEOPS_END_LANES

#if HWY_ONCE
namespace safeops {

HWY_EXPORT(division_forward_kernel);

void division_forward(const ElementArguments& arguments, DivisionKind kind, Executor& executor,
                      Hits& hits) {
  run_forward(arguments, HWY_DYNAMIC_DISPATCH(division_forward_kernel)(arguments.element, kind),
              executor, hits);
}

}  // namespace safeops
#endif
