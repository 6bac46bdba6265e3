// The vocabulary on vectors: loads, stores, conversions from and to storage types.
#if defined(SAFEOPS_CORE_MEMORY_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_MEMORY_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_MEMORY_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_MEMORY_HIGHWAY_INL_H_
#endif

#include "core/lanes_highway-inl.h"
#include "hwy/cache_control.h"

SAFEOPS_BEGIN_LANES

// x86 targets whose vectors convert float16 in hardware; the others go through to_real / from_real.
#undef SAFEOPS_HAS_FLOAT16
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define SAFEOPS_HAS_FLOAT16 1
#else
#define SAFEOPS_HAS_FLOAT16 0
#endif

template <class T>
HWY_INLINE Lanes<T> load(const T* p) {
  return hn::LoadU(typename Lanes<T>::Tag(), p);
}
template <class T>
HWY_INLINE void store(Lanes<T> x, T* p) {
  hn::StoreU(x.raw, typename Lanes<T>::Tag(), p);
}
HWY_INLINE Lanes<float> load(const bfloat16* p) {
  const Lanes<float>::Tag tag;
  const hn::RebindToUnsigned<Lanes<float>::Tag> bits;
  const hn::Rebind<uint16_t, Lanes<float>::Tag> stored;
  const auto loaded = hn::LoadU(stored, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(bits, loaded)));
}
HWY_INLINE void store(Lanes<float> x,
                      bfloat16* p) {  // rounds to nearest even: hn::DemoteTo truncates
  const hn::RebindToUnsigned<Lanes<float>::Tag> tag;
  const hn::RebindToSigned<Lanes<float>::Tag> narrowing;
  const hn::Rebind<uint16_t, Lanes<float>::Tag> stored;
  const auto bits = hn::BitCast(tag, x.raw);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(tag, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(tag, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(tag, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(tag, hn::IsNaN(x.raw)), quiet, rounded);
  const auto high = hn::BitCast(narrowing, hn::ShiftRight<16>(chosen));
  hn::StoreU(hn::DemoteTo(stored, high), stored, reinterpret_cast<uint16_t*>(p));
}
HWY_INLINE Lanes<float> load(const float16* p) {
#if SAFEOPS_HAS_FLOAT16
  const hn::Rebind<hwy::float16_t, Lanes<float>::Tag> stored;
  const hn::Rebind<uint16_t, Lanes<float>::Tag> bits;
  const auto loaded = hn::LoadU(bits, reinterpret_cast<const uint16_t*>(p));
  return hn::PromoteTo(Lanes<float>::Tag(), hn::BitCast(stored, loaded));
#else
  alignas(64) float buffer[Lanes<float>::kLanes];
  for (size_t i = 0; i < Lanes<float>::kLanes; ++i) buffer[i] = to_real(p[i]);
  return load(buffer);
#endif
}
HWY_INLINE void store(Lanes<float> x, float16* p) {
#if SAFEOPS_HAS_FLOAT16
  const hn::Rebind<hwy::float16_t, Lanes<float>::Tag> stored;
  const hn::Rebind<uint16_t, Lanes<float>::Tag> bits;
  hn::StoreU(hn::BitCast(bits, hn::DemoteTo(stored, x.raw)), bits, reinterpret_cast<uint16_t*>(p));
#else
  alignas(64) float buffer[Lanes<float>::kLanes];
  store(x, buffer);
  for (size_t i = 0; i < Lanes<float>::kLanes; ++i) from_real(buffer[i], p[i]);
#endif
}

// Stores past the cache, for outputs that are too large to stay in it; `p` aligned to the vector.
// Other threads see them after flush_streams().
template <class E>
inline constexpr bool kCanStream = std::is_floating_point_v<E>;
template <class T>
HWY_INLINE void stream(Lanes<T> x, T* p) {
  hn::Stream(x.raw, typename Lanes<T>::Tag(), p);
}
HWY_INLINE void flush_streams() { hwy::FlushStream(); }
// A hint: any address will do.
template <class E>
HWY_INLINE void prefetch(const E* p) {
  hwy::Prefetch(p);
}
template <class T>
HWY_INLINE bool is_aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (Lanes<T>::kLanes * sizeof(T)) == 0;
}

// Loads straight into fp64: on AVX-512 the upper half of a loaded vector would cost a shuffle.
template <class E>
HWY_INLINE auto load_wide(const E* p) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<E, float>) {
    const Lanes<double>::Tag wide;
    const hn::Rebind<float, Lanes<double>::Tag> half;
    return LanesPair(hn::PromoteTo(wide, hn::LoadU(half, p)),
                     hn::PromoteTo(wide, hn::LoadU(half, p + Lanes<double>::kLanes)));
  } else
#endif
    return widen(load(p));
}

template <class E>
inline constexpr size_t kLanesOf = Lanes<typename ElementTraits<E>::Real>::kLanes;

// The first n lanes; the rest is zero. Never touches memory past p + n: hn::MaskedLoad does below
// AVX-512.
template <class E>
HWY_INLINE auto load_first(size_t n, const E* p) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (std::is_floating_point_v<E>) {
    const typename Lanes<E>::Tag tag;
    return Lanes<E>(hn::MaskedLoad(hn::FirstN(tag, n), tag, p));
  } else
#endif
  {
    alignas(64) E buffer[kLanesOf<E>] = {};
    for (size_t i = 0; i < n; ++i) buffer[i] = p[i];
    return load(buffer);
  }
}
template <class E, class Real>
HWY_INLINE void store_first(size_t n, Real x, E* p) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (std::is_floating_point_v<E>) {
    const typename Lanes<E>::Tag tag;
    hn::BlendedStore(x.raw, hn::FirstN(tag, n), tag, p);
  } else
#endif
  {
    alignas(64) E buffer[kLanesOf<E>];
    store(x, buffer);
    for (size_t i = 0; i < n; ++i) p[i] = buffer[i];
  }
}

// Transposes as many dense rows as there are lanes: element j of all of them to `to` + j * lanes.
// Returns false, having done nothing, for a length that has no instruction.
template <class T>
HWY_INLINE bool load_interleaved(const T* from, size_t length, T* to) {
#if HWY_TARGET != HWY_SCALAR
  const typename Lanes<T>::Tag tag;
  constexpr size_t kStep = Lanes<T>::kLanes;
  Lanes<T> x0, x1, x2, x3;
  if (length == 2) {
    hn::LoadInterleaved2(tag, from, x0.raw, x1.raw);
  } else if (length == 3) {
    hn::LoadInterleaved3(tag, from, x0.raw, x1.raw, x2.raw);
  } else if (length == 4) {
    hn::LoadInterleaved4(tag, from, x0.raw, x1.raw, x2.raw, x3.raw);
  } else {
    return false;
  }
  store(x0, to);
  store(x1, to + kStep);
  if (length > 2) store(x2, to + 2 * kStep);
  if (length > 3) store(x3, to + 3 * kStep);
  return true;
#else
  (void)from, (void)length, (void)to;
  return false;
#endif
}
template <class T>
HWY_INLINE bool store_interleaved(const T* from, size_t length, T* to) {
#if HWY_TARGET != HWY_SCALAR
  const typename Lanes<T>::Tag tag;
  constexpr size_t kStep = Lanes<T>::kLanes;
  const Lanes<T> x0 = load(from), x1 = load(from + kStep);
  if (length == 2) {
    hn::StoreInterleaved2(x0.raw, x1.raw, tag, to);
  } else if (length == 3) {
    hn::StoreInterleaved3(x0.raw, x1.raw, load(from + 2 * kStep).raw, tag, to);
  } else if (length == 4) {
    hn::StoreInterleaved4(x0.raw, x1.raw, load(from + 2 * kStep).raw, load(from + 3 * kStep).raw,
                          tag, to);
  } else {
    return false;
  }
  return true;
#else
  (void)from, (void)length, (void)to;
  return false;
#endif
}

// x as an element of type E holds it.
template <class E, class Real>
HWY_INLINE Real rounded_to_element(Real x) {
  if constexpr (std::is_same_v<E, typename Real::Scalar>) {
    return x;
  } else {
    alignas(64) E stored[Real::kLanes];
    store(x, stored);
    return load(stored);
  }
}

// A lane is set where the byte is not 0.
template <class Real>
HWY_INLINE Mask<typename Real::Scalar> load_mask(const bool* p) {
  using Tag = typename Real::Tag;
  const hn::RebindToUnsigned<Tag> wide;
  const hn::Rebind<uint8_t, Tag> stored;
  const auto bytes = hn::LoadU(stored, reinterpret_cast<const uint8_t*>(p));
  if constexpr (sizeof(typename Real::Scalar) == 4) {
    return {hn::RebindMask(Tag(), hn::Not(hn::Eq(hn::PromoteTo(wide, bytes), hn::Zero(wide))))};
  } else {
    const hn::Rebind<uint32_t, Tag> between;
    const auto words = hn::PromoteTo(wide, hn::PromoteTo(between, bytes));
    return {hn::RebindMask(Tag(), hn::Not(hn::Eq(words, hn::Zero(wide))))};
  }
}

HWY_INLINE void store(LanesPair x, double* p) {
  store(x.low, p);
  store(x.high, p + Lanes<double>::kLanes);
}
template <class Wide>
HWY_INLINE Wide load_lanes(const double* p) {
  if constexpr (std::is_same_v<Wide, Lanes<double>>) {
    return load(p);
  } else {
    return LanesPair(load(p), load(p + Lanes<double>::kLanes));
  }
}

// Calls f(lane) for every lane that is set, in ascending order.
template <class T, class F>
HWY_INLINE void for_each_set(Mask<T> mask, size_t base, F f) {
  alignas(64) T flag[Lanes<T>::kLanes];
  store(select(mask, Lanes<T>(T(1)), Lanes<T>(T(0))), flag);
  for (size_t i = 0; i < Lanes<T>::kLanes; ++i) {
    if (flag[i] != 0) f(base + i);
  }
}
template <class T, class F>
HWY_INLINE void for_each_set(Mask<T> mask, F f) {
  for_each_set(mask, 0, f);
}
template <class F>
HWY_INLINE void for_each_set(MaskPair mask, F f) {
  for_each_set(mask.low, 0, f);
  for_each_set(mask.high, Lanes<double>::kLanes, f);
}

// x, but f(operands...) in the lanes that are set, one after another.
template <class T, class F, class... V>
HWY_INLINE Lanes<T> with_set_lanes(Mask<T> mask, Lanes<T> x, F f, V... operands) {
  struct alignas(64) Buffer {
    T lane[Lanes<T>::kLanes];
    explicit HWY_INLINE Buffer(Lanes<T> from) { store(from, lane); }
  };
  Buffer result(x);
  const auto apply = [&](const auto&... buffer) {
    for_each_set(mask, [&](size_t i) { result.lane[i] = f(buffer.lane[i]...); });
  };
  apply(Buffer(operands)...);
  return load(result.lane);
}

SAFEOPS_END_LANES

#endif
