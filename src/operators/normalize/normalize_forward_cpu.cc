#define SAFEOPS_HIGHWAY

#include <limits>
#include <type_traits>

#include "core/run_rows.h"
#include "operators/normalize/normalize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/normalize/normalize_forward_cpu.cc"
// Must come before anything that includes highway.h.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/walk_highway-inl.h"
#include "operators/normalize/normalize_math.h"

SAFEOPS_BEGIN_LANES

template <NormOrder kOrder>
struct NormalizeForward {
  template <class Row>
  HWY_INLINE void operator()(Row& row, const Resolution& policy) const {
    normalize_forward_row<kOrder>(row, policy);
  }
};

RowKernels normalize_forward_kernels(Element element, NormOrder order) {
  switch (order) {
    case NormOrder::one:
      return row_kernels<NormalizeForward<NormOrder::one>, 1, Coverage::lean>(element);
    case NormOrder::two:
      return row_kernels<NormalizeForward<NormOrder::two>, 1, Coverage::full>(element);
    case NormOrder::infinity:
      break;
  }
  return row_kernels<NormalizeForward<NormOrder::infinity>, 1, Coverage::lean>(element);
}

SAFEOPS_END_LANES

#if HWY_ONCE
namespace safeops {

HWY_EXPORT(normalize_forward_kernels);

void normalize_forward(const RowArguments& arguments, NormOrder order, Executor& executor,
                       Hits& hits) {
  run_rows(arguments, HWY_DYNAMIC_DISPATCH(normalize_forward_kernels)(arguments.element, order),
           executor, hits);
}

}  // namespace safeops
#endif
