#include "operators/normalize/normalize.h"

namespace safeops {

constinit CudaKernel<RowArguments, NormOrder> normalize_forward_on_cuda, normalize_backward_on_cuda;

}  // namespace safeops
