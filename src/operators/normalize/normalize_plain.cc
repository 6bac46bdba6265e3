#include <limits>

#include "core/float_environment.h"
#include "core/row_plain.h"
#include "operators/normalize/normalize.h"
#include "operators/normalize/normalize_math.h"

namespace safeops {
namespace {

struct Forward {
  static constexpr std::size_t kInputs = 1;
  template <NormOrder kOrder, class Row>
  static void run(Row& row, const Resolution& policy) {
    scalar::normalize_forward_row<kOrder>(row, policy);
  }
};
struct Backward {
  static constexpr std::size_t kInputs = 2;
  template <NormOrder kOrder, class Row>
  static void run(Row& row, const Resolution& policy) {
    scalar::normalize_backward_row<kOrder>(row, policy);
  }
};

template <class Pass, class E>
void run_order(const RowArguments& arguments, NormOrder order, Hits& hits) {
  const FloatEnvironment environment;
  for (std::size_t r = 0; r < arguments.layout.rows; ++r) {
    scalar::PlainRow<E, Pass::kInputs> row(arguments, r, hits);
    switch (order) {
      case NormOrder::one:
        Pass::template run<NormOrder::one>(row, arguments.policy);
        break;
      case NormOrder::two:
        Pass::template run<NormOrder::two>(row, arguments.policy);
        break;
      case NormOrder::infinity:
        Pass::template run<NormOrder::infinity>(row, arguments.policy);
        break;
    }
  }
}

template <class Pass>
void run_plain(const RowArguments& arguments, NormOrder order, Hits& hits) {
  with_element(arguments.element,
               [&](auto e) { run_order<Pass, decltype(e)>(arguments, order, hits); });
}

}  // namespace

void normalize_forward_plain(const RowArguments& arguments, NormOrder order, Hits& hits) {
  run_plain<Forward>(arguments, order, hits);
}

void normalize_backward_plain(const RowArguments& arguments, NormOrder order, Hits& hits) {
  run_plain<Backward>(arguments, order, hits);
}

}  // namespace safeops
