#define SAFEOPS_HIGHWAY

#include <cstring>
#include <limits>
#include <type_traits>

#include "core/run_rows.h"
#include "core/scratch.h"
#include "operators/softmax/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/softmax/softmax_backward_cpu.cc"
// Must come before anything that includes highway.h.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/walk_staged_highway-inl.h"
#include "operators/softmax/softmax_math.h"

SAFEOPS_BEGIN_LANES

struct SoftmaxBackward {
  template <class Row>
  HWY_INLINE void operator()(Row& row, const Resolution& policy) const {
    softmax_backward_row(row, policy);
  }
};
struct LogSoftmaxBackward {
  template <class Row>
  HWY_INLINE void operator()(Row& row, const Resolution& policy) const {
    log_softmax_backward_row(row, policy);
  }
};
struct LogsumexpBackward {
  template <class Row>
  HWY_INLINE void operator()(Row& row, const Resolution& policy) const {
    logsumexp_backward_row(row, policy);
  }
};

RowKernels softmax_backward_kernels(Element arithmetic, SoftmaxKind kind) {
  switch (kind) {
    case SoftmaxKind::softmax:
      return staged_row_kernels<SoftmaxBackward, 2>(arithmetic);
    case SoftmaxKind::log_softmax:
      return staged_row_kernels<LogSoftmaxBackward, 2>(arithmetic);
    case SoftmaxKind::logsumexp:
      break;
  }
  return staged_row_kernels<LogsumexpBackward, 1>(arithmetic);
}

SAFEOPS_END_LANES

#if HWY_ONCE
namespace safeops {

HWY_EXPORT(softmax_backward_kernels);

void softmax_backward(const RowArguments& arguments, SoftmaxKind kind, Executor& executor,
                      Hits& hits) {
  run_rows(arguments, HWY_DYNAMIC_DISPATCH(softmax_backward_kernels)(arguments.element, kind),
           executor, hits);
}

}  // namespace safeops
#endif
