#define SAFEOPS_CUDA

#include "core/run_rows_cuda.h"
#include "operators/softmax/softmax.h"
#include "operators/softmax/softmax_math.h"

SAFEOPS_BEGIN_LANES

template <SoftmaxKind kKind>
struct SoftmaxBackward {
  // The mass of the row; or the largest gradient of an empty row, the sum of g or g y, and that of
  // large numbers once more.
  template <class Stored>
  static constexpr int kReductions = kKind == SoftmaxKind::logsumexp ? 1 : 3;

  template <class Row>
  SAFEOPS_INLINE void operator()(Row& row, const Resolution& policy) const {
    if constexpr (kKind == SoftmaxKind::softmax) {
      softmax_backward_row(row, policy);
    } else if constexpr (kKind == SoftmaxKind::log_softmax) {
      log_softmax_backward_row(row, policy);
    } else {
      logsumexp_backward_row(row, policy);
    }
  }
};

// The gradient of an input that was widened on load has the type of that input.
template <class E>
bool is_gradient_of(Element output) {
  const bool half = output == Element::float16 || output == Element::bfloat16;
  return output == ElementTraits<E>::kElement || (std::is_same_v<E, float> && half);
}

template <class E>
CudaStatus run_backward(const RowArguments& arguments, SoftmaxKind kind, const CudaLaunch& launch) {
  using Operands = RowOperands<E, 2, /*kMayBeStaged=*/true>;
  const Storage& storage = arguments.storage;
  if (!is_gradient_of<E>(storage.output)) return cudaErrorInvalidValue;
  if (kind == SoftmaxKind::logsumexp) {
    using OneInput = RowOperands<E, 1, /*kMayBeStaged=*/true>;
    return run_rows<SoftmaxBackward<SoftmaxKind::logsumexp>, OneInput, Coverage::full>(arguments,
                                                                                       launch);
  }
  if (storage.input[1] != storage.input[0]) return cudaErrorInvalidValue;
  if (kind == SoftmaxKind::softmax) {
    return run_rows<SoftmaxBackward<SoftmaxKind::softmax>, Operands, Coverage::full>(arguments,
                                                                                     launch);
  }
  return run_rows<SoftmaxBackward<SoftmaxKind::log_softmax>, Operands, Coverage::full>(arguments,
                                                                                       launch);
}

SAFEOPS_END_LANES

namespace safeops {

CudaStatus softmax_backward_cuda(const RowArguments& arguments, SoftmaxKind kind,
                                 const CudaLaunch& launch) {
  return with_element(arguments.storage.input[0], [&](auto e) {
    return device::run_backward<decltype(e)>(arguments, kind, launch);
  });
}

const bool softmax_backward_is_ready = softmax_backward_on_cuda.bring(softmax_backward_cuda);

}  // namespace safeops
