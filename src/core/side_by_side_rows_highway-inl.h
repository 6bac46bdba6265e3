// The Row type whose rows are neighbours in memory.
#if defined(SAFEOPS_CORE_SIDE_BY_SIDE_ROWS_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_SIDE_BY_SIDE_ROWS_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_SIDE_BY_SIDE_ROWS_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_SIDE_BY_SIDE_ROWS_HIGHWAY_INL_H_
#endif

#include "core/rows_highway-inl.h"

SAFEOPS_BEGIN_LANES

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
    // NaN is looked for beside the chain of maxima, which would be longer with it.
    Real best(-std::numeric_limits<typename Real::Scalar>::infinity());
    auto found_nan = is_nan(best);
    for (size_t j = 0; j < length_; ++j) {
      const Real value = as_real<Real>(at(f, j, p...));
      best = larger_number(best, value);
      found_nan = found_nan | is_nan(value);
    }
    const Real nan(std::numeric_limits<typename Real::Scalar>::quiet_NaN());
    return widen(select(found_nan, nan, best));
  }
  template <class F, class... P>
  HWY_INLINE Wide sum(F f, P... p) const {
    return sum_terms<false>(f, p...);
  }
  template <class F, class... P>
  HWY_INLINE Wide sum_keeping(F f, P... p) const {
    return sum_terms<true>(f, p...);
  }
  template <class Reduction>
  HWY_INLINE auto fold(Reduction reduce) const {
    return reduce(*this);
  }
  // Terms are kept where the output will be.
  template <class WideMask, class F, class... P>
  HWY_INLINE void write_kept(WideMask singular, const Resolution& policy, F f, P... p) const {
    const RowPointers<E, 1> kept = {{rows_.output}, rows_.output};
    const RowLayout::Strides strides[2] = {strides_[kInputs], strides_[kInputs]};
    SideBySideRows<E, 1, StoredTraits>(kept, strides, length_, present_, state_)
        .write(singular, policy, f, p...);
  }
  HWY_INLINE bool kept() const { return true; }
  template <class WideMask, class F, class... P>
  HWY_INLINE void write(WideMask singular, const Resolution& policy, F f, P... p) const {
    if (rows_.output == nullptr) return;
    const bool filling = this->fills(singular, policy);
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
  using LaneRows<Wide>::state_;

  template <bool kKeeps, class F, class... P>
  HWY_INLINE Wide sum_terms(F f, P... p) const {
    std::conditional_t<std::is_same_v<Real, Wide>, LanesSum<Wide>, PlainSum<Wide>> sum;
    for (size_t j = 0; j < length_; ++j) {
      const Real term = at(f, j, p...);
      if (kKeeps && rows_.output != nullptr)
        store(term, rows_.output + static_cast<ptrdiff_t>(j) * strides_[kInputs].step);
      sum.add(widen(term));
    }
    return sum.value();
  }
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

SAFEOPS_END_LANES

#endif
