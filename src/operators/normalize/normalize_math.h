// normalize: y = x / n, n = ||x||_p over the row.
//
// Derivation. With w = dn/dx, that is w_i = sign(x_i) (abs(x_i) / n)^(p - 1):
//   p = 2:    w = x / n = y
//   p = 1:    w = sign(x), 0 at a zero element (as torch)
//   p = inf:  w = sign(x) / k at the k elements with abs(x_i) = n, else 0 (ties share the slope)
//   dy_i/dx_j = (delta_ij - y_i w_j) / n, so grad_x = (g - w <g, y>) / n
//
// Singular: n is exactly zero (zero_norm), or 0 < n < eps (below_eps).
//   stock, epsilon   y = x / max(n, eps)   grad_x = g / eps
//   nan              y = NaN               grad_x = NaN
//   zero             y = 0                 grad_x = 0
//   raise            an error              an error, unless the row of g is zero: then 0
//
// Accuracy. Everything per row, and the division itself, is done in fp64: squares of float32 are
// exact there and can neither overflow nor underflow, so no such row needs care and y is correctly
// rounded but for double rounding (0.5000001 ulp). float64 has no wider type. Its squares leave the
// range of fp64 where n is outside [2^-450, 2^500]; such rows are measured again with every element
// scaled by a power of two. It divides by n instead of multiplying by 1 / n, which would be
// subnormal for the largest norms.
#if defined(SAFEOPS_NORMALIZE_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_NORMALIZE_MATH_H_
#undef SAFEOPS_NORMALIZE_MATH_H_
#else
#define SAFEOPS_NORMALIZE_MATH_H_
#endif

#include <limits>

#include "core/lanes_scalar.h"
#include "core/resolution.h"
#include "operators/normalize/normalize.h"

SAFEOPS_BEGIN_LANES

// n = root / scale, scale a power of two. Outside this file's measuring, scale is 1 unless n is not
// a normal number.
template <class Value>
struct Norm {
  Value root, scale;
};

// What is reduced to the norm, over x (forward) or over x beside the incoming gradient g
// (backward). For p = 2 the result is the square of the norm.
template <NormOrder kOrder, class Wide>
struct Measure {
  SAFEOPS_INLINE Wide operator()(Wide x, Wide sum) const {
    if constexpr (kOrder == NormOrder::two) {
      return mul_add(x, x, sum);
    } else {
      return magnitude(x) + sum;
    }
  }
};

template <NormOrder kOrder, size_t kInputs, class Row, class Value>
SAFEOPS_INLINE Value measure(Row& row, Value scale) {
  using Wide = typename Row::Wide;
  if constexpr (kOrder == NormOrder::infinity && kInputs == 1) {
    return row.max([](Wide x, Wide factor) SAFEOPS_LANES { return magnitude(x) * factor; }, scale);
  } else if constexpr (kOrder == NormOrder::infinity) {
    return row.max([](Wide, Wide x, Wide factor) SAFEOPS_LANES { return magnitude(x) * factor; },
                   scale);
  } else if constexpr (kInputs == 1) {
    return row.accumulate([](Wide x, Wide sum, Wide factor)
                              SAFEOPS_LANES { return Measure<kOrder, Wide>()(x * factor, sum); },
                          scale);
  } else {
    return row.accumulate([](Wide, Wide x, Wide sum, Wide factor)
                              SAFEOPS_LANES { return Measure<kOrder, Wide>()(x * factor, sum); },
                          scale);
  }
}

// Scales at which a float64 row outside the safe range is measured, and at which a norm that is not
// a normal number is kept. The latter are small: an element that x * 2^-64 loses has y = 0, while x
// * 2^-600 would lose some that count.
inline constexpr double kMeasureUp = 0x1p600, kMeasureDown = 0x1p-600, kKeepUp = 0x1p64,
                        kKeepDown = 0x1p-64;

template <class Value>
SAFEOPS_INLINE Norm<Value> kept(const Norm<Value>& measured) {
  const Value plain = measured.root / measured.scale;
  // A zero row has no range to keep: scaled, the largest eps would overflow beside it.
  const auto subnormal =
      (plain < Value(std::numeric_limits<double>::min())) & !(plain == Value(0.0));
  const auto overflowed = Value(std::numeric_limits<double>::max()) < plain;
  const Value scale =
      select(subnormal, Value(kKeepUp), select(overflowed, Value(kKeepDown), Value(1.0)));
  return {measured.root * (scale / measured.scale), scale};
}

template <NormOrder kOrder, class Row>
SAFEOPS_INLINE auto norm_of(Row& row) {
  using Wide = typename Row::Wide;
  using Value = typename Row::Value;
  Norm<Value> norm = {Value(1.0), Value(1.0)};
  if constexpr (kOrder == NormOrder::infinity) {
    norm.root = row.max([](Wide x) SAFEOPS_LANES { return magnitude(x); });
  } else {
    norm.root = row.accumulate([](Wide x, Wide sum)
                                   SAFEOPS_LANES { return Measure<kOrder, Wide>()(x, sum); });
  }
  if constexpr (Row::Stored::kElement == Element::float64) {
    const auto small = norm.root < Value(0x1p-900);
    const auto large = Value(0x1p1000) < norm.root;
    if (any(small | large)) {
      norm.scale = select(small, Value(kMeasureUp), select(large, Value(kMeasureDown), Value(1.0)));
      norm.root = measure<kOrder, 1>(row, norm.scale);
      if constexpr (kOrder == NormOrder::two) norm.root = root(norm.root);
      return kept(norm);
    }
  }
  if constexpr (kOrder == NormOrder::two) norm.root = root(norm.root);
  return norm;
}

// The norm again from what forward saved. A float64 norm near an end of the range has lost bits
// there, or is infinite although no element is, and is measured anew.
template <NormOrder kOrder, class Row>
SAFEOPS_INLINE auto saved_norm(Row& row) {
  using Value = typename Row::Value;
  Norm<Value> norm = {row.saved(), Value(1.0)};
  if constexpr (Row::Stored::kElement == Element::float64) {
    const auto small = norm.root < Value(0x1p-450);
    const auto large = Value(0x1p500) < norm.root;
    if (any(small | large)) {
      norm.scale = select(small, Value(kMeasureUp), select(large, Value(kMeasureDown), Value(1.0)));
      Value measured = measure<kOrder, 2>(row, norm.scale);
      if constexpr (kOrder == NormOrder::two) measured = root(measured);
      norm.root = select(small | large, measured, norm.root);
      return kept(norm);
    }
  }
  return norm;
}

template <class Value>
SAFEOPS_INLINE auto is_singular(const Norm<Value>& norm, const Resolution& policy) {
  return (norm.root == Value(0.0)) | (norm.root < Value(policy.threshold) * norm.scale);
}

template <class Stored, class Value>
SAFEOPS_INLINE bool any_unusual(const Norm<Value>& norm, const Resolution& policy) {
  const auto low = at_least(Value(policy.threshold), Value(Stored::kLowestNorm)) * norm.scale;
  // Written so that NaN is unusual: every comparison with it is false.
  const auto usual = (low < norm.root) & (norm.root < Value(Stored::kHighestNorm) * norm.scale);
  return any(!usual);
}

// Only unusual rows get here: singular, not finite, or with a square outside the normal range of
// the dtype.
template <class Row, class Value>
SAFEOPS_INLINE void report_norm(Row& row, const Norm<Value>& norm, const Resolution& policy) {
  using Stored = typename Row::Stored;
  const auto zero = norm.root == Value(0.0);
  const auto finite = norm.root < Value(std::numeric_limits<double>::infinity());
  const auto low = norm.root < Value(Stored::kLowestNorm) * norm.scale;
  const auto high = Value(Stored::kHighestNorm) * norm.scale < norm.root;
  row.report(Condition::zero_norm, zero);
  row.report(Condition::below_eps, (norm.root < Value(policy.threshold) * norm.scale) & !zero);
  row.report(Condition::nonfinite_input, !finite);
  row.report(Condition::rescued, finite & !zero & (low | high));
}

template <class Stored, class Value>
SAFEOPS_INLINE Value denominator(const Norm<Value>& norm, const Resolution& policy) {
  // Narrower types multiply by 1 / floor, which must be finite. What they hold overflows, or is 0,
  // over any smaller floor as well.
  const bool too_small =
      Stored::kElement != Element::float64 && 0 < policy.floor && policy.floor < 0x1p-1000;
  return at_least(norm.root, Value(too_small ? 0x1p-1000 : policy.floor) * norm.scale);
}

// float32 has bits enough for a float16 or bfloat16 result (0.5003 ulp), but not the range for 1 /
// n of every bfloat16 row, so n is brought near 1 first.
template <class Row, class Value, class Singular>
SAFEOPS_INLINE void write_half(Row& row, Value divisor, Singular singular,
                               const Resolution& policy) {
  using Real = typename Row::Real;
  const Value scale = select(divisor < Value(0x1p-64), Value(0x1p64),
                             select(Value(0x1p64) < divisor, Value(0x1p-64), Value(1.0)));
  const Value inverse = Value(1.0) / (divisor * scale);
  // A zero row may have a floor that float32 cannot invert: 0 times infinity would be NaN. Without
  // a floor NaN is right.
  const Value largest(0x1p127), infinity(std::numeric_limits<double>::infinity());
  row.write(
      singular, policy,
      [](Real x, Real factor, Real reciprocal) SAFEOPS_LANES { return x * factor * reciprocal; },
      scale, select((largest < inverse) & (inverse < infinity), largest, inverse));
}

template <NormOrder kOrder, class Row>
SAFEOPS_INLINE void normalize_forward_row(Row& row, const Resolution& policy) {
  using Wide = typename Row::Wide;
  using Value = typename Row::Value;
  const Norm<Value> norm = norm_of<kOrder>(row);
  row.save(norm.root / norm.scale);
  const auto singular = is_singular(norm, policy);
  if (any_unusual<typename Row::Stored>(norm, policy)) {
    report_norm(row, norm, policy);
    row.report_raising(singular);
  }
  const Value divisor = denominator<typename Row::Stored>(norm, policy);
  if constexpr (Row::Stored::kHalf) {
    write_half(row, divisor, singular, policy);
  } else if constexpr (Row::Stored::kElement != Element::float64) {
    row.write(
        singular, policy, [](Wide x, Wide inverse) SAFEOPS_LANES { return x * inverse; },
        Value(1.0) / divisor);
  } else {
    row.write(
        singular, policy,
        [](Wide x, Wide factor, Wide by) SAFEOPS_LANES { return x * factor / by; }, norm.scale,
        divisor);
  }
}

// dn/dx. `y` is x / n, `scaled` is x times the scale of the norm, in which a small element may
// vanish; `share` is 1 over the number of ties.
template <NormOrder kOrder, class Wide>
SAFEOPS_INLINE Wide slope(Wide x, Wide scaled, Wide y, Wide n, Wide share) {
  const Wide zero(0.0);
  if constexpr (kOrder == NormOrder::two) {
    return y;
  } else if constexpr (kOrder == NormOrder::one) {
    return select(x == zero, zero, copy_sign(Wide(1.0), x));
  } else {
    return select(magnitude(scaled) == n, copy_sign(share, scaled), zero);
  }
}

template <NormOrder kOrder, class Row, class Value>
SAFEOPS_INLINE Value share_of_ties(Row& row, const Norm<Value>& norm) {
  using Wide = typename Row::Wide;
  if constexpr (kOrder == NormOrder::infinity) {
    return Value(1.0) / row.accumulate(
                            [](Wide, Wide x, Wide count, Wide factor, Wide n) SAFEOPS_LANES {
                              return count +
                                     select(magnitude(x * factor) == n, Wide(1.0), Wide(0.0));
                            },
                            norm.scale, norm.root);
  } else {
    return Value(1.0);
  }
}

// The divisor of y inside the gradient. Infinite on a singular row, which makes y and the slope
// along it 0 even where the floor is 0: there stock's gradient is g / 0.
template <class Value, class Singular>
SAFEOPS_INLINE Value divisor_of_y(Singular singular, Value divisor) {
  return select(singular, Value(std::numeric_limits<double>::infinity()), divisor);
}

// grad_x where no element leaves the range of fp64 on the way.
template <NormOrder kOrder, class Row, class Value, class Singular>
SAFEOPS_INLINE void write_gradient(Row& row, const Norm<Value>& norm, Singular singular,
                                   const Resolution& policy) {
  using Wide = typename Row::Wide;
  const Value inverse = Value(1.0) / denominator<typename Row::Stored>(norm, policy);
  const Value inverse_of_y =
      Value(1.0) / divisor_of_y(singular, denominator<typename Row::Stored>(norm, policy));
  const Value share = share_of_ties<kOrder>(row, norm);
  const Value dot = row.accumulate([](Wide g, Wide x, Wide sum, Wide to_y)
                                       SAFEOPS_LANES { return mul_add(g, x * to_y, sum); },
                                   inverse_of_y);
  row.write(
      singular, policy,
      [](Wide g, Wide x, Wide along, Wide to_y, Wide reciprocal, Wide n, Wide part) SAFEOPS_LANES {
        return (g - slope<kOrder>(x, x, x * to_y, n, part) * along) * reciprocal;
      },
      select(singular, Value(0.0), dot), inverse_of_y, inverse, norm.root, share);
}

// The power of two at which g is taken for a float64 row: 2^-64 where <g, y> may overflow although
// the gradient does not, 2^500 where all of g is so small that its products are subnormal, else 1.
template <class Row, class Value>
SAFEOPS_INLINE Value scale_of_gradient(Row& row, Value dot) {
  using Wide = typename Row::Wide;
  const auto fits = magnitude(dot) < Value(0x1p960), small = magnitude(dot) < Value(0x1p-900);
  Value scale = select(fits, Value(1.0), Value(0x1p-64));
  if (any(small)) {
    const Value largest = row.max([](Wide g, Wide) SAFEOPS_LANES { return magnitude(g); });
    scale = select(small & (largest < Value(0x1p-500)), Value(0x1p500), scale);
  }
  return scale;
}

// The same for float64, which has no wider type to catch what leaves its range.
template <NormOrder kOrder, class Row, class Value, class Singular>
SAFEOPS_INLINE void write_scaled_gradient(Row& row, const Norm<Value>& norm, Singular singular,
                                          const Resolution& policy) {
  using Wide = typename Row::Wide;
  // A floor divides each element of g as it is: no scale belongs to it.
  const Value divisor = select(singular, Value(policy.floor), norm.root);
  const Value row_scale = select(singular, Value(1.0), norm.scale);
  const Value to_y = divisor_of_y(singular, divisor);
  const Value share = share_of_ties<kOrder>(row, norm);
  const auto product = [](Wide g, Wide x, Wide sum, Wide factor, Wide by, Wide scale)
                           SAFEOPS_LANES { return mul_add(g * scale, x * factor / by, sum); };
  Value dot = row.accumulate(product, norm.scale, to_y, Value(1.0));
  const Value g_scale = select(singular, Value(1.0), scale_of_gradient(row, dot));
  if (any(!(g_scale == Value(1.0)))) dot = row.accumulate(product, norm.scale, to_y, g_scale);
  // The scales are undone on whichever side of the division keeps the quotient a normal number.
  const Value undo = row_scale / g_scale;
  const auto before = (Value(1.0) < undo) & (Value(1.0) < divisor);
  row.write(
      singular, policy,
      [](Wide g, Wide x, Wide along, Wide factor, Wide by_y, Wide by, Wide scale, Wide after,
         Wide n, Wide part) SAFEOPS_LANES {
        const Wide scaled = x * factor;
        const Wide w = slope<kOrder>(x, scaled, scaled / by_y, n, part);
        return (g * scale - w * along) / by * after;
      },
      select(singular, Value(0.0), dot), norm.scale, to_y, select(before, divisor / undo, divisor),
      g_scale, select(before, Value(1.0), undo), norm.root, share);
}

template <NormOrder kOrder, class Row>
SAFEOPS_INLINE void normalize_backward_row(Row& row, const Resolution& policy) {
  using Wide = typename Row::Wide;
  using Value = typename Row::Value;
  const Norm<Value> norm = saved_norm<kOrder>(row);
  const auto singular = is_singular(norm, policy);
  if (any_unusual<typename Row::Stored>(norm, policy)) {
    report_norm(row, norm, policy);
    if (any(singular)) {
      const Value largest = row.max([](Wide g, Wide) SAFEOPS_LANES { return magnitude(g); });
      row.report_raising(singular & !(largest == Value(0.0)));
    }
  }
  if constexpr (Row::Stored::kElement != Element::float64) {
    write_gradient<kOrder>(row, norm, singular, policy);
  } else {
    write_scaled_gradient<kOrder>(row, norm, singular, policy);
  }
}

SAFEOPS_END_LANES

#endif
