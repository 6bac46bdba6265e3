// Staging: runs of elements copied from storage to a scratch in compute precision and back, with a
// value in place of those that take no part.
#if defined(SAFEOPS_CORE_STAGE_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_STAGE_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_STAGE_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_STAGE_HIGHWAY_INL_H_
#endif

#include "core/memory_highway-inl.h"
#include "core/row_layout.h"

SAFEOPS_BEGIN_LANES

// The mask of a run of elements; a step of 0 is one answer for all of them.
struct MaskRun {
  const bool* at;  // null: all take part
  ptrdiff_t step;

  HWY_INLINE bool covers_nothing() const { return at == nullptr || (step == 0 && *at); }
  // For n <= kLanes elements from i; lanes beyond are false.
  template <class Real>
  HWY_INLINE Mask<typename Real::Scalar> lanes(size_t i, size_t n) const {
    if (step == 1 && n == Real::kLanes) return load_mask<Real>(at + i);
    bool buffer[Real::kLanes] = {};
    for (size_t k = 0; k < n; ++k) buffer[k] = at[static_cast<ptrdiff_t>(i + k) * step];
    return load_mask<Real>(buffer);
  }
};

// n elements to `to`, in whole vectors: the last may end up to a vector behind them, in zeros.
template <class Scalar, class E>
HWY_NOINLINE void stage_run(const E* from, MaskRun mask, double masked, size_t n, Scalar* to) {
  using Real = Lanes<Scalar>;
  constexpr size_t kLanes = Real::kLanes;
  const Real instead(static_cast<Scalar>(masked));
  const bool selects = !mask.covers_nothing();
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Real x = load(from + i);
    if (selects) x = select(mask.lanes<Real>(i, kLanes), x, instead);
    store(x, to + i);
  }
  if (i < n) {
    Real x = load_first(n - i, from + i);
    if (selects) x = select(mask.lanes<Real>(i, n - i), x, instead);
    store(select(first_elements<Real>(n - i), x, Real(Scalar(0))), to + i);
  }
}

template <class Scalar, class E>
HWY_NOINLINE void unstage_run(const Scalar* from, MaskRun mask, double masked, bool streams,
                              size_t n, E* to) {
  using Real = Lanes<Scalar>;
  constexpr size_t kLanes = Real::kLanes;
  const Real instead(static_cast<Scalar>(masked));
  const bool selects = !mask.covers_nothing();
  size_t i = 0;
  const auto value = [&](size_t count) SAFEOPS_LANES {
    const Real x = load(from + i);
    return selects ? select(mask.lanes<Real>(i, count), x, instead) : x;
  };
  if constexpr (kCanStream<E>) {
    if (streams && is_aligned(to)) {
      for (; i + kLanes <= n; i += kLanes) stream(value(kLanes), to + i);
    }
  }
  for (; i + kLanes <= n; i += kLanes) store(value(kLanes), to + i);
  if (i < n) store_first(n - i, value(n - i), to + i);
}

// The same for a type known at run time: `offset` counts elements of it.
template <class Scalar>
HWY_INLINE void stage_run(Element stored, const void* from, ptrdiff_t offset, MaskRun mask,
                          double masked, size_t n, Scalar* to) {
  if constexpr (std::is_same_v<Scalar, float>) {
    if (stored == Element::float16)
      return stage_run(static_cast<const float16*>(from) + offset, mask, masked, n, to);
    if (stored == Element::bfloat16)
      return stage_run(static_cast<const bfloat16*>(from) + offset, mask, masked, n, to);
  }
  stage_run(static_cast<const Scalar*>(from) + offset, mask, masked, n, to);
}
template <class Scalar>
HWY_INLINE void unstage_run(const Scalar* from, MaskRun mask, double masked, bool streams, size_t n,
                            Element stored, void* to, ptrdiff_t offset) {
  if constexpr (std::is_same_v<Scalar, float>) {
    if (stored == Element::float16)
      return unstage_run(from, mask, masked, streams, n, static_cast<float16*>(to) + offset);
    if (stored == Element::bfloat16)
      return unstage_run(from, mask, masked, streams, n, static_cast<bfloat16*>(to) + offset);
  }
  unstage_run(from, mask, masked, streams, n, static_cast<Scalar*>(to) + offset);
}

SAFEOPS_END_LANES

#endif
