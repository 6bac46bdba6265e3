#define SAFEOPS_CUDA

#include "core/run_rows_cuda.h"
#include "operators/softmax/softmax.h"
#include "operators/softmax/softmax_math.h"

SAFEOPS_BEGIN_LANES

template <SoftmaxKind kKind>
struct SoftmaxForward {
  // The mass of the row.
  template <class Stored>
  static constexpr int kReductions = 1;

  template <class Row>
  SAFEOPS_INLINE void operator()(Row& row, const Resolution& policy) const {
    if constexpr (kKind == SoftmaxKind::softmax) {
      softmax_forward_row(row, policy);
    } else if constexpr (kKind == SoftmaxKind::log_softmax) {
      log_softmax_forward_row(row, policy);
    } else {
      logsumexp_forward_row(row, policy);
    }
  }
};

// A half type in gives the same type, or float32.
template <class E>
bool is_result_of(Element output) {
  return output == ElementTraits<E>::kElement ||
         (ElementTraits<E>::kHalf && output == Element::float32);
}

template <class E>
CudaStatus run_forward(const RowArguments& arguments, SoftmaxKind kind, const CudaLaunch& launch) {
  using Operands = RowOperands<E, 1, /*kMayBeStaged=*/true>;
  if (!is_result_of<E>(arguments.storage.output)) return cudaErrorInvalidValue;
  switch (kind) {
    case SoftmaxKind::softmax:
      return run_rows<SoftmaxForward<SoftmaxKind::softmax>, Operands, Coverage::full>(arguments,
                                                                                      launch);
    case SoftmaxKind::log_softmax:
      return run_rows<SoftmaxForward<SoftmaxKind::log_softmax>, Operands, Coverage::full>(arguments,
                                                                                          launch);
    case SoftmaxKind::logsumexp:
      break;
  }
  return run_rows<SoftmaxForward<SoftmaxKind::logsumexp>, Operands, Coverage::full>(arguments,
                                                                                    launch);
}

SAFEOPS_END_LANES

namespace safeops {

CudaStatus softmax_forward_cuda(const RowArguments& arguments, SoftmaxKind kind,
                                const CudaLaunch& launch) {
  return with_element(arguments.storage.input[0], [&](auto e) {
    return device::run_forward<decltype(e)>(arguments, kind, launch);
  });
}

const bool softmax_forward_is_ready = softmax_forward_on_cuda.bring(softmax_forward_cuda);

}  // namespace safeops
