// Row types on vectors. docs/architecture.md, section 4, says what each is for.
#if defined(SAFEOPS_CORE_ROWS_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_ROWS_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_ROWS_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_ROWS_HIGHWAY_INL_H_
#endif

#include "core/run_highway-inl.h"

SAFEOPS_BEGIN_LANES

// What a Row knows of the call besides its elements.
struct RowState {
  size_t first_row, count;
  const double* saved;
  double* save;
  bool streams;
  Hits& hits;
};

// One row: a per-row value is a double.
class OneRow {
 public:
  using Value = double;
  HWY_INLINE explicit OneRow(const RowState& state) : state_(state) {}
  HWY_INLINE void report(Condition condition, bool met) const {
    if (met) state_.hits[condition].add(1, state_.first_row);
  }
  HWY_INLINE void report_raising(bool met) const {
    if (met) state_.hits.raising.add(1, state_.first_row);
  }
  HWY_INLINE double saved() const { return state_.saved[state_.first_row]; }
  HWY_INLINE void save(double value) const {
    if (state_.save) state_.save[state_.first_row] = value;
  }

 protected:
  const RowState state_;
};

// As many rows as Real has lanes, or fewer at the end: a per-row value has a lane for each.
template <class Wide>
class LaneRows {
 public:
  using Value = Wide;
  HWY_INLINE explicit LaneRows(const RowState& state) : state_(state) {}
  template <class WideMask>
  HWY_INLINE void report(Condition condition, WideMask met) const {
    add(state_.hits[condition], met);
  }
  template <class WideMask>
  HWY_INLINE void report_raising(WideMask met) const {
    add(state_.hits.raising, met);
  }
  HWY_INLINE Wide saved() const {
    const double* from = state_.saved + state_.first_row;
    if (state_.count == Wide::kLanes) return load_lanes<Wide>(from);
    alignas(64) double buffer[Wide::kLanes];
    for (size_t r = 0; r < Wide::kLanes; ++r) buffer[r] = r < state_.count ? from[r] : 1.0;
    return load_lanes<Wide>(buffer);
  }
  HWY_INLINE void save(Wide value) const {
    if (state_.save == nullptr) return;
    double* to = state_.save + state_.first_row;
    if (state_.count == Wide::kLanes) return store(value, to);
    alignas(64) double buffer[Wide::kLanes];
    store(value, buffer);
    for (size_t r = 0; r < state_.count; ++r) to[r] = buffer[r];
  }

 protected:
  const RowState state_;

 private:
  template <class WideMask>
  HWY_INLINE void add(Hit& hit, WideMask met) const {
    if (!any(met)) return;
    const size_t first = state_.first_row;
    for_each_set(met & first_lanes(Wide(0.0), state_.count),
                 [&hit, first](size_t lane) SAFEOPS_LANES { hit.add(1, first + lane); });
  }
};

template <class E, size_t kInputs>
class ContiguousRow : public OneRow {
 public:
  using Real = typename Run<E, kInputs>::Real;
  using Wide = typename Run<E, kInputs>::Wide;
  using Stored = ElementTraits<E>;

  HWY_INLINE ContiguousRow(const RowPointers<E, kInputs>& row, size_t length, const RowState& state)
      : OneRow(state), row_(row), length_(length) {}

  template <class F, class... P>
  HWY_INLINE double accumulate(F f, P... p) const {
    CompensatedSum sum;
    for (size_t begin = 0; begin < length_; begin += kSliceLength) {
      sum.add(Run(row_, begin, HWY_MIN(begin + kSliceLength, length_)).accumulate(f, p...));
    }
    return sum.value();
  }
  template <class F, class... P>
  HWY_INLINE double max(F f, P... p) const {
    return Run(row_, 0, length_).max(f, p...);
  }
  template <class F, class... P>
  HWY_INLINE void write(bool singular, const Resolution& policy, F f, P... p) const {
    if (row_.output == nullptr) return;
    const Run<E, kInputs> run(row_, 0, length_);
    if (HWY_UNLIKELY(singular && policy.fills)) {
      run.fill(policy.fill);
    } else {
      run.map(state_.streams, f, p...);
    }
  }

 private:
  const RowPointers<E, kInputs> row_;
  const size_t length_;
};

// A per-row value of a batch as numbers, one per row.
template <class Wide>
struct RowValues {
  alignas(64) double of[Wide::kLanes];
  HWY_INLINE explicit RowValues(Wide value) { store(value, of); }
};

// Short rows: each is walked along its elements, but their square roots and divisions are taken
// together.
template <class E, size_t kInputs>
class ContiguousBatch : public LaneRows<typename Run<E, kInputs>::Wide> {
 public:
  using Real = typename Run<E, kInputs>::Real;
  using Wide = typename Run<E, kInputs>::Wide;
  using Stored = ElementTraits<E>;

  // `rows` points at the first row; the others follow at the kept stride of each operand.
  HWY_INLINE ContiguousBatch(const RowPointers<E, kInputs>& rows, const RowLayout& layout,
                             const RowState& state)
      : LaneRows<Wide>(state), rows_(rows), layout_(layout) {}

  template <class F, class... P>
  HWY_INLINE Wide accumulate(F f, P... p) const {
    return accumulate_spilled(f, RowValues<Wide>(p)...);
  }
  template <class F, class... P>
  HWY_INLINE Wide max(F f, P... p) const {
    return max_spilled(f, RowValues<Wide>(p)...);
  }
  template <class WideMask, class F, class... P>
  HWY_INLINE void write(WideMask singular, const Resolution& policy, F f, P... p) const {
    if (rows_.output == nullptr) return;
    if (HWY_UNLIKELY(policy.fills && any(singular))) {
      const RowValues<Wide> filled(select(singular, Wide(1.0), Wide(0.0)));
      write_filling(filled, policy.fill, f, RowValues<Wide>(p)...);
    } else {
      write_spilled(f, RowValues<Wide>(p)...);
    }
  }

 private:
  using LaneRows<Wide>::state_;
  HWY_INLINE Run<E, kInputs> run(size_t r) const {
    return {rows_.neighbour(layout_, r), 0, layout_.length};
  }

  template <class F, class... V>
  HWY_INLINE Wide accumulate_spilled(F f, const V&... value) const {
    alignas(64) double sums[Wide::kLanes];
    for (size_t r = 0; r < state_.count; ++r) sums[r] = run(r).accumulate(f, value.of[r]...);
    return padded(sums);
  }
  template <class F, class... V>
  HWY_INLINE Wide max_spilled(F f, const V&... value) const {
    alignas(64) double best[Wide::kLanes];
    for (size_t r = 0; r < state_.count; ++r) best[r] = run(r).max(f, value.of[r]...);
    return padded(best);
  }
  // Lanes without a row hold 1, so that no arithmetic on them is unusual.
  HWY_INLINE Wide padded(double (&values)[Wide::kLanes]) const {
    for (size_t r = state_.count; r < Wide::kLanes; ++r) values[r] = 1.0;
    return load_lanes<Wide>(values);
  }
  template <class F, class... V>
  HWY_INLINE void write_spilled(F f, const V&... value) const {
    for (size_t r = 0; r < state_.count; ++r) run(r).map(state_.streams, f, value.of[r]...);
  }
  template <class F, class... V>
  HWY_NOINLINE void write_filling(const RowValues<Wide>& filled, double fill, F f,
                                  const V&... value) const {
    for (size_t r = 0; r < state_.count; ++r) {
      if (filled.of[r] != 0) {
        run(r).fill(fill);
      } else {
        run(r).map(state_.streams, f, value.of[r]...);
      }
    }
  }

  const RowPointers<E, kInputs> rows_;
  const RowLayout& layout_;
};

// Neighbouring rows lie side by side: element j of all of them is one vector at j * step.
template <class E, size_t kInputs, class StoredTraits = ElementTraits<E>>
class SideBySideRows : public LaneRows<typename Run<E, kInputs>::Wide> {
 public:
  using Real = typename Run<E, kInputs>::Real;
  using Wide = typename Run<E, kInputs>::Wide;
  using Stored = StoredTraits;

  // `present` lanes exist in memory: all of them in a transposed buffer, whatever the number of
  // rows.
  HWY_INLINE SideBySideRows(const RowPointers<E, kInputs>& rows, const RowLayout::Strides* strides,
                            size_t length, size_t present, const RowState& state)
      : LaneRows<Wide>(state), rows_(rows), strides_(strides), length_(length), present_(present) {}

  template <class F, class... P>
  HWY_INLINE Wide accumulate(F f, P... p) const {
    if constexpr (std::is_same_v<Real, Wide>) {
      LanesSum<Wide> sum;
      for (size_t j = 0; j < length_; j += 8)
        sum.add(accumulate_leaf(j, HWY_MIN(j + 8, length_), f, p...));
      return sum.value();
    } else {
      return accumulate_leaf(0, length_, f, p...);
    }
  }
  template <class F, class... P>
  HWY_INLINE Wide max(F f, P... p) const {
    Real best(-std::numeric_limits<typename Real::Scalar>::infinity());
    for (size_t j = 0; j < length_; ++j) best = larger(best, as_real<Real>(at(f, j, p...)));
    return widen(best);
  }
  template <class WideMask, class F, class... P>
  HWY_INLINE void write(WideMask singular, const Resolution& policy, F f, P... p) const {
    if (rows_.output == nullptr) return;
    const bool filling = policy.fills && any(singular);
    const auto filled = narrow_mask<Real>(singular);
    const Real fill(static_cast<typename Real::Scalar>(policy.fill));
    for (size_t j = 0; j < length_; ++j) {
      Real value = as_real<Real>(at(f, j, p...));
      if (HWY_UNLIKELY(filling)) value = select(filled, fill, value);
      E* to = rows_.output + static_cast<ptrdiff_t>(j) * strides_[kInputs].step;
      if (present_ == Real::kLanes) {
        store(value, to);
      } else {
        store_first(present_, value, to);
      }
    }
  }

 private:
  template <class F, class... P>
  HWY_INLINE Wide accumulate_leaf(size_t j, size_t end, F f, P... p) const {
    Wide sum(0.0);
    for (; j < end; ++j) {
      if constexpr (kInputs == 1) {
        sum = f(element<true>(0, j), sum, p...);
      } else {
        sum = f(element<true>(0, j), element<true>(1, j), sum, p...);
      }
    }
    return sum;
  }
  template <bool kWide>
  HWY_INLINE auto element(size_t which, size_t j) const {
    const E* from = rows_.input[which] + static_cast<ptrdiff_t>(j) * strides_[which].step;
    return present_ == Real::kLanes ? load_as<kWide>(from) : load_first_as<kWide>(present_, from);
  }
  template <class F, class... P>
  HWY_INLINE auto at(F f, size_t j, P... p) const {
    constexpr bool kWide = kWantsWide<Wide, kInputs, F, P...>;
    using Spread = std::conditional_t<kWide, Wide, Real>;
    if constexpr (kInputs == 1) {
      return f(element<kWide>(0, j), as_real<Spread>(p)...);
    } else {
      return f(element<kWide>(0, j), element<kWide>(1, j), as_real<Spread>(p)...);
    }
  }

  const RowPointers<E, kInputs> rows_;
  const RowLayout::Strides* const strides_;
  const size_t length_, present_;
};

// One slice of one row. The program runs once per reduction: earlier reductions answer from the
// pass, the first new one computes this slice's share, and every verb after it does nothing. In the
// last pass no reduction is new.
template <class E, size_t kInputs>
class SplitRow {
 public:
  using Real = typename Run<E, kInputs>::Real;
  using Wide = typename Run<E, kInputs>::Wide;
  using Stored = ElementTraits<E>;
  using Value = double;

  HWY_INLINE SplitRow(const RowPointers<E, kInputs>& row, size_t length, const RowState& state,
                      const SplitPass& pass, size_t slice)
      : run_(row, slice * kSliceLength, HWY_MIN((slice + 1) * kSliceLength, length)),
        writes_(row.output != nullptr),
        state_(state),
        pass_(pass),
        slice_(slice),
        next_(0),
        reached_(SplitPass::Reached::end) {}

  template <class F, class... P>
  HWY_INLINE double accumulate(F f, P... p) {
    if (next_ < pass_.answered) return pass_.answer[next_++];
    if (running()) stop(SplitPass::Reached::sum, run_.accumulate(f, p...));
    return 0;
  }
  template <class F, class... P>
  HWY_INLINE double max(F f, P... p) {
    if (next_ < pass_.answered) return pass_.answer[next_++];
    if (running()) stop(SplitPass::Reached::maximum, run_.max(f, p...));
    return 0;
  }
  template <class F, class... P>
  HWY_INLINE void write(bool singular, const Resolution& policy, F f, P... p) {
    if (!running() || !writes_) return;
    if (singular && policy.fills) {
      run_.fill(policy.fill);
    } else {
      run_.map(state_.streams, f, p...);
    }
  }
  HWY_INLINE void report(Condition condition, bool met) {
    if (met) hits_[condition].add(1, state_.first_row);
  }
  HWY_INLINE void report_raising(bool met) {
    if (met) hits_.raising.add(1, state_.first_row);
  }
  HWY_INLINE double saved() const { return state_.saved[state_.first_row]; }
  HWY_INLINE void save(double value) const {
    if (state_.save && running() && slice_ == 0) state_.save[state_.first_row] = value;
  }
  // Ends the pass. What was reported belongs to the row, so one slice of the last pass counts it.
  HWY_INLINE SplitPass::Reached finish() {
    if (running() && slice_ == 0) state_.hits.merge(hits_);
    return reached_;
  }

 private:
  HWY_INLINE bool running() const { return reached_ == SplitPass::Reached::end; }
  HWY_INLINE void stop(SplitPass::Reached reached, double share) {
    reached_ = reached;
    pass_.partial[slice_] = share;
  }

  const Run<E, kInputs> run_;
  const bool writes_;
  const RowState state_;
  const SplitPass& pass_;
  const size_t slice_;
  size_t next_;
  SplitPass::Reached reached_;
  Hits hits_;
};

SAFEOPS_END_LANES

#endif
