#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "cases/report.h"
#include "cases/softmax_oracle.h"

namespace safeops::cases {

inline std::string spelled(const SoftmaxTrial& trial) {
  return std::string(name(trial.kind)) + " policy=" + std::string(name(trial.policy)) +
         " road=" + kRoadNames[static_cast<int>(trial.road)] +
         (trial.mask != nullptr ? " masked" : "") +
         (trial.result ? std::string(" result=") + name(*trial.result) : "") +
         (trial.input.kind == RowLayout::Kind::side_by_side ? " side_by_side" : " contiguous");
}

namespace detail {

inline void check_hits(Report& report, const Hits& expected, const Hits& hits,
                       const SoftmaxTrial& trial) {
  const auto check = [&](const std::string& what, const Hit& want, const Hit& got) {
    if (want.count == got.count && want.first == got.first) return;
    report.fail(what + " counted " + std::to_string(got.count) + " rows, first " +
                std::to_string(got.first) + "; expected " + std::to_string(want.count) +
                " rows, first " + std::to_string(want.first) + "; " + spelled(trial));
  };
  for (int i = 0; i < kConditions; ++i)
    check(std::string(name(static_cast<Condition>(i))), expected.of[i], hits.of[i]);
  check("raising", expected.raising, hits.raising);
}

/// `matters`: whether policy raise has to throw if this row is empty.
template <Number N>
void expect_hits(Hits& expected, const SoftmaxRow<N>& row, std::size_t index, bool matters) {
  if (row.state == RowState::empty) {
    expected[Condition::empty_row].add(1, index);
    if (matters) expected.raising.add(1, index);
  }
  if (row.state == RowState::nonfinite) expected[Condition::nonfinite_input].add(1, index);
}

template <Number N>
void check_saved(Report& report, const Rows& x, std::size_t index, const SoftmaxRow<N>& row,
                 double saved, const SoftmaxTrial& trial) {
  Measure measure(report, x.element, x, trial);
  if (!trial.save) {
    if (saved != kNeverSaved) measure.wrong(index, 0, saved, "nothing saved");
  } else if (trial.kind != SoftmaxKind::logsumexp || row.state != RowState::regular) {
    if (saved != row.largest && !(std::isnan(saved) && row.has_nan))
      measure.wrong(index, 0, saved, "the largest element " + text(row.largest));
  } else {
    const N exact = row.logsumexp();
    measure(index, 0, rounded(x.element, saved), exact,
            unit_of_logarithm(trial.kind, x.element, exact), softmax_bound(trial.kind, x.element));
  }
}

template <Number N>
void check_forward_row(Report& report, const Rows& x, std::size_t index, const SoftmaxRow<N>& row,
                       const Rows& y, const SoftmaxTrial& trial) {
  Measure measure(report, y.element, x, trial);
  const bool logarithm = trial.kind == SoftmaxKind::log_softmax;
  const double bound = softmax_bound(trial.kind, y.element);
  for (std::size_t i = 0; i < x.length; ++i) {
    const bool part = takes_part(trial.mask, index, i);
    const double computed = y.at(index, i);
    if (row.state == RowState::empty) {
      if (trial.policy == Policy::raise) continue;
      const double want = empty_value(trial.kind, trial.policy, eps_of(trial, x.element), part);
      const N exact = want;
      measure(index, i, computed, exact, std::isfinite(want) ? ulp(y.element, exact) : N(1.0),
              std::isfinite(want) ? 0.51 : 0);
    } else if (!part) {
      if (computed != (logarithm ? -kInfinity : 0.0))
        measure.wrong(index, i, computed, "the value of a masked element");
    } else {
      const Judged<N> exact = forward_value(row, trial.kind, y.element, x.at(index, i));
      measure(index, i, computed, exact.value, exact.unit, bound);
    }
  }
}

/// Whether anything of the incoming gradient is not 0 where elements take part.
inline bool gradient_matters(const Rows& g, std::size_t row, const SoftmaxTrial& trial) {
  if (trial.kind == SoftmaxKind::logsumexp) return g.at(row, 0) != 0;
  for (std::size_t i = 0; i < g.length; ++i) {
    if (takes_part(trial.mask, row, i) && g.at(row, i) != 0) return true;
  }
  return false;
}

template <Number N>
void measure_gradient(Measure<SoftmaxTrial>& measure, std::size_t row, std::size_t i,
                      double computed, const Judged<N>& exact, Element element) {
  if (exact.open) {
    if (std::isfinite(computed)) measure.wrong(row, i, computed, "an infinity or NaN");
    return;
  }
  measure(row, i, computed, exact.value, exact.unit, softmax_backward_bound(element));
}

template <Number N>
void check_backward_row(Report& report, const Rows& g, const Rows& x, const Rows& y,
                        std::size_t index, const SoftmaxRow<N>& row, const Rows& grad,
                        const SoftmaxTrial& trial) {
  const bool per_row = trial.kind == SoftmaxKind::logsumexp;
  Measure measure(report, grad.element, per_row ? x : g, trial, per_row ? nullptr : &y);
  const bool matters = gradient_matters(g, index, trial);
  const bool marks = trial.policy == Policy::stock || trial.policy == Policy::nan;
  std::optional<GradientSum<N>> sum;
  if (!per_row && row.state == RowState::regular) sum.emplace(g, y, index, trial.kind, trial.mask);
  for (std::size_t i = 0; i < grad.length; ++i) {
    const double computed = grad.at(index, i);
    if (!takes_part(trial.mask, index, i)) {
      if (computed != 0) measure.wrong(index, i, computed, "0 at a masked element");
    } else if (row.state == RowState::empty) {
      if (trial.policy == Policy::raise && matters) continue;
      if (marks ? !std::isnan(computed) : computed != 0)
        measure.wrong(index, i, computed, marks ? "NaN" : "0");
    } else if (per_row) {
      measure_gradient(measure, index, i, computed,
                       logsumexp_gradient(row, grad.element, g.at(index, 0), x.at(index, i)),
                       grad.element);
    } else if (row.state == RowState::nonfinite) {
      if (!std::isnan(computed)) measure.wrong(index, i, computed, "NaN");
    } else {
      measure_gradient(
          measure, index, i, computed,
          gradient_value(*sum, trial.kind, grad.element, g.at(index, i), y.at(index, i)),
          grad.element);
    }
  }
}

template <Number N>
Report check_forward_in(const Rows& x, const Outcome& outcome, const SoftmaxTrial& trial) {
  Report report;
  Hits expected;
  if (outcome.disturbed != 0)
    report.fail("memory outside the output rows was written; " + spelled(trial));
  const bool writes = trial.kind != SoftmaxKind::logsumexp && !trial.inspect;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const SoftmaxRow<N> row(x, r, trial.mask);
    expect_hits(expected, row, r, true);
    if (row.largest == -largest(x.element)) expected[Condition::finite_min_row].add(1, r);
    check_saved(report, x, r, row, outcome.saved[r], trial);
    if (writes) check_forward_row(report, x, r, row, outcome.values, trial);
  }
  if (!writes && !trial.in_place && outcome.values != untouched(outcome.values))
    report.fail("a call without output wrote values; " + spelled(trial));
  check_hits(report, expected, outcome.hits, trial);
  return report;
}

template <Number N>
Report check_backward_in(const Rows& g, const Rows& x, const Rows& y, const Outcome& outcome,
                         const SoftmaxTrial& trial) {
  Report report;
  Hits expected;
  if (outcome.disturbed != 0)
    report.fail("memory outside the output rows was written; " + spelled(trial));
  for (std::size_t r = 0; r < x.rows; ++r) {
    const SoftmaxRow<N> row(x, r, trial.mask);
    expect_hits(expected, row, r, gradient_matters(g, r, trial));
    if (!trial.inspect) check_backward_row(report, g, x, y, r, row, outcome.values, trial);
  }
  if (trial.inspect && outcome.values != untouched(outcome.values))
    report.fail("an inspecting call wrote values; " + spelled(trial));
  check_hits(report, expected, outcome.hits, trial);
  return report;
}

}  // namespace detail

/// Values, saved numbers and hits of a forward call on x.
inline Report check_forward(const Rows& x, const Outcome& outcome, const SoftmaxTrial& trial) {
  return x.element == Element::float64 ? detail::check_forward_in<Wide>(x, outcome, trial)
                                       : detail::check_forward_in<long double>(x, outcome, trial);
}

/// Gradients and hits of a backward call on g and y, which forward made of x. For logsumexp y is x.
inline Report check_backward(const Rows& g, const Rows& x, const Rows& y, const Outcome& outcome,
                             const SoftmaxTrial& trial) {
  return x.element == Element::float64
             ? detail::check_backward_in<Wide>(g, x, y, outcome, trial)
             : detail::check_backward_in<long double>(g, x, y, outcome, trial);
}

/// Both directions of one call.
struct SoftmaxBoth {
  Outcome forward, backward;
};

/// Backward takes what forward gave, as the binding hands it on. `g` has the shape of x; logsumexp
/// takes the first of each row.
inline Rows gradient_for(const Rows& g, SoftmaxKind kind) {
  if (kind != SoftmaxKind::logsumexp) return g;
  Rows first(Element::float64, g.rows, 1);
  for (std::size_t r = 0; r < g.rows && g.length != 0; ++r) {
    // Bits as they are: callers set floating-point modes under which a subnormal is 0.
    const bool wide = g.element == Element::float64;
    first.bits[r] = wide ? g.bits[r * g.length] : encode(Element::float64, g.at(r, 0));
  }
  return first;
}

inline SoftmaxBoth both(const Rows& x, const Rows& g, const SoftmaxTrial& trial) {
  SoftmaxBoth result;
  result.forward = forward(x, trial);
  SoftmaxTrial there = trial;
  there.result = x.element;
  const bool per_row = trial.kind == SoftmaxKind::logsumexp;
  result.backward = backward(gradient_for(g, trial.kind), per_row ? x : result.forward.values,
                             result.forward.saved, there);
  return result;
}

inline Report check_both(const Rows& x, const Rows& g, const SoftmaxBoth& outcome,
                         const SoftmaxTrial& trial) {
  Report report = check_forward(x, outcome.forward, trial);
  const bool per_row = trial.kind == SoftmaxKind::logsumexp;
  report.merge(check_backward(gradient_for(g, trial.kind), x, per_row ? x : outcome.forward.values,
                              outcome.backward, trial));
  return report;
}

inline std::string difference(const SoftmaxBoth& a, const SoftmaxBoth& b) {
  const std::string out = difference(a.forward, b.forward);
  if (!out.empty()) return "forward: " + out;
  const std::string grad = difference(a.backward, b.backward);
  return grad.empty() ? "" : "backward: " + grad;
}

}  // namespace safeops::cases
