#pragma once

#include <ATen/core/Tensor.h>

namespace safeops {

// What an out= overload returns. Tag::out, where torch has it, allows the aliased result that
// compiled graphs refuse without it; elsewhere only an overload that returns nothing can be
// compiled.
#if SAFEOPS_HAS_TAG_OUT
using OutResult = at::Tensor&;
inline at::Tensor& out_result(at::Tensor& out) { return out; }
#define SAFEOPS_OUT_SCHEMA "Tensor(a!)"
#else
using OutResult = void;
inline void out_result(at::Tensor&) {}
#define SAFEOPS_OUT_SCHEMA "()"
#endif

}  // namespace safeops
