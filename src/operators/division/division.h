#pragma once

#include <cstdint>
#include <limits>

#include "core/cuda_launch.h"
#include "core/element_arguments.h"
#include "core/executor.h"
#include "core/hits.h"
#include "safeops/export.h"
#include "safeops/policy.h"

namespace safeops {

/// What is computed of a and b, or of x. A reciprocal is a quotient whose a is the number 1.
enum class DivisionKind : std::uint8_t { quotient, truncated, floored, rsqrt, sqrt, log };

/// A threshold as numbers of type T hold it, so that one that was set to eps is not below it; not 0
/// unless it is 0.
template <class T>
constexpr T threshold_as(double eps) {
  const T rounded = static_cast<T>(eps);
  return eps > 0 && rounded == 0 ? std::numeric_limits<T>::denorm_min() : rounded;
}

/// How singular elements are resolved; see division_math.h. `backward` as in resolve().
Resolution resolve_element(Policy policy, DivisionKind kind, double eps, bool backward);

/// The first output from a and b (inputs 0 and 1), or from x (input 0).
void division_forward(const ElementArguments& arguments, DivisionKind kind, Executor& executor,
                      Hits& hits);

/// Quotients: da and db (outputs 0 and 1, either of which may be not wanted) from g, b and a
/// (inputs 0, 1 and 2). a may be left out where db is not wanted; then a NaN in a is not known of.
/// Others: dx (output 0) from g and x (inputs 0 and 1).
void division_backward(const ElementArguments& arguments, DivisionKind kind, Executor& executor,
                       Hits& hits);

/// The same on a CUDA device, with the CPU's bits.
SAFEOPS_EXPORT extern CudaKernel<ElementArguments, DivisionKind> division_forward_on_cuda;
SAFEOPS_EXPORT extern CudaKernel<ElementArguments, DivisionKind> division_backward_on_cuda;

/// What the library for CUDA puts there.
CudaStatus division_forward_cuda(const ElementArguments& arguments, DivisionKind kind,
                                 const CudaLaunch& launch);
CudaStatus division_backward_cuda(const ElementArguments& arguments, DivisionKind kind,
                                  const CudaLaunch& launch);

/// division_forward and division_backward for complex numbers of float32 or float64 parts; no
/// rounding modes. Gradients are those of the conjugate variable, as PyTorch's.
void division_forward_complex(const ElementArguments& arguments, DivisionKind kind,
                              Executor& executor, Hits& hits);
void division_backward_complex(const ElementArguments& arguments, DivisionKind kind,
                               Executor& executor, Hits& hits);

/// Element types of integer division.
enum class Integer : std::uint8_t { uint8, int8, int16, int32, int64 };

/// a / b rounded towards zero, or down with `floored`. The smallest number over -1 wraps to itself.
/// A divisor of 0 is a hit and gives 0.
void integer_division(const ElementArguments& arguments, Integer type, bool floored,
                      Executor& executor, Hits& hits);

}  // namespace safeops
