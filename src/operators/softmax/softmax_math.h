// softmax:      y_i = e^x_i / s,   s = sum_j e^x_j over the elements of the row that take part
// log_softmax:  y_i = x_i - ln s
// logsumexp:    r   = ln s
//
// Derivation. dy_i/dx_j = y_i (delta_ij - y_j), and d(ln s)/dx_j = e^x_j / s, so with the incoming
// gradient g (logsumexp: one number for the row)
//   softmax:      grad_x = y (g - <g, y>)
//   log_softmax:  grad_x = g - e^y sum_j g_j
//   logsumexp:    grad_x = g e^(x - r)
//
// Singular: the largest element that takes part is -inf, or none takes part (empty_row); then s =
// 0.
//                    softmax   log_softmax            logsumexp   gradient
//   stock, nan       NaN       NaN                    -inf        NaN
//   epsilon          0         ln eps (masked: -inf)  -inf        0
//   zero             0         -inf                   -inf        0
//   raise            an error  an error               an error    an error, 0 where g is 0
//
// A row with a NaN is NaN. A row with +inf is NaN too; its logsumexp is +inf, with the gradient
// that e^(x - r) gives: NaN at +inf, 0 elsewhere. A row whose largest element is the lowest finite
// value of its dtype is regular, and noticed: code that masks with that value gets a uniform row.
//
// Accuracy. Terms have an error below 1 ulp (core/exponential.h) and are added in fp64, so s is as
// good as the worst of them and the division, done in two parts, adds half an ulp. What measured
// worst is in docs/benchmarks.md.
#if defined(SAFEOPS_SOFTMAX_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_SOFTMAX_MATH_H_
#undef SAFEOPS_SOFTMAX_MATH_H_
#else
#define SAFEOPS_SOFTMAX_MATH_H_
#endif

#include <limits>

#include "core/exponential.h"
#include "core/hits.h"
#include "core/resolution.h"

SAFEOPS_BEGIN_LANES

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The largest element, and the sum of the terms relative to `level`: the peak, or up to 1 below it.
// `lost` is what additions of slices rounded away.
template <class Value>
struct Mass {
  Value peak, level, sum, lost;
  SAFEOPS_INLINE Value total() const { return sum + lost; }
};

template <class Real>
inline constexpr bool is_float = std::is_same_v<typename ScalarOf<Real>::Type, float>;

template <class Real>
struct Term {
  SAFEOPS_INLINE Real operator()(Real x, Real shift, Real lowest, Real power) const {
    return relative_exponential(x, shift, lowest, power);
  }
};

// A term times a factor in two parts.
template <class Real>
struct ScaledTerm {
  SAFEOPS_INLINE Real operator()(Real x, Real shift, Real lowest, Real power, Real high,
                                 Real low) const {
    const Real term = relative_exponential(x, shift, lowest, power);
    return mul_add(term, high, term * low);
  }
};

template <class Real, bool kKeeps>
struct MassOf {
  template <class Span>
  SAFEOPS_INLINE Mass<typename Span::Value> operator()(const Span& span) const {
    using Value = typename Span::Value;
    const Term<Real> term;
    const Value peak = span.max([](Real x) SAFEOPS_LANES { return x; });
    const Reference<Value> at = reference_at<Real>(peak);
    if constexpr (kKeeps) {
      return {peak, peak, span.sum_keeping(term, at.shift, at.lowest, at.power), Value(0.0)};
    } else {
      return {peak, peak, span.sum(term, at.shift, at.lowest, at.power), Value(0.0)};
    }
  }

  // The level follows the peak in steps of at least 1: each step then damps what earlier ones
  // rounded by e, while a level that followed a slow rise would round every time, with one sign.
  SAFEOPS_INLINE Mass<double> merge(const Mass<double>& a, const Mass<double>& b) const {
    const double level = b.level > a.level + 1 ? b.level : a.level;
    const Reference<double> at = reference_at<Real>(level);
    const double a_weight = weight(a, at), b_weight = weight(b, at);
    const double kept = a.sum * a_weight, added = b.sum * b_weight;
    const double sum = kept + added, shifted = sum - kept;  // Knuth's TwoSum
    const double rounded_away = (kept - (sum - shifted)) + (added - shifted);
    return {larger(a.peak, b.peak), level, sum,
            a.lost * a_weight + b.lost * b_weight + rounded_away};
  }

 private:
  // What turns terms relative to their own level into terms relative to `at`. The difference d has
  // an error of d 2^-53, which e^-d makes harmless.
  static SAFEOPS_INLINE double weight(const Mass<double>& mass, const Reference<double>& at) {
    if (mass.sum == 0) return 0;  // of an empty slice, whose reference says nothing
    const Reference<double> from = reference_at<Real>(mass.level);
    if (from.shift == at.shift)
      return scale_by_power(1.0, at_least(from.power - at.power, -2000.0));
    return exponential(at_least(from.logarithm() - at.logarithm(), -800.0), 0.0);
  }
};

template <class Value>
SAFEOPS_INLINE auto is_empty(Value peak) {
  return peak == Value(-kInfinity);
}
template <class Value>
SAFEOPS_INLINE auto is_finite(Value x) {
  return magnitude(x) < Value(kInfinity);
}

// ln s - peak; NaN where the peak is not finite. The sum is divided by the peak's own term as the
// elements computed it, so that a row in which one element outweighs the others gives 0, and not
// the error of that term.
template <class Real, class Value>
SAFEOPS_INLINE Value logarithm_above(const Mass<Value>& mass) {
  const Reference<Value> at = reference_at<Real>(mass.level);
  const Value own = on_value<Real>(Term<Real>(), mass.peak, at.shift, at.lowest, at.power);
  return select(is_finite(mass.peak), natural_logarithm(mass.total() / own), Value(kNaN));
}

template <class Row, class Value>
SAFEOPS_INLINE void report_forward(Row& row, Value peak) {
  const auto above_lowest = row.lowest() < peak;
  if (!any(!(is_finite(peak) & above_lowest))) return;
  const auto empty = is_empty(peak);
  row.report(Condition::empty_row, empty);
  row.report(Condition::nonfinite_input, !(peak < Value(kInfinity)));
  row.report(Condition::finite_min_row, peak == row.lowest());
  row.report_raising(empty);
}

template <class Row>
SAFEOPS_INLINE void softmax_forward_row(Row& row, const Resolution& policy) {
  using Real = typename Row::Real;
  using Value = typename Row::Value;
  const Mass<Value> mass = row.fold(MassOf<Real, true>());
  row.save(mass.peak);
  report_forward(row, mass.peak);
  const auto empty = is_empty(mass.peak);
  const Value inverse = Value(1.0) / select(is_finite(mass.peak), mass.total(), Value(kNaN));
  const Value high = rounded_to<Real>(inverse), low = inverse - high;
  if (row.kept()) {
    row.write_kept(
        empty, policy,
        [](Real term, Real h, Real l) SAFEOPS_LANES { return mul_add(term, h, term * l); }, high,
        low);
  } else {
    const Reference<Value> at = reference_at<Real>(mass.level);
    row.write(empty, policy, ScaledTerm<Real>(), at.shift, at.lowest, at.power, high, low);
  }
}

template <class Row>
SAFEOPS_INLINE void log_softmax_forward_row(Row& row, const Resolution& policy) {
  using Real = typename Row::Real;
  using Value = typename Row::Value;
  const Mass<Value> mass = row.fold(MassOf<Real, false>());
  row.save(mass.peak);
  report_forward(row, mass.peak);
  // Neither difference cancels: x <= peak, and the logarithm is not negative but for rounding. Each
  // step adds half an ulp.
  row.write(
      is_empty(mass.peak), policy,
      [](Real x, Real peak, Real above) SAFEOPS_LANES { return (x - peak) - above; }, mass.peak,
      logarithm_above<Real>(mass));
}

template <class Row>
SAFEOPS_INLINE void logsumexp_forward_row(Row& row, const Resolution&) {
  using Real = typename Row::Real;
  using Value = typename Row::Value;
  const Mass<Value> mass = row.fold(MassOf<Real, false>());
  report_forward(row, mass.peak);
  row.save(select(is_finite(mass.peak), mass.peak + logarithm_above<Real>(mass), mass.peak));
}

// `level` is the peak that forward saved, or the logarithm of s.
template <class Row, class Value>
SAFEOPS_INLINE void report_backward(Row& row, Value level) {
  row.report(Condition::empty_row, is_empty(level));
  row.report(Condition::nonfinite_input, !(level < Value(kInfinity)));
}
template <class Row, class Value>
SAFEOPS_INLINE void report_elements_backward(Row& row, Value peak) {
  using Real = typename Row::Real;
  if (!any(!is_finite(peak))) return;
  report_backward(row, peak);
  const auto empty = is_empty(peak);
  if (!any(empty)) return;
  const Value largest = row.max([](Real g, Real) SAFEOPS_LANES { return magnitude(g); });
  row.report_raising(empty & !(largest == Value(0.0)));
}

// The largest of what a difference with the incoming gradient cannot overflow with: half a unit in
// the last place of the largest number, or less. NaN is beyond it, too.
template <class Real, class Value>
SAFEOPS_INLINE auto may_overflow(Value sum) {
  return !(magnitude(sum) < Value(is_float<Real> ? 0x1p100 : 0x1p969));
}

template <class Row>
SAFEOPS_INLINE void softmax_backward_row(Row& row, const Resolution& policy) {
  using Real = typename Row::Real;
  using Wide = typename Row::Wide;
  using Value = typename Row::Value;
  const Value peak = row.saved();
  report_elements_backward(row, peak);
  const auto empty = is_empty(peak);
  const Value dot = row.sum([](Real g, Real y) SAFEOPS_LANES { return g * y; });
  // In two parts, because g may be close to it.
  const Value high = rounded_to<Real>(dot), low = dot - high;
  const auto large = may_overflow<Real>(dot);
  if (any(large)) {
    const Value down = select(large, Value(0.25), Value(1.0));
    const Value quarter = row.accumulate([](Wide g, Wide y, Wide sum, Wide scale)
                                             SAFEOPS_LANES { return mul_add(g * scale, y, sum); },
                                         down);
    const Value first = select(large, rounded_to<Real>(quarter), high);
    const Value rest = select(is_finite(first), quarter - first, Value(0.0));
    row.write(
        empty, policy,
        [](Real g, Real y, Real h, Real l, Real scale, Real undo)
            SAFEOPS_LANES { return ((g * scale - h) - l) * (y * undo); },
        first, select(large, rest, low), down, Value(1.0) / down);
  } else {
    row.write(
        empty, policy,
        [](Real g, Real y, Real h, Real l) SAFEOPS_LANES { return ((g - h) - l) * y; }, high, low);
  }
}

// Where terms are taken from, and what they are multiplied with.
template <class Value>
struct ScaledReference {
  Reference<Value> at;
  Value factor;
};

// In float32 the power of two of the factor moves into the terms: a large factor may lift one that
// would vanish without it, and the largest factors are beyond float32 where the products are not.
template <class Real, class Value>
SAFEOPS_INLINE ScaledReference<Value> scaled(Reference<Value> at, Value factor) {
  if constexpr (is_float<Real>) {
    const Value size = magnitude(factor);
    const auto ordinary = (Value(0x1p-34) < size) & (size < Value(0x1p140));
    const Value power = select(ordinary, exponent(size), Value(0.0));
    at.power = at.power - power;
    at.lowest = at.lowest - at_least(power, Value(0.0)) * Value(kLn2);
    return {at, scale_by_power(factor, -power)};
  } else {
    return {at, factor};
  }
}

template <class Row>
SAFEOPS_INLINE void log_softmax_backward_row(Row& row, const Resolution& policy) {
  using Real = typename Row::Real;
  using Wide = typename Row::Wide;
  using Value = typename Row::Value;
  const Value peak = row.saved();
  report_elements_backward(row, peak);
  const auto empty = is_empty(peak);
  const Reference<Value> origin = reference_at<Real>(Value(0.0));
  const Value total = row.sum([](Real g, Real) SAFEOPS_LANES { return g; });
  const auto large = may_overflow<Real>(total);
  if (any(large)) {
    // The sum of a whole row needs more room than a quarter of its product with e^y.
    const Value down = select(large, Value(0.25), Value(1.0));
    const Value far_down = select(large, Value(0x1p-64), Value(1.0));
    const Value small = row.accumulate([](Wide g, Wide, Wide sum, Wide scale)
                                           SAFEOPS_LANES { return mul_add(g, scale, sum); },
                                       far_down);
    const auto [at, factor] =
        scaled<Real>(origin, select(large, is_float<Real> ? small * Value(0x1p62) : small, total));
    row.write(
        empty, policy,
        [](Real g, Real y, Real shift, Real lowest, Real power, Real sum, Real scale, Real lift,
           Real undo) SAFEOPS_LANES {
          const Real product = relative_exponential(y, shift, lowest, power) * sum;
          return (g * scale - product * lift) * undo;
        },
        at.shift, at.lowest, at.power, factor, down, is_float<Real> ? Value(1.0) : down / far_down,
        Value(1.0) / down);
  } else {
    const auto [at, factor] = scaled<Real>(origin, total);
    row.write(
        empty, policy,
        [](Real g, Real y, Real shift, Real lowest, Real power, Real sum)
            SAFEOPS_LANES { return g - relative_exponential(y, shift, lowest, power) * sum; },
        at.shift, at.lowest, at.power, factor);
  }
}

template <class Mask, class Value>
SAFEOPS_INLINE ScaledReference<Value> select(Mask mask, const ScaledReference<Value>& yes,
                                             const ScaledReference<Value>& no) {
  return {{select(mask, yes.at.shift, no.at.shift), select(mask, yes.at.lowest, no.at.lowest),
           select(mask, yes.at.power, no.at.power)},
          select(mask, yes.factor, no.factor)};
}

template <class Real, class Value>
SAFEOPS_INLINE ScaledReference<Value> usual_reference(Value gradient, Value result) {
  const Reference<Value> at = reference_at<Real>(result);
  // The shift is close to the result: added to the rest first, it would swallow it.
  const Value above = (at.shift - result) + at.power * Value(kLn2);
  const Value factor = exponential(select(is_finite(result), above, Value(0.0)), Value(0.0));
  return scaled<Real>(at, gradient * factor);
}

// What gives g e^(x - r). A rounded r near 700 would cost float64 ten bits of e^(x - r), and beyond
// 2^26 fp64 has no room for the logarithm of a float32 row beside its peak: measured again.
template <class Row, class Value>
SAFEOPS_INLINE ScaledReference<Value> gradient_reference(Row& row, Value result) {
  using Real = typename Row::Real;
  const auto unusual = Value(0x1p26) < magnitude(result);
  if (!is_float<Real> || any(unusual)) {
    const Mass<Value> mass = row.fold(MassOf<Real, false>());
    const ScaledReference<Value> measured =
        scaled<Real>(reference_at<Real>(mass.level), row.gradient() / mass.total());
    if constexpr (!is_float<Real>) return measured;
    return select(unusual, measured, usual_reference<Real>(row.gradient(), result));
  }
  return usual_reference<Real>(row.gradient(), result);
}

template <class Row>
SAFEOPS_INLINE void logsumexp_backward_row(Row& row, const Resolution& policy) {
  using Real = typename Row::Real;
  using Value = typename Row::Value;
  const Value result = row.saved();
  const auto empty = is_empty(result);
  ScaledReference<Value> terms = gradient_reference(row, result);
  if (any(!is_finite(result))) {
    report_backward(row, result);
    const auto matters = !(row.gradient() == Value(0.0));
    row.report_raising(empty & matters);
    // Under r = +inf, x - r itself is what the gradient is made of; NaN reaches all of the row.
    const auto infinite = result == Value(kInfinity);
    terms.at.shift = select(infinite, result, terms.at.shift);
    terms.factor = select(infinite, row.gradient(), select(result == result, terms.factor, result));
  }
  const Value high = rounded_to<Real>(terms.factor);
  const Value low = select(is_finite(high), terms.factor - high, Value(0.0));
  row.write(empty, policy, ScaledTerm<Real>(), terms.at.shift, terms.at.lowest, terms.at.power,
            high, low);
}

SAFEOPS_END_LANES

#endif
