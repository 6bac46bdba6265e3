#define SAFEOPS_CUDA

#include "core/run_rows_cuda.h"
#include "operators/normalize/normalize.h"
#include "operators/normalize/normalize_math.h"

SAFEOPS_BEGIN_LANES

template <NormOrder kOrder>
struct NormalizeForward {
  // The norm; that of a float64 row outside the safe range once more.
  template <class Stored>
  static constexpr int kReductions = Stored::kElement == Element::float64 ? 2 : 1;

  template <class Row>
  SAFEOPS_INLINE void operator()(Row& row, const Resolution& policy) const {
    normalize_forward_row<kOrder>(row, policy);
  }
};

template <class E>
CudaStatus run_forward(const RowArguments& arguments, NormOrder order, const CudaLaunch& launch) {
  using Operands = RowOperands<E, 1, /*kMayBeStaged=*/false>;
  switch (order) {
    case NormOrder::one:
      return run_rows<NormalizeForward<NormOrder::one>, Operands, Coverage::lean>(arguments,
                                                                                  launch);
    case NormOrder::two:
      return run_rows<NormalizeForward<NormOrder::two>, Operands, Coverage::full>(arguments,
                                                                                  launch);
    case NormOrder::infinity:
      break;
  }
  return run_rows<NormalizeForward<NormOrder::infinity>, Operands, Coverage::lean>(arguments,
                                                                                   launch);
}

SAFEOPS_END_LANES

namespace safeops {

CudaStatus normalize_forward_cuda(const RowArguments& arguments, NormOrder order,
                                  const CudaLaunch& launch) {
  return with_element(arguments.element, [&](auto e) {
    return device::run_forward<decltype(e)>(arguments, order, launch);
  });
}

const bool normalize_forward_is_ready = normalize_forward_on_cuda.bring(normalize_forward_cuda);

}  // namespace safeops
