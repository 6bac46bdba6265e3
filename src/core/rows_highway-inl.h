// Row types on vectors whose elements are contiguous. docs/architecture.md, section 4, says what
// each is for.
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
  const RowArguments& arguments;
  Hits& hits;
  bool streams;                // stores go past the cache
  void* kept = nullptr;        // room for the terms of a row, a slice or a batch of short rows
  bool* nan_filled = nullptr;  // one for each row: whether the policy filled it with NaN
};

// The one bound that a program must know of the stored type, which staging hides.
HWY_INLINE double lowest_stored(const RowState& state) {
  return lowest_finite(state.arguments.storage.input[0]);
}

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
  HWY_INLINE double saved() const { return state_.arguments.saved[state_.first_row]; }
  HWY_INLINE double gradient() const { return state_.arguments.row_gradient[state_.first_row]; }
  HWY_INLINE double lowest() const { return lowest_stored(state_); }
  HWY_INLINE void save(double value) const {
    if (state_.arguments.save) state_.arguments.save[state_.first_row] = value;
  }

 protected:
  HWY_INLINE bool fills(bool singular, const Resolution& policy) const {
    const bool filled = singular && policy.fills;
    if (HWY_UNLIKELY(filled) && state_.nan_filled) *state_.nan_filled = policy.fill != policy.fill;
    return filled;
  }
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
  HWY_INLINE Wide saved() const { return one_per_row(state_.arguments.saved); }
  HWY_INLINE Wide gradient() const { return one_per_row(state_.arguments.row_gradient); }
  HWY_INLINE Wide lowest() const { return Wide(lowest_stored(state_)); }
  HWY_INLINE void save(Wide value) const {
    if (state_.arguments.save == nullptr) return;
    double* to = state_.arguments.save + state_.first_row;
    if (state_.count == Wide::kLanes) return store(value, to);
    alignas(64) double buffer[Wide::kLanes];
    store(value, buffer);
    for (size_t r = 0; r < state_.count; ++r) to[r] = buffer[r];
  }

 protected:
  template <class WideMask>
  HWY_INLINE bool fills(WideMask singular, const Resolution& policy) const {
    const bool filled = policy.fills && any(singular);
    if (HWY_UNLIKELY(filled) && state_.nan_filled && policy.fill != policy.fill) {
      bool* flags = state_.nan_filled;
      for_each_set(singular, [flags](size_t lane) SAFEOPS_LANES { flags[lane] = true; });
    }
    return filled;
  }
  const RowState state_;

 private:
  HWY_INLINE Wide one_per_row(const double* values) const {
    const double* from = values + state_.first_row;
    if (state_.count == Wide::kLanes) return load_lanes<Wide>(from);
    alignas(64) double buffer[Wide::kLanes];
    for (size_t r = 0; r < Wide::kLanes; ++r) buffer[r] = r < state_.count ? from[r] : 1.0;
    return load_lanes<Wide>(buffer);
  }
  template <class WideMask>
  HWY_INLINE void add(Hit& hit, WideMask met) const {
    if (!any(met)) return;
    const size_t first = state_.first_row;
    for_each_set(met & first_lanes(Wide(0.0), state_.count),
                 [&hit, first](size_t lane) SAFEOPS_LANES { hit.add(1, first + lane); });
  }
};

// What a reduction of several numbers sees of a contiguous row: all of it, or a slice.
template <class E, size_t kInputs>
class Span {
 public:
  using Real = typename Run<E, kInputs>::Real;
  using Value = double;
  HWY_INLINE Span(const Run<E, kInputs>& run, void* kept)
      : run_(run), kept_(static_cast<E*>(kept)) {}
  template <class F, class... P>
  HWY_INLINE double max(F f, P... p) const {
    return run_.max(f, p...);
  }
  template <class F, class... P>
  HWY_INLINE double sum(F f, P... p) const {
    return run_.template sum<false>(kept_, f, p...);
  }
  template <class F, class... P>
  HWY_INLINE double sum_keeping(F f, P... p) const {
    return run_.template sum<true>(kept_, f, p...);
  }

 private:
  const Run<E, kInputs> run_;
  E* const kept_;
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
  HWY_INLINE double sum(F f, P... p) const {
    CompensatedSum sum;
    for (size_t begin = 0; begin < length_; begin += kSliceLength)
      sum.add(span(begin).sum(f, p...));
    return sum.value();
  }
  template <class F, class... P>
  HWY_INLINE double max(F f, P... p) const {
    return Run(row_, 0, length_).max(f, p...);
  }
  template <class Reduction>
  HWY_INLINE auto fold(Reduction reduce) const {
    if (kept()) return reduce(Span<E, kInputs>(Run<E, kInputs>(row_, 0, length_), state_.kept));
    auto state = reduce(span(0));
    for (size_t begin = kSliceLength; begin < length_; begin += kSliceLength)
      state = reduce.merge(state, reduce(span(begin)));
    return state;
  }
  template <class F, class... P>
  HWY_INLINE void write(bool singular, const Resolution& policy, F f, P... p) const {
    write_run(Run<E, kInputs>(row_, 0, length_, next()), singular, policy, f, p...);
  }
  template <class F, class... P>
  HWY_INLINE void write_kept(bool singular, const Resolution& policy, F f, P... p) const {
    const RowPointers<E, 1> kept = {{static_cast<const E*>(state_.kept)}, row_.output};
    write_run(Run<E, 1>(kept, 0, length_, next()), singular, policy, f, p...);
  }
  HWY_INLINE bool kept() const { return length_ <= kKeptLength; }

 private:
  // Of a dense operand; elsewhere the hint is of no use and does no harm.
  HWY_INLINE NextInputs<E> next() const {
    return {{row_.input[0] + length_, kInputs == 2 ? row_.input[kInputs - 1] + length_ : nullptr}};
  }
  HWY_INLINE Span<E, kInputs> span(size_t begin) const {
    return {Run<E, kInputs>(row_, begin, HWY_MIN(begin + kSliceLength, length_)), state_.kept};
  }
  template <class AnyRun, class F, class... P>
  HWY_INLINE void write_run(const AnyRun& run, bool singular, const Resolution& policy, F f,
                            P... p) const {
    if (row_.output == nullptr) return;
    if (HWY_UNLIKELY(fills(singular, policy))) {
      run.fill(policy.fill);
    } else {
      run.map(state_.streams, f, p...);
    }
  }

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
  template <class F, class... P>
  HWY_INLINE Wide sum(F f, P... p) const {
    return sum_spilled<false>(f, RowValues<Wide>(p)...);
  }
  template <class F, class... P>
  HWY_INLINE Wide sum_keeping(F f, P... p) const {
    return sum_spilled<true>(f, RowValues<Wide>(p)...);
  }
  template <class Reduction>
  HWY_INLINE auto fold(Reduction reduce) const {
    return reduce(*this);
  }
  template <class WideMask, class F, class... P>
  HWY_INLINE void write(WideMask singular, const Resolution& policy, F f, P... p) const {
    write_runs(ElementsOf{*this}, singular, policy, f, p...);
  }
  template <class WideMask, class F, class... P>
  HWY_INLINE void write_kept(WideMask singular, const Resolution& policy, F f, P... p) const {
    write_runs(KeptOf{*this}, singular, policy, f, p...);
  }
  HWY_INLINE bool kept() const { return true; }

 private:
  using LaneRows<Wide>::state_;
  HWY_INLINE Run<E, kInputs> run(size_t r) const {
    return {rows_.neighbour(layout_, r), 0, layout_.length};
  }
  // Whole vectors for every row: the last store of a row must not reach into the next.
  HWY_INLINE E* kept_terms(size_t r) const {
    const size_t pitch = (layout_.length + Real::kLanes - 1) / Real::kLanes * Real::kLanes;
    return static_cast<E*>(state_.kept) + r * pitch;
  }
  struct ElementsOf {
    const ContiguousBatch& rows;
    HWY_INLINE Run<E, kInputs> operator()(size_t r) const { return rows.run(r); }
  };
  struct KeptOf {
    const ContiguousBatch& rows;
    HWY_INLINE Run<E, 1> operator()(size_t r) const {
      return {{{rows.kept_terms(r)}, rows.rows_.neighbour(rows.layout_, r).output},
              0,
              rows.layout_.length};
    }
  };
  template <class Runs, class WideMask, class F, class... P>
  HWY_INLINE void write_runs(const Runs& runs, WideMask singular, const Resolution& policy, F f,
                             P... p) const {
    if (rows_.output == nullptr) return;
    if (HWY_UNLIKELY(this->fills(singular, policy))) {
      const RowValues<Wide> filled(select(singular, Wide(1.0), Wide(0.0)));
      write_filling(runs, filled, policy.fill, f, RowValues<Wide>(p)...);
    } else {
      write_spilled(runs, f, RowValues<Wide>(p)...);
    }
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
  template <bool kKeeps, class F, class... V>
  HWY_INLINE Wide sum_spilled(F f, const V&... value) const {
    alignas(64) double sums[Wide::kLanes];
    for (size_t r = 0; r < state_.count; ++r)
      sums[r] = run(r).template sum<kKeeps>(kept_terms(r), f, value.of[r]...);
    return padded(sums);
  }
  // Lanes without a row hold 1, so that no arithmetic on them is unusual.
  HWY_INLINE Wide padded(double (&values)[Wide::kLanes]) const {
    for (size_t r = state_.count; r < Wide::kLanes; ++r) values[r] = 1.0;
    return load_lanes<Wide>(values);
  }
  template <class Runs, class F, class... V>
  HWY_INLINE void write_spilled(const Runs& runs, F f, const V&... value) const {
    for (size_t r = 0; r < state_.count; ++r) runs(r).map(state_.streams, f, value.of[r]...);
  }
  template <class Runs, class F, class... V>
  HWY_NOINLINE void write_filling(const Runs& runs, const RowValues<Wide>& filled, double fill, F f,
                                  const V&... value) const {
    for (size_t r = 0; r < state_.count; ++r) {
      if (filled.of[r] != 0) {
        runs(r).fill(fill);
      } else {
        runs(r).map(state_.streams, f, value.of[r]...);
      }
    }
  }

  const RowPointers<E, kInputs> rows_;
  const RowLayout& layout_;
};

SAFEOPS_END_LANES

#endif
