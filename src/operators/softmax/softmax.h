#pragma once

#include <cstdint>

#include "core/cuda_launch.h"
#include "core/executor.h"
#include "core/hits.h"
#include "core/row_layout.h"
#include "safeops/export.h"
#include "safeops/policy.h"

namespace safeops {

/// The operators of the family. logsumexp has one value per row and no output of elements.
enum class SoftmaxKind : std::uint8_t { softmax, log_softmax, logsumexp };

/// How an empty row is filled. `eps` is what log_softmax takes the logarithm of under epsilon.
/// `backward` as in resolve().
Resolution resolve_empty_row(Policy policy, SoftmaxKind kind, double eps, bool backward);

/// What stands for an element that takes no part. Sets everything of `storage` but the element
/// types and the mask itself.
void set_masked_values(Storage& storage, SoftmaxKind kind, bool backward);

/// Input 0 is x. `save` receives one fp64 value per row: for softmax and log_softmax the largest
/// element that takes part (-inf: the row is empty; NaN or +inf: not finite), for logsumexp the
/// result, which is all that it computes.
/// arguments.element is float32 or float64, and float64 if and only if every operand is.
void softmax_forward(const RowArguments& arguments, SoftmaxKind kind, Executor& executor,
                     Hits& hits);

/// softmax, log_softmax: grad_x from grad_y (input 0), y (input 1) and `saved`.
/// logsumexp: grad_x from x (input 0), `saved` and `row_gradient`.
void softmax_backward(const RowArguments& arguments, SoftmaxKind kind, Executor& executor,
                      Hits& hits);

/// The same rows on a CUDA device, in memory of which all pointers point, values per row and mask
/// included.
SAFEOPS_EXPORT extern CudaKernel<RowArguments, SoftmaxKind> softmax_forward_on_cuda;
SAFEOPS_EXPORT extern CudaKernel<RowArguments, SoftmaxKind> softmax_backward_on_cuda;
CudaStatus softmax_forward_cuda(const RowArguments& arguments, SoftmaxKind kind,
                                const CudaLaunch& launch);
CudaStatus softmax_backward_cuda(const RowArguments& arguments, SoftmaxKind kind,
                                 const CudaLaunch& launch);

/// The same rows through the scalar program in double, for tests and fuzzing: one row after another
/// on this thread.
void softmax_forward_plain(const RowArguments& arguments, SoftmaxKind kind, Hits& hits);
void softmax_backward_plain(const RowArguments& arguments, SoftmaxKind kind, Hits& hits);

}  // namespace safeops
