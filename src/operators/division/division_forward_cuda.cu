#define SAFEOPS_CUDA

#include "core/run_elements_cuda.h"
#include "operators/division/division.h"
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

SAFEOPS_END_LANES

namespace safeops {
namespace {

template <template <class, class> class Cell>
CudaStatus run(const ElementArguments& arguments, const CudaLaunch& launch) {
  return device::run_elements<Cell, Direction::forward>(arguments, launch);
}

}  // namespace

CudaStatus division_forward_cuda(const ElementArguments& arguments, DivisionKind kind,
                                 const CudaLaunch& launch) {
  switch (kind) {
    case DivisionKind::quotient:
      return run<device::Quotient>(arguments, launch);
    case DivisionKind::truncated:
      return run<device::Truncated>(arguments, launch);
    case DivisionKind::floored:
      return run<device::Floored>(arguments, launch);
    case DivisionKind::rsqrt:
      return run<device::Rsqrt>(arguments, launch);
    case DivisionKind::sqrt:
      return run<device::Sqrt>(arguments, launch);
    case DivisionKind::log:
      break;
  }
  return run<device::Log>(arguments, launch);
}

const bool division_forward_is_ready = [] {
  division_forward_on_cuda.function = division_forward_cuda;
  return true;
}();

}  // namespace safeops
