#include "core/float_environment.h"
#include "core/row_plain.h"
#include "operators/softmax/softmax.h"
#include "operators/softmax/softmax_math.h"

namespace safeops {
namespace {

template <std::size_t kInputs, class Program>
void each_row(const RowArguments& arguments, Hits& hits, Program program) {
  const FloatEnvironment environment;
  for (std::size_t r = 0; r < arguments.layout.rows; ++r) {
    scalar::PlainRow<double, kInputs, /*kStaged=*/true> row(arguments, r, hits);
    program(row, arguments.policy);
  }
}

}  // namespace

void softmax_forward_plain(const RowArguments& arguments, SoftmaxKind kind, Hits& hits) {
  each_row<1>(arguments, hits, [kind](auto& row, const Resolution& policy) {
    switch (kind) {
      case SoftmaxKind::softmax:
        return scalar::softmax_forward_row(row, policy);
      case SoftmaxKind::log_softmax:
        return scalar::log_softmax_forward_row(row, policy);
      case SoftmaxKind::logsumexp:
        return scalar::logsumexp_forward_row(row, policy);
    }
  });
}

void softmax_backward_plain(const RowArguments& arguments, SoftmaxKind kind, Hits& hits) {
  if (kind == SoftmaxKind::logsumexp) {
    return each_row<1>(arguments, hits, [](auto& row, const Resolution& policy) {
      scalar::logsumexp_backward_row(row, policy);
    });
  }
  each_row<2>(arguments, hits, [kind](auto& row, const Resolution& policy) {
    if (kind == SoftmaxKind::softmax) return scalar::softmax_backward_row(row, policy);
    scalar::log_softmax_backward_row(row, policy);
  });
}

}  // namespace safeops
