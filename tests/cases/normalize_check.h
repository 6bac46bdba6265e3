#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "cases/normalize_oracle.h"
#include "cases/report.h"

namespace safeops::cases {

inline std::string spelled(const Trial& trial) {
  return "p=" + std::to_string(trial.p) + (trial.complex ? " complex" : "") +
         " road=" + kRoadNames[static_cast<int>(trial.road)] +
         " threshold=" + text(trial.policy.threshold) + " floor=" + text(trial.policy.floor) +
         (trial.policy.fills ? " fill=" + text(trial.policy.fill) : "") +
         (trial.input.kind == RowLayout::Kind::side_by_side ? " side_by_side" : " contiguous");
}

namespace detail {

inline void check_hit(Report& report, const char* what, const Expected& expected, const Hit& hit,
                      const Trial& trial) {
  if (expected.holds(hit)) return;
  report.fail(std::string(what) + " counted " + std::to_string(hit.count) + " rows, first " +
              std::to_string(hit.first) + "; expected " + std::to_string(expected.least.count) +
              ".." + std::to_string(expected.most.count) + " rows, first " +
              std::to_string(expected.most.first) + "; " + spelled(trial));
}

inline void check_hits(Report& report, ExpectedHits& expected, const Hits& hits,
                       const Trial& trial) {
  for (int i = 0; i < kConditions; ++i) {
    const auto condition = static_cast<Condition>(i);
    check_hit(report, std::string(name(condition)).c_str(), expected[condition], hits[condition],
              trial);
  }
  check_hit(report, "raising", expected.raising, hits.raising, trial);
}

/// In ulp of float64. Below that type the saved norm only has to be too good to show in a rounded
/// result.
inline double saved_bound(const Rows& x, const Trial& trial) {
  return x.element == Element::float64 ? forward_bound(x.element, trial.p, trial.complex, x.length)
                                       : 0x1p16;
}

inline void check_saved(Report& report, const Rows& x, std::size_t row, const Norm& norm,
                        double saved, const Trial& trial) {
  const auto wrong = [&](const std::string& why) {
    report.fail("row " + std::to_string(row) + " saved " + text(saved) + ": " + why + "; " +
                spelled(trial) + "; " + describe(x, row));
  };
  if (!trial.save) {
    if (saved != kNeverSaved) wrong("saved although nothing was asked for");
  } else if (norm.has_nan) {
    if (!std::isnan(saved)) wrong("the norm is NaN");
  } else if (norm.value.is_infinite() || norm.value.is_zero()) {
    if (saved != norm.value.to_double() || std::signbit(saved))
      wrong("the norm is " + text(norm.value.to_double()));
  } else {
    const double bound = saved_bound(x, trial);
    const double error = error_in_ulp(Element::float64, saved, norm.value);
    if (!(error <= bound))
      wrong(std::to_string(error) + " ulp from the norm " + text(norm.value.to_double()));
  }
}

/// What the denominator of a singular row is raised to, under the policies that do not fill.
inline Wide floored(const Norm& norm, const Trial& trial) {
  return max(norm.value, trial.policy.floor);
}

inline bool is_singular(RowClass row_class) {
  return row_class == RowClass::zero_norm || row_class == RowClass::below_eps;
}

inline void check_forward_row(Report& report, const Rows& x, std::size_t row, const Norm& norm,
                              RowClass row_class, const Rows& y, const Trial& trial) {
  Measure measure(report, x.element, x, trial);
  const bool singular = is_singular(row_class);
  const double bound = forward_bound(x.element, trial.p, trial.complex, x.length);
  const Wide denominator = singular ? floored(norm, trial) : norm.value;
  for (std::size_t i = 0; i < x.length; ++i) {
    const double value = x.at(row, i), computed = y.at(row, i);
    if (singular && trial.policy.fills) {
      if (computed != trial.policy.fill &&
          !(std::isnan(computed) && std::isnan(trial.policy.fill))) {
        measure.wrong(row, i, computed, "the fill " + text(trial.policy.fill));
      }
      continue;
    }
    const Wide exact = norm.has_nan ? Wide(kNaN) : Wide(value) / denominator;
    const bool finite = !exact.is_nan() && !exact.is_infinite();
    measure(row, i, computed, exact, finite ? ulp(x.element, exact) : Wide(1.0), bound);
    if (finite && exact.is_zero() && std::signbit(computed) != std::signbit(value)) {
      measure.wrong(row, i, computed, "a zero with the sign of x");
    }
  }
}

inline void check_backward_row(Report& report, const Rows& g, const Rows& x, std::size_t row,
                               const Norm& norm, RowClass row_class, const Rows& grad,
                               const Trial& trial) {
  Measure measure(report, g.element, g, trial, &x);
  const double bound = backward_bound(g.element, trial.p, trial.complex, g.length);
  if (!is_singular(row_class)) {
    const Wide divisor = norm.has_nan ? Wide(kNaN) : norm.value;
    const Gradient exact = gradient_of_row(g, x, row, divisor, trial.p, trial.complex);
    for (std::size_t i = 0; i < g.length && !exact.open; ++i) {
      measure(row, i, grad.at(row, i), exact.value[i], exact.unit[i], bound);
    }
    return;
  }
  for (std::size_t i = 0; i < g.length; ++i) {
    const double computed = grad.at(row, i);
    if (trial.policy.fills && trial.policy.fill == 0 && computed != 0)
      measure.wrong(row, i, computed, "exactly 0");
    const Wide exact =
        trial.policy.fills ? Wide(trial.policy.fill) : Wide(g.at(row, i)) / floored(norm, trial);
    const bool finite = !exact.is_nan() && !exact.is_infinite();
    measure(row, i, computed, exact, finite ? ulp(g.element, exact) : Wide(1.0), bound);
  }
}

}  // namespace detail

/// Values, saved norms and hits of a forward call on x.
inline Report check_forward(const Rows& x, const Outcome& outcome, const Trial& trial) {
  Report report;
  ExpectedHits expected;
  if (outcome.disturbed != 0)
    report.fail("memory outside the output rows was written; " + spelled(trial));
  for (std::size_t r = 0; r < x.rows; ++r) {
    const Norm norm = norm_of(x, r, trial.p, trial.complex);
    const RowClass row_class = classify(norm, trial.policy.threshold, norm_is_exact(x, trial));
    expected.add(norm, row_class, x.element, r, true);
    if (is_open(norm, trial)) continue;
    detail::check_saved(report, x, r, norm, outcome.saved[r], trial);
    if (row_class == RowClass::undecided || trial.inspect) continue;
    detail::check_forward_row(report, x, r, norm, row_class, outcome.values, trial);
  }
  if (trial.inspect && !(outcome.values == untouched(x)))
    report.fail("an inspecting call wrote values");
  detail::check_hits(report, expected, outcome.hits, trial);
  return report;
}

/// Values and hits of a backward call on g, x and the norms that forward saved.
inline Report check_backward(const Rows& g, const Rows& x, const Outcome& outcome,
                             const Trial& trial) {
  Report report;
  ExpectedHits expected;
  if (outcome.disturbed != 0)
    report.fail("memory outside the output rows was written; " + spelled(trial));
  for (std::size_t r = 0; r < g.rows; ++r) {
    const Norm norm = norm_of(x, r, trial.p, trial.complex);
    const RowClass row_class = classify(norm, trial.policy.threshold, norm_is_exact(x, trial));
    expected.add(norm, row_class, x.element, r, !g.row_is_zero(r));
    if (row_class == RowClass::undecided || trial.inspect || is_open(norm, trial)) continue;
    detail::check_backward_row(report, g, x, r, norm, row_class, outcome.values, trial);
  }
  if (trial.inspect && !(outcome.values == untouched(g)))
    report.fail("an inspecting call wrote values");
  detail::check_hits(report, expected, outcome.hits, trial);
  return report;
}

}  // namespace safeops::cases
