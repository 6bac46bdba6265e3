#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "cases/outcome.h"
#include "operators/normalize/normalize.h"

namespace safeops::cases {

inline constexpr double kStockEps = 1e-12;

/// How a call is made. Nothing of it but `p`, `complex` and `policy` may show in the result of a
/// row.
struct Trial {
  double p = 2;
  Resolution policy;
  Road road = Road::dispatched;
  bool complex = false;  ///< with Road::any: a row holds (real, imaginary) pairs
  Arrangement input, second, output;
  bool in_place = false;  ///< the output is the (first) input
  bool inspect = false;   ///< no output
  bool save = true;
  Executor* executor = nullptr;  ///< null: SerialExecutor
  /// Kernels that this library does not have; then `road` and `executor` say nothing.
  std::function<void(const RowArguments&, bool backward, Hits&)> elsewhere;
};

inline NormOrder order_of(double p) {
  if (p == 1) return NormOrder::one;
  return p == 2 ? NormOrder::two : NormOrder::infinity;
}

/// The policy as a forward or backward kernel gets it when the caller names no eps, or the one
/// given.
inline Resolution resolved(Policy policy, std::optional<double> eps, Element element,
                           bool backward) {
  return resolve(policy, resolve_eps(policy, eps, kStockEps, element).value, backward);
}

inline void launch(const RowArguments& arguments, const Trial& trial, bool backward, Hits& hits) {
  if (trial.elsewhere) return trial.elsewhere(arguments, backward, hits);
  SerialExecutor serial;
  Executor& executor = trial.executor != nullptr ? *trial.executor : serial;
  switch (trial.road) {
    case Road::dispatched:
      return backward ? normalize_backward(arguments, order_of(trial.p), executor, hits)
                      : normalize_forward(arguments, order_of(trial.p), executor, hits);
    case Road::plain:
      return backward ? normalize_backward_plain(arguments, order_of(trial.p), hits)
                      : normalize_forward_plain(arguments, order_of(trial.p), hits);
    case Road::any:
      return backward ? normalize_backward_any(arguments, trial.p, trial.complex, executor, hits)
                      : normalize_forward_any(arguments, trial.p, trial.complex, executor, hits);
  }
}

inline Outcome forward(const Rows& x, const Trial& trial) {
  const std::size_t parts = trial.complex ? 2 : 1;
  Operand input(x, trial.input, parts);
  Operand output(trial.in_place ? x : untouched(x), trial.in_place ? trial.input : trial.output,
                 parts);
  Outcome outcome;
  outcome.saved.assign(x.rows, kNeverSaved);
  RowArguments arguments;
  arguments.layout = layout_of(x.rows, x.length / parts, {&trial.input, &trial.output});
  if (trial.in_place) arguments.layout.operand[1] = arguments.layout.operand[0];
  arguments.element = x.element;
  arguments.input[0] = trial.in_place ? output.data() : input.data();
  arguments.output = trial.inspect ? nullptr : output.data();
  arguments.save = trial.save ? outcome.saved.data() : nullptr;
  arguments.policy = trial.policy;
  launch(arguments, trial, false, outcome.hits);
  outcome.values = output.gather();
  outcome.disturbed =
      input.disturbed() + output.disturbed() + (input.gather() == canonical(x) ? 0 : 1);
  return outcome;
}

inline Outcome backward(const Rows& g, const Rows& x, const std::vector<double>& saved,
                        const Trial& trial) {
  const std::size_t parts = trial.complex ? 2 : 1;
  Operand gradient(g, trial.input, parts);
  Operand input(x, trial.second, parts);
  Operand output(trial.in_place ? g : untouched(g), trial.in_place ? trial.input : trial.output,
                 parts);
  Outcome outcome;
  outcome.saved = saved;
  RowArguments arguments;
  arguments.layout =
      layout_of(g.rows, g.length / parts, {&trial.input, &trial.second, &trial.output});
  if (trial.in_place) arguments.layout.operand[2] = arguments.layout.operand[0];
  arguments.element = g.element;
  arguments.input[0] = trial.in_place ? output.data() : gradient.data();
  arguments.input[1] = input.data();
  arguments.output = trial.inspect ? nullptr : output.data();
  arguments.saved = saved.data();
  arguments.policy = trial.policy;
  launch(arguments, trial, true, outcome.hits);
  outcome.values = output.gather();
  outcome.disturbed = gradient.disturbed() + input.disturbed() + output.disturbed() +
                      (gradient.gather() == canonical(g) ? 0 : 1) +
                      (input.gather() == canonical(x) ? 0 : 1);
  return outcome;
}

}  // namespace safeops::cases
