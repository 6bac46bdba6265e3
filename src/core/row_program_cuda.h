// What the Rows of the device share: how the lambdas of a program meet elements, and what a program
// asks of a row besides its elements.
#pragma once

#include <limits>

#include "core/memory_cuda.h"
#include "core/report_cuda.h"
#include "core/row_cursor.h"

SAFEOPS_BEGIN_LANES

// How the operands of a program are stored. Arithmetic is that of the inputs. Operands that the CPU
// would stage may be masked, and the output may be of another type.
template <class In, size_t kCount, bool kMayBeStaged>
struct RowOperands {
  using Input = In;
  using Real = RealOf<In>;
  using Stored = ElementTraits<In>;
  static constexpr size_t kInputs = kCount;
  static constexpr bool kStaged = kMayBeStaged;
};

// One launch: a parameter of the kernel, read where it lies.
struct RowCall {
  RowArguments arguments;
  HitSink sink;
};

// The condition of a row whose threads meet those of other rows in shuffles or at barriers. A
// branch on it must not part them: it is taken by all if by any. Programs allow that, because they
// are written for vectors of rows; what a branch changes it selects by mask.
template <class Vote>
struct VotedMask {
  bool raw;

  friend SAFEOPS_INLINE VotedMask operator&(VotedMask a, VotedMask b) { return {a.raw && b.raw}; }
  friend SAFEOPS_INLINE VotedMask operator|(VotedMask a, VotedMask b) { return {a.raw || b.raw}; }
  friend SAFEOPS_INLINE VotedMask operator!(VotedMask a) { return {!a.raw}; }
  friend SAFEOPS_INLINE bool any(VotedMask a) { return Vote::any(a.raw); }
  friend SAFEOPS_INLINE bool is_set(VotedMask a) { return a.raw; }
};
template <class Vote>
using Voted = Lanes<double, VotedMask<Vote>>;

struct WarpVote {
  static SAFEOPS_INLINE bool any(bool mine) { return __any_sync(kWholeWarp, mine) != 0; }
};

SAFEOPS_INLINE double number(double x) { return x; }
template <class Mask>
SAFEOPS_INLINE double number(Lanes<double, Mask> x) {
  return x.raw;
}
template <class Real, class F, class Vote, class... P>
SAFEOPS_INLINE Voted<Vote> on_value(F f, Lanes<double, VotedMask<Vote>> x, P... p) {
  return on_value<Real>(f, x.raw, p.raw...);
}
template <class Real, class Vote>
SAFEOPS_INLINE Voted<Vote> rounded_to(Lanes<double, VotedMask<Vote>> x) {
  return rounded_to<Real>(x.raw);
}

// One element of every input.
template <class Real, size_t kInputs>
struct Elements {
  Real of[kInputs];
};

template <class Real, size_t kInputs, class F, class... P>
inline constexpr bool kWantsWide =
    kInputs == 1
        ? std::is_invocable_v<F, Lanes<double>, std::conditional_t<true, Lanes<double>, P>...>
        : std::is_invocable_v<F, Lanes<double>, Lanes<double>,
                              std::conditional_t<true, Lanes<double>, P>...>;

template <class To>
SAFEOPS_INLINE To in_precision(Lanes<double> x) {
  return narrow<To>(x);
}
template <class To>
SAFEOPS_INLINE To in_precision(Lanes<float> x) {
  return static_cast<typename To::Scalar>(x.raw);
}

// f of elements in the precision that it asks for, as a Real.
template <class Real, size_t kInputs, class F, class... P>
SAFEOPS_INLINE Real applied(F f, const Elements<Real, kInputs>& x, P... p) {
  using Asked = std::conditional_t<kWantsWide<Real, kInputs, F, P...>, Lanes<double>, Real>;
  if constexpr (kInputs == 1) {
    return in_precision<Real>(
        f(in_precision<Asked>(x.of[0]), in_precision<Asked>(Lanes<double>(number(p)))...));
  } else {
    return in_precision<Real>(f(in_precision<Asked>(x.of[0]), in_precision<Asked>(x.of[1]),
                                in_precision<Asked>(Lanes<double>(number(p)))...));
  }
}
template <class Real, size_t kInputs, class F, class... P>
SAFEOPS_INLINE Lanes<double> accumulated(F f, const Elements<Real, kInputs>& x, Lanes<double> sum,
                                         P... p) {
  if constexpr (kInputs == 1) {
    return f(widen(x.of[0]), sum, Lanes<double>(number(p))...);
  } else {
    return f(widen(x.of[0]), widen(x.of[1]), sum, Lanes<double>(number(p))...);
  }
}

// fp64 is so much wider than float32 that a plain sum over a slice loses nothing that float32 could
// show; sums of float64 are compensated.
template <class Real>
inline constexpr bool kExactTerms = !std::is_same_v<Real, Lanes<double>>;

class PlainSum {
 public:
  SAFEOPS_INLINE void add(double term) { sum_ = sum_ + term; }
  SAFEOPS_INLINE double value() const { return sum_; }

 private:
  double sum_ = 0;
};
template <class Real>
using TermSum = std::conditional_t<kExactTerms<Real>, PlainSum, CompensatedSum>;

// The largest of numbers, NaN if any is NaN, met in any order.
template <class Real>
class Largest {
 public:
  SAFEOPS_INLINE void meet(Real x) {
    best_ = larger_number(best_, x);
    found_nan_ = found_nan_ || is_nan(x);
  }
  SAFEOPS_INLINE double value() const {
    return found_nan_ ? std::numeric_limits<double>::quiet_NaN() : widen(best_).raw;
  }

 private:
  Real best_ = Real(-std::numeric_limits<typename Real::Scalar>::infinity());
  bool found_nan_ = false;
};
// Whoever is asked, +0 is the larger zero.
SAFEOPS_INLINE double larger_of(double a, double b) { return larger(a, b) + 0.0; }

// The sum over kLanes neighbouring lanes of a warp, with the same bits in all of them, because the
// steps commute. Every lane of the warp must call.
template <int kLanes>
SAFEOPS_INLINE double sum_of_lanes(double sum) {
  SAFEOPS_UNROLL for (int other = kLanes / 2; other != 0; other /= 2) sum =
      sum + __shfl_xor_sync(kWholeWarp, sum, other);
  return sum;
}
// The same, keeping what each addition rounds away, for sums of float64 terms.
template <int kLanes>
SAFEOPS_INLINE double compensated_sum_of_lanes(double sum) {
  double lost = 0;
  SAFEOPS_UNROLL for (int other = kLanes / 2; other != 0; other /= 2) {
    const double theirs = __shfl_xor_sync(kWholeWarp, sum, other);
    // Knuth's TwoSum, which is exact: so it commutes, too.
    const double both = sum + theirs, shifted = both - sum;
    const double rounded_away = (sum - (both - shifted)) + (theirs - shifted);
    lost = (lost + __shfl_xor_sync(kWholeWarp, lost, other)) + rounded_away;
    sum = both;
  }
  const double corrected = sum + lost;
  return corrected == corrected ? corrected : sum;
}
template <class Real, int kLanes>
SAFEOPS_INLINE double sum_of_terms(double sum) {
  if constexpr (kExactTerms<Real>) return sum_of_lanes<kLanes>(sum);
  return compensated_sum_of_lanes<kLanes>(sum);
}
template <int kLanes>
SAFEOPS_INLINE double largest_of_lanes(double best) {
  SAFEOPS_UNROLL for (int other = kLanes / 2; other != 0; other /= 2) best =
      larger_of(best, __shfl_xor_sync(kWholeWarp, best, other));
  return best;
}

// What a program asks of a row besides its elements. `exists` is false for a row past the last one,
// which is computed with its neighbours and reports nothing; `leads` is true in one thread of a
// row. What is reported is gathered until finish(), where whole warps meet: a batch of singular
// rows would queue up at one counter otherwise.
template <class Operands, class RowValue = double>
class RowState {
 public:
  using Real = typename Operands::Real;
  using Wide = Lanes<double>;
  using Value = RowValue;
  using Stored = typename Operands::Stored;

  SAFEOPS_INLINE RowState(const RowCall& call, size_t row, bool exists, bool leads)
      : call_(call), row_(row), exists_(exists), leads_(exists && leads) {}

  template <class Mask>
  SAFEOPS_INLINE void report(Condition condition, Mask met) {
    if (is_set(met)) met_ |= 1u << static_cast<int>(condition);
  }
  template <class Mask>
  SAFEOPS_INLINE void report_raising(Mask met) {
    if (is_set(met)) met_ |= kRaises;
  }
  SAFEOPS_INLINE Value saved() const { return of_row(call_.arguments.saved); }
  SAFEOPS_INLINE Value gradient() const { return of_row(call_.arguments.row_gradient); }
  SAFEOPS_INLINE Value lowest() const { return lowest_finite(Stored::kElement); }
  SAFEOPS_INLINE void save(Value value) const {
    if (leads_ && call_.arguments.save != nullptr) call_.arguments.save[row_] = number(value);
  }
  // Rows of a warp ascend with its lanes.
  SAFEOPS_INLINE void finish() const {
    const unsigned met = leads_ ? met_ : 0;
    if (__any_sync(kWholeWarp, met != 0) == 0) return;
#pragma unroll 1
    for (int c = 0; c <= kConditions; ++c) {
      const unsigned rows = __ballot_sync(kWholeWarp, met >> c & 1u);
      if (static_cast<int>(threadIdx.x % kWarp) != __ffs(static_cast<int>(rows)) - 1) continue;
      const auto count = static_cast<std::uint64_t>(__popc(rows));
      if (c < kConditions) {
        device::report(call_.sink, static_cast<Condition>(c), count, row_);
      } else {
        device::report_raising(call_.sink, count, row_);
      }
    }
  }

 protected:
  // A row that does not exist holds 1, so that no arithmetic on it is unusual.
  SAFEOPS_INLINE Value of_row(const double* values) const { return exists_ ? values[row_] : 1.0; }

  const RowCall& call_;
  const size_t row_;
  const bool exists_, leads_;

 private:
  static constexpr unsigned kRaises = 1u << kConditions;
  unsigned met_ = 0;
};

SAFEOPS_END_LANES
