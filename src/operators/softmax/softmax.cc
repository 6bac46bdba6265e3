#include "operators/softmax/softmax.h"

#include <cmath>
#include <limits>

namespace safeops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double epsilon_fill(SoftmaxKind kind, double eps) {
  return kind == SoftmaxKind::log_softmax ? std::log(eps) : 0;
}
double neutral_fill(SoftmaxKind kind) { return kind == SoftmaxKind::softmax ? 0 : -kInfinity; }

}  // namespace

constinit CudaKernel<RowArguments, SoftmaxKind> softmax_forward_on_cuda, softmax_backward_on_cuda;

Resolution resolve_empty_row(Policy policy, SoftmaxKind kind, double eps, bool backward) {
  Resolution resolution;
  resolution.fills = true;
  switch (policy) {
    case Policy::stock:
    case Policy::nan:
      resolution.fill = kNan;
      break;
    case Policy::epsilon:
      resolution.fill = backward ? 0 : epsilon_fill(kind, eps);
      break;
    case Policy::zero:
      resolution.fill = backward ? 0 : neutral_fill(kind);
      break;
    case Policy::raise:
      // A forward result is discarded; a gradient is kept only where the incoming one is zero.
      resolution.fill = backward ? 0 : kNan;
      break;
  }
  return resolution;
}

void set_masked_values(Storage& storage, SoftmaxKind kind, bool backward) {
  const bool logarithmic = kind == SoftmaxKind::log_softmax;
  if (!backward || kind == SoftmaxKind::logsumexp) {
    storage.masked_input[0] = -kInfinity;  // x
  } else {
    storage.masked_input[0] = 0;                             // the incoming gradient
    storage.masked_input[1] = logarithmic ? -kInfinity : 0;  // y
  }
  storage.masked_output = !backward && logarithmic ? -kInfinity : 0;
  storage.nan_fill_covers_masked = !backward;
}

}  // namespace safeops
