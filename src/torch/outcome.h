#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "core/hits.h"
#include "safeops/policy.h"

namespace safeops {

/// The error of policy `raise`. Python sees a ValueError, which the eager wrapper turns into
/// safeops.SingularityError.
struct SingularityError : c10::ValueError {
  using c10::ValueError::ValueError;
};

/// "float32" for at::kFloat: the name that Python users know.
const char* dtype_name(at::ScalarType dtype);

/// Counts the hits of one kernel execution on `input` and, under `raise`, throws. Nothing else in
/// the binding throws for a singular point. Called after the parallel region, before the caller can
/// see a result.
void settle_or_throw(Operator op, Direction direction, Policy policy, const at::Tensor& input,
                     std::uint64_t rows, const Hits& hits);

}  // namespace safeops
