#define SAFEOPS_HIGHWAY

#include <limits>
#include <type_traits>

#include "core/run_rows.h"
#include "operators/normalize/normalize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/normalize/normalize_backward_cpu.cc"
// Must come before anything that includes highway.h.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/walk_highway-inl.h"
#include "operators/normalize/normalize_math.h"

SAFEOPS_BEGIN_LANES

template <NormOrder kOrder>
struct NormalizeBackward {
  template <class Row>
  HWY_INLINE void operator()(Row& row, const Resolution& policy) const {
    normalize_backward_row<kOrder>(row, policy);
  }
};

RowKernels normalize_backward_kernels(Element element, NormOrder order) {
  switch (order) {
    case NormOrder::one:
      return row_kernels<NormalizeBackward<NormOrder::one>, 2, Coverage::lean>(element);
    case NormOrder::two:
      return row_kernels<NormalizeBackward<NormOrder::two>, 2, Coverage::full>(element);
    case NormOrder::infinity:
      break;
  }
  return row_kernels<NormalizeBackward<NormOrder::infinity>, 2, Coverage::lean>(element);
}

SAFEOPS_END_LANES

#if HWY_ONCE
namespace safeops {

HWY_EXPORT(normalize_backward_kernels);

void normalize_backward(const RowArguments& arguments, NormOrder order, Executor& executor,
                        Hits& hits) {
  run_rows(arguments, HWY_DYNAMIC_DISPATCH(normalize_backward_kernels)(arguments.element, order),
           executor, hits);
}

}  // namespace safeops
#endif
