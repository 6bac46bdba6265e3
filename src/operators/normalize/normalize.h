#pragma once

#include <cstddef>

#include "core/cuda_launch.h"
#include "core/executor.h"
#include "core/hits.h"
#include "core/row_layout.h"
#include "safeops/export.h"

namespace safeops {

/// The norms that have SIMD kernels.
enum class NormOrder : unsigned char { one, two, infinity };

/// y = x / n. Input 0 is x; `save` receives the norm (see "saved norm" in normalize_math.h).
void normalize_forward(const RowArguments& arguments, NormOrder order, Executor& executor,
                       Hits& hits);

/// grad_x from grad_y (input 0), x (input 1) and the saved norm.
void normalize_backward(const RowArguments& arguments, NormOrder order, Executor& executor,
                        Hits& hits);

/// The same rows on a CUDA device, in memory of which all pointers point, norms included.
SAFEOPS_EXPORT extern CudaKernel<RowArguments, NormOrder> normalize_forward_on_cuda;
SAFEOPS_EXPORT extern CudaKernel<RowArguments, NormOrder> normalize_backward_on_cuda;
CudaStatus normalize_forward_cuda(const RowArguments& arguments, NormOrder order,
                                  const CudaLaunch& launch);
CudaStatus normalize_backward_cuda(const RowArguments& arguments, NormOrder order,
                                   const CudaLaunch& launch);

/// Any p (NaN excepted), real or complex, contiguous rows only, scalar code. With `complex` the
/// layout counts complex elements and the operands hold (real, imaginary) pairs; only float32 and
/// float64 parts exist.
void normalize_forward_any(const RowArguments& arguments, double p, bool complex,
                           Executor& executor, Hits& hits);
void normalize_backward_any(const RowArguments& arguments, double p, bool complex,
                            Executor& executor, Hits& hits);

/// The same rows through the scalar program, for tests and fuzzing: one row after another on this
/// thread.
void normalize_forward_plain(const RowArguments& arguments, NormOrder order, Hits& hits);
void normalize_backward_plain(const RowArguments& arguments, NormOrder order, Hits& hits);

}  // namespace safeops
