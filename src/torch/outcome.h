#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "core/counters.h"
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

/// What an operator counts: "row" or "element".
const char* unit_of(Operator op);

/// The call as counters know it; refers to `input`.
Call call_on(Device device, Operator op, Direction direction, const at::Tensor& input,
             std::uint64_t rows, bool raises);

/// Counts the hits of one kernel execution on `input` and, under `raise`, throws. Called after the
/// parallel region, or what a CUDA kernel did was waited for, and before the caller can see a
/// result.
void settle_or_throw(Operator op, Direction direction, Device device, Policy policy,
                     const at::Tensor& input, std::uint64_t rows, const Hits& hits);

}  // namespace safeops
