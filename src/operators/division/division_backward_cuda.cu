#define SAFEOPS_CUDA

#include "core/run_elements_cuda.h"
#include "operators/division/division.h"
#include "operators/division/division_math.h"

SAFEOPS_BEGIN_LANES

template <class Real, class E>
using Rsqrt = UnaryBackward<Real, E, DivisionKind::rsqrt>;
template <class Real, class E>
using Sqrt = UnaryBackward<Real, E, DivisionKind::sqrt>;
template <class Real, class E>
using Log = UnaryBackward<Real, E, DivisionKind::log>;

SAFEOPS_END_LANES

namespace safeops {
namespace {

template <template <class, class> class Cell>
CudaStatus run(const ElementArguments& arguments, const CudaLaunch& launch) {
  return device::run_elements<Cell, Direction::backward>(arguments, launch);
}

}  // namespace

CudaStatus division_backward_cuda(const ElementArguments& arguments, DivisionKind kind,
                                  const CudaLaunch& launch) {
  switch (kind) {
    case DivisionKind::quotient:
      return run<device::QuotientBackward>(arguments, launch);
    case DivisionKind::truncated:
    case DivisionKind::floored:
      return run<device::StepBackward>(arguments, launch);
    case DivisionKind::rsqrt:
      return run<device::Rsqrt>(arguments, launch);
    case DivisionKind::sqrt:
      return run<device::Sqrt>(arguments, launch);
    case DivisionKind::log:
      break;
  }
  return run<device::Log>(arguments, launch);
}

const bool division_backward_is_ready = [] {
  division_backward_on_cuda.function = division_backward_cuda;
  return true;
}();

}  // namespace safeops
