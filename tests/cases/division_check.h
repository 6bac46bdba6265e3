#pragma once

#include <cmath>
#include <cstddef>
#include <string>

#include "cases/division_oracle.h"
#include "cases/report.h"

namespace safeops::cases {

inline std::string spelled(const DivisionTrial& trial) {
  return std::string(name(trial.kind)) + (trial.backward ? " backward" : "") +
         " policy=" + std::string(name(trial.policy)) +
         (trial.eps ? " eps=" + text(*trial.eps) : "") + (trial.streams ? " streams" : "");
}

inline std::string spelled(const Inputs& inputs, std::size_t row) {
  std::string result;
  for (const Rows* rows : inputs) {
    if (rows != nullptr) result += (result.empty() ? "" : ", ") + describe(*rows, row);
  }
  return result;
}

namespace detail {

inline void check_hits(Report& report, const Hits& expected, const DivisionOutcome& outcome,
                       const DivisionTrial& trial) {
  const std::string differs = difference(outcome.hits, expected);
  if (!differs.empty()) report.fail(differs + " expected; " + spelled(trial));
  if (outcome.disturbed != 0)
    report.fail("memory outside the outputs was written; " + spelled(trial));
}

/// Compares one number and remembers the worst.
template <Number N>
void check_number(Report& report, const Expected<N>& expected, Element element, double computed,
                  const std::string& what, const DivisionTrial& trial, const Inputs& inputs,
                  std::size_t row) {
  using How = typename Expected<N>::How;
  if (expected.how == How::anything) return;
  if (expected.accepted && same_number(*expected.accepted, computed)) return;
  ++report.elements;
  const auto fail = [&](const std::string& why) {
    report.fail(what + ": got " + text(computed) + ", expected " + text(to_double(expected.value)) +
                why + "; " + spelled(trial) + " of " + spelled(inputs, row));
  };
  if (expected.how == How::rounded) {
    if (!same_number(nearest(element, expected.value), computed)) fail(" rounded once");
    return;
  }
  const double error = error_in(expected.unit, element, computed, expected.value);
  if (error > report.worst && !std::isinf(error)) {
    report.worst = error;
    report.witness = what + " of " + spelled(inputs, row);
  }
  if (!(error <= expected.bound))
    fail(", " + std::to_string(error) + " ulp off, " + std::to_string(expected.bound) + " allowed");
}

template <Number N>
Report check_forward(const Inputs& inputs, const DivisionOutcome& outcome,
                     const DivisionTrial& trial) {
  Report report;
  Hits expected;
  const bool divides = has_divisor(trial.kind);
  const Element element = first_of(inputs).element;
  const Dims sizes = sizes_of(trial, first_of(inputs).rows);
  const double threshold = threshold_of(trial, element);
  const bool by_number = inputs[1] == nullptr;
  for (std::size_t i = 0; i < first_of(inputs).rows; ++i) {
    const double a = input_at(inputs, 0, i, trial);
    const double b = divides ? input_at(inputs, 1, i, trial) : a;
    add_hits(expected, trial,
             divides ? condition_of_quotient(a, b, threshold) : condition_of_argument(b, threshold),
             number_of(trial, sizes, i), false);
    if (!writes(trial, 0)) continue;
    check_number(report, forward_value<N>(trial, element, a, b, by_number), element,
                 outcome.output[0].at(i, 0), "value", trial, inputs, i);
  }
  check_hits(report, expected, outcome, trial);
  return report;
}

template <Number N>
Report check_backward(const Inputs& inputs, const DivisionOutcome& outcome,
                      const DivisionTrial& trial) {
  constexpr const char* kWhat[] = {"first gradient", "second gradient"};
  Report report;
  Hits expected;
  const bool divides = has_divisor(trial.kind);
  const Element element = first_of(inputs).element;
  const Dims sizes = sizes_of(trial, first_of(inputs).rows);
  const double threshold = threshold_of(trial, element);
  for (std::size_t i = 0; i < first_of(inputs).rows; ++i) {
    const double g = input_at(inputs, 0, i, trial), b = input_at(inputs, 1, i, trial);
    const double a = input_at(inputs, 2, i, trial);
    add_hits(expected, trial,
             divides ? condition_of_quotient(a, b, threshold) : condition_of_argument(b, threshold),
             number_of(trial, sizes, i), g == 0);
    const ExpectedGradients<N> gradient = gradients<N>(trial, element, g, a, b);
    for (std::size_t k = 0; k < outputs_of(trial); ++k) {
      if (!writes(trial, k)) continue;
      check_number(report, gradient.of[k], element, outcome.output[k].at(i, 0), kWhat[k], trial,
                   inputs, i);
    }
  }
  check_hits(report, expected, outcome, trial);
  return report;
}

template <Number N>
Report check_division(const Inputs& inputs, const DivisionOutcome& outcome,
                      const DivisionTrial& trial) {
  return trial.backward ? check_backward<N>(inputs, outcome, trial)
                        : check_forward<N>(inputs, outcome, trial);
}

}  // namespace detail

/// Values or gradients, and hits, of a call on real numbers.
inline Report check_division(const Inputs& inputs, const DivisionOutcome& outcome,
                             const DivisionTrial& trial) {
  return first_of(inputs).element == Element::float64
             ? detail::check_division<Wide>(inputs, outcome, trial)
             : detail::check_division<long double>(inputs, outcome, trial);
}

}  // namespace safeops::cases
