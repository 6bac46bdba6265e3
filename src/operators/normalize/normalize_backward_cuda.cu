#define SAFEOPS_CUDA

#include "core/run_rows_cuda.h"
#include "operators/normalize/normalize.h"
#include "operators/normalize/normalize_math.h"

SAFEOPS_BEGIN_LANES

template <NormOrder kOrder>
struct NormalizeBackward {
  // The largest gradient of a singular row, and <g, y>; of float64 also the norm again, the largest
  // gradient and <g, y> at its scale; of p = inf the ties.
  template <class Stored>
  static constexpr int kReductions = (Stored::kElement == Element::float64 ? 5 : 2) +
                                     (kOrder == NormOrder::infinity ? 1 : 0);

  template <class Row>
  SAFEOPS_INLINE void operator()(Row& row, const Resolution& policy) const {
    normalize_backward_row<kOrder>(row, policy);
  }
};

template <class E>
CudaStatus run_backward(const RowArguments& arguments, NormOrder order, const CudaLaunch& launch) {
  using Operands = RowOperands<E, 2, /*kMayBeStaged=*/false>;
  switch (order) {
    case NormOrder::one:
      return run_rows<NormalizeBackward<NormOrder::one>, Operands, Coverage::lean>(arguments,
                                                                                   launch);
    case NormOrder::two:
      return run_rows<NormalizeBackward<NormOrder::two>, Operands, Coverage::full>(arguments,
                                                                                   launch);
    case NormOrder::infinity:
      break;
  }
  return run_rows<NormalizeBackward<NormOrder::infinity>, Operands, Coverage::lean>(arguments,
                                                                                    launch);
}

SAFEOPS_END_LANES

namespace safeops {

CudaStatus normalize_backward_cuda(const RowArguments& arguments, NormOrder order,
                                   const CudaLaunch& launch) {
  return with_element(arguments.element, [&](auto e) {
    return device::run_backward<decltype(e)>(arguments, order, launch);
  });
}

const bool normalize_backward_is_ready = normalize_backward_on_cuda.bring(normalize_backward_cuda);

}  // namespace safeops
