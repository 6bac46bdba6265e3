// The Row of a slice of one huge row.
#if defined(SAFEOPS_CORE_SPLIT_ROW_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_SPLIT_ROW_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_SPLIT_ROW_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_SPLIT_ROW_HIGHWAY_INL_H_
#endif

#include <cstring>

#include "core/rows_highway-inl.h"

SAFEOPS_BEGIN_LANES

// One slice of one row. The program runs once per reduction: earlier reductions answer from the
// pass, the first new one computes this slice's share, and every verb after it does nothing. In the
// last pass no reduction is new.
template <class E, size_t kInputs>
class SplitRow : public OneRow {
 public:
  using Real = typename Run<E, kInputs>::Real;
  using Wide = typename Run<E, kInputs>::Wide;
  using Stored = ElementTraits<E>;

  // `run` is the slice; only that of number 0 saves and counts.
  HWY_INLINE SplitRow(const Run<E, kInputs>& run, bool writes, const RowState& state,
                      const SplitPass& pass, size_t slice)
      : OneRow(state), run_(run), writes_(writes), pass_(pass), slice_(slice), next_(0) {}

  template <class F, class... P>
  HWY_INLINE double accumulate(F f, P... p) {
    return added_up([&]() SAFEOPS_LANES { return run_.accumulate(f, p...); });
  }
  template <class F, class... P>
  HWY_INLINE double sum(F f, P... p) {
    return added_up([&]() SAFEOPS_LANES { return Span<E, kInputs>(run_, nullptr).sum(f, p...); });
  }
  template <class F, class... P>
  HWY_INLINE double max(F f, P... p) {
    return reduced<Largest>([&]() SAFEOPS_LANES { return Largest{run_.max(f, p...)}; }).value;
  }
  template <class Reduction>
  HWY_INLINE auto fold(Reduction reduce) {
    using State = decltype(reduce(Span<E, kInputs>(run_, nullptr)));
    return reduced<State>(
        [&]() SAFEOPS_LANES { return reduce(Span<E, kInputs>(run_, state_.kept)); }, reduce);
  }
  template <class F, class... P>
  HWY_INLINE void write(bool singular, const Resolution& policy, F f, P... p) {
    if (!running() || !writes_) return;
    if (fills(singular, policy)) {
      run_.fill(policy.fill);
    } else {
      run_.map(state_.streams, f, p...);
    }
  }
  // The terms of other slices are gone.
  template <class F, class... P>
  HWY_INLINE void write_kept(bool, const Resolution&, F, P...) {}
  HWY_INLINE bool kept() const { return false; }
  HWY_INLINE void report(Condition condition, bool met) {
    if (met) hits_[condition].add(1, state_.first_row);
  }
  HWY_INLINE void report_raising(bool met) {
    if (met) hits_.raising.add(1, state_.first_row);
  }
  HWY_INLINE void save(double value) const {
    if (running() && slice_ == 0) OneRow::save(value);
  }
  // Ends the pass. What was reported belongs to the row, so one slice of the last pass counts it.
  HWY_INLINE Reached finish() {
    if (running() && slice_ == 0) state_.hits.merge(hits_);
    return reached_;
  }
  HWY_INLINE bool running() const { return reached_.numbers == 0; }

 private:
  struct Largest {
    double value;
  };
  struct Merging {
    HWY_INLINE CompensatedSum merge(CompensatedSum sum, const CompensatedSum& next) const {
      sum.add(next.value());
      return sum;
    }
    HWY_INLINE Largest merge(const Largest& a, const Largest& b) const {
      return {larger(a.value, b.value)};
    }
  };

  template <class Share>
  HWY_INLINE double added_up(const Share& share) {
    const auto one = [&]() SAFEOPS_LANES {
      CompensatedSum sum;
      sum.add(share());
      return sum;
    };
    return reduced<CompensatedSum>(one).value();
  }

  // The driver keeps states as plain numbers.
  template <class State, class Reduction>
  static void merge_numbers(double* into, const double* next) {
    State state, other;
    std::memcpy(static_cast<void*>(&state), into, sizeof(State));
    std::memcpy(static_cast<void*>(&other), next, sizeof(State));
    state = Reduction().merge(state, other);
    std::memcpy(into, &state, sizeof(State));
  }
  template <class State, class Share, class Reduction = Merging>
  HWY_INLINE State reduced(const Share& share, Reduction = {}) {
    static_assert(std::is_trivially_copyable_v<State> &&
                  sizeof(State) <= SplitPass::kMaxShare * sizeof(double));
    constexpr size_t kNumbers = sizeof(State) / sizeof(double);
    State state{};
    if (next_ < pass_.answered) {
      std::memcpy(static_cast<void*>(&state), pass_.answer + next_, sizeof(State));
      next_ += kNumbers;
    } else if (running()) {
      state = share();
      std::memcpy(pass_.share, &state, sizeof(State));
      reached_ = {kNumbers, merge_numbers<State, Reduction>};
    }
    return state;
  }

  const Run<E, kInputs> run_;
  const bool writes_;
  const SplitPass& pass_;
  const size_t slice_;
  size_t next_;
  Reached reached_;
  Hits hits_;
};

SAFEOPS_END_LANES

#endif
