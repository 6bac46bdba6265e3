#pragma once

#include <bit>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cases/mask.h"
#include "cases/outcome.h"
#include "operators/softmax/softmax.h"

namespace safeops::cases {

inline constexpr SoftmaxKind kSoftmaxKinds[] = {SoftmaxKind::softmax, SoftmaxKind::log_softmax,
                                                SoftmaxKind::logsumexp};

constexpr const char* name(SoftmaxKind kind) {
  switch (kind) {
    case SoftmaxKind::softmax:
      return "softmax";
    case SoftmaxKind::log_softmax:
      return "log_softmax";
    case SoftmaxKind::logsumexp:
      break;
  }
  return "logsumexp";
}

/// How a call is made. Nothing of it but `kind`, `policy`, `eps`, `result` and the mask itself may
/// show in the result of a row.
struct SoftmaxTrial {
  SoftmaxKind kind = SoftmaxKind::softmax;
  Policy policy = Policy::stock;
  std::optional<double> eps;
  std::optional<Element> result;  ///< of the output; none: as the (last) input
  Road road = Road::dispatched;
  const Mask* mask = nullptr;
  MaskArrangement mask_arrangement;
  Arrangement input, second, output;
  bool in_place = false;  ///< the output is the (first) input
  bool inspect = false;   ///< no output
  bool save = true;
  bool streams = false;
  Executor* executor = nullptr;  ///< null: SerialExecutor
  /// Kernels that this library does not have; then `road` and `executor` say nothing.
  std::function<void(const RowArguments&, bool backward, Hits&)> elsewhere;
};

inline void set_kind(SoftmaxTrial& trial, RowLayout::Kind kind) {
  trial.input.kind = trial.second.kind = trial.output.kind = kind;
}
inline void set_kept(SoftmaxTrial& trial, const std::vector<std::size_t>& kept) {
  trial.input.kept = trial.second.kept = trial.output.kept = kept;
}

/// What log_softmax takes the logarithm of under epsilon.
inline double eps_of(const SoftmaxTrial& trial, Element element) {
  return resolve_eps(trial.policy, trial.eps, 0, element).value;
}

/// A call whose operands are laid out and stored; `outputs` is 0 or 1.
class SoftmaxCall {
 public:
  SoftmaxCall(const SoftmaxTrial& trial, bool backward, const Rows& first)
      : trial_(trial), backward_(backward), first_(first) {}

  RowArguments arguments;

  void lay_out(std::initializer_list<const Arrangement*> operands) {
    arguments.layout = layout_of(first_.rows, first_.length, operands);
    if (trial_.mask == nullptr) return;
    arguments.layout.operand[kMaskOperand] =
        strides(trial_.mask_arrangement, kept_sizes(trial_.input, first_.rows), first_.length);
    mask_ = std::make_unique<MaskMemory>(*trial_.mask, arguments.layout);
    arguments.storage.mask = mask_->data();
  }

  void store(std::initializer_list<Element> inputs, Element output) {
    std::copy(inputs.begin(), inputs.end(), arguments.storage.input);
    arguments.storage.output = output;
    arguments.element = first_.element == Element::float64 ? Element::float64 : Element::float32;
    set_masked_values(arguments.storage, trial_.kind, backward_);
    arguments.streams = trial_.streams;
    arguments.policy =
        resolve_empty_row(trial_.policy, trial_.kind,
                          eps_of(trial_, backward_ ? output : inputs.begin()[0]), backward_);
  }

  void launch(Hits& hits) const {
    if (trial_.elsewhere) return trial_.elsewhere(arguments, backward_, hits);
    SerialExecutor serial;
    Executor& executor = trial_.executor != nullptr ? *trial_.executor : serial;
    if (trial_.road == Road::plain) {
      return backward_ ? softmax_backward_plain(arguments, trial_.kind, hits)
                       : softmax_forward_plain(arguments, trial_.kind, hits);
    }
    return backward_ ? softmax_backward(arguments, trial_.kind, executor, hits)
                     : softmax_forward(arguments, trial_.kind, executor, hits);
  }

 private:
  const SoftmaxTrial& trial_;
  bool backward_;
  const Rows& first_;
  std::unique_ptr<MaskMemory> mask_;
};

inline Rows untouched(const Rows& like, Element element) {
  return untouched(Rows(element, like.rows, like.length));
}

inline std::size_t changed(const Operand& operand, const Rows& rows) {
  return operand.disturbed() + (operand.gather() == canonical(rows) ? 0 : 1);
}

/// logsumexp leaves its results in `saved`; it has no output.
inline Outcome forward(const Rows& x, const SoftmaxTrial& trial) {
  const bool writes = trial.kind != SoftmaxKind::logsumexp;
  const Element result = trial.result.value_or(x.element);
  Operand input(x, trial.input);
  Operand output(trial.in_place ? x : untouched(x, result),
                 trial.in_place ? trial.input : trial.output);
  Outcome outcome;
  outcome.saved.assign(x.rows, kNeverSaved);
  SoftmaxCall call(trial, false, x);
  call.lay_out({&trial.input, trial.in_place ? &trial.input : &trial.output});
  call.store({x.element, x.element}, result);
  RowArguments& arguments = call.arguments;
  arguments.input[0] = trial.in_place ? output.data() : input.data();
  arguments.output = trial.inspect || !writes ? nullptr : output.data();
  arguments.save = trial.save ? outcome.saved.data() : nullptr;
  call.launch(outcome.hits);
  outcome.values = output.gather();
  outcome.disturbed = changed(input, x) + output.disturbed();
  return outcome;
}

/// g and y for softmax and log_softmax. For logsumexp g has one float64 per row, and y is x.
inline Outcome backward(const Rows& g, const Rows& y, const std::vector<double>& saved,
                        const SoftmaxTrial& trial) {
  const bool per_row = trial.kind == SoftmaxKind::logsumexp;
  const Rows& first = per_row ? y : g;
  const Element result = trial.result.value_or(y.element);
  Operand input(first, trial.input);
  Operand second(y, trial.second);
  Operand output(trial.in_place ? first : untouched(y, result),
                 trial.in_place ? trial.input : trial.output);
  Outcome outcome;
  outcome.saved = saved;
  SoftmaxCall call(trial, true, first);
  RowArguments& arguments = call.arguments;
  const Arrangement& out = trial.in_place ? trial.input : trial.output;
  std::vector<double> row_gradient;
  if (per_row) {
    call.lay_out({&trial.input, &out});
    call.store({y.element, Element::float32}, result);
    for (std::size_t r = 0; r < g.rows; ++r)
      row_gradient.push_back(std::bit_cast<double>(g.bits[r]));
    arguments.row_gradient = row_gradient.data();
  } else {
    call.lay_out({&trial.input, &trial.second, &out});
    call.store({g.element, y.element}, result);
    arguments.input[1] = second.data();
  }
  arguments.input[0] = trial.in_place ? output.data() : input.data();
  arguments.output = trial.inspect ? nullptr : output.data();
  arguments.saved = saved.data();
  call.launch(outcome.hits);
  outcome.values = output.gather();
  outcome.disturbed = changed(input, first) + changed(second, y) + output.disturbed();
  return outcome;
}

}  // namespace safeops::cases
