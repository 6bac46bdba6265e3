// A run of contiguous elements of one row: the loops, and the order of summation
// (docs/architecture.md, section 4).
#if defined(SAFEOPS_CORE_RUN_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_RUN_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_RUN_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_RUN_HIGHWAY_INL_H_
#endif

#include "core/hits.h"
#include "core/memory_highway-inl.h"
#include "core/row_cursor.h"

SAFEOPS_BEGIN_LANES

// A lambda says by its parameter types whether it wants elements in compute precision or in fp64.
template <class Wide, size_t kInputs, class F, class... P>
inline constexpr bool kWantsWide =
    kInputs == 1 ? std::is_invocable_v<F, Wide, P...> : std::is_invocable_v<F, Wide, Wide, P...>;

template <bool kWide, class E>
HWY_INLINE auto load_as(const E* p) {
  if constexpr (kWide) {
    return load_wide(p);
  } else {
    return load(p);
  }
}
template <bool kWide, class E>
HWY_INLINE auto load_first_as(size_t n, const E* p) {
  if constexpr (kWide) {
    return widen(load_first(n, p));
  } else {
    return load_first(n, p);
  }
}
template <class Real, class Result>
HWY_INLINE Real as_real(Result x) {
  if constexpr (std::is_same_v<Real, Result>) {
    return x;
  } else {
    return narrow<Real>(x);
  }
}

// CompensatedSum on lanes.
template <class Wide>
class LanesSum {
 public:
  HWY_INLINE LanesSum() : sum_(0.0), lost_(0.0) {}
  HWY_INLINE void add(Wide term) {
    const Wide sum = sum_ + term;
    const Wide shifted = sum - sum_;
    lost_ = lost_ + ((sum_ - (sum - shifted)) + (term - shifted));
    sum_ = sum;
  }
  HWY_INLINE Wide value() const {
    const Wide corrected = sum_ + lost_;
    return select(corrected == corrected, corrected, sum_);
  }

 private:
  Wide sum_, lost_;
};

// The same interface without compensation.
template <class Wide>
class PlainSum {
 public:
  HWY_INLINE PlainSum() : sum_(0.0) {}
  HWY_INLINE void add(Wide term) { sum_ = sum_ + term; }
  HWY_INLINE Wide value() const { return sum_; }

 private:
  Wide sum_;
};

// What is read next, as far from its start as the run is from its own: null, nothing is known of
// it. While a row is written, memory is asked for the next one; the processor's own prefetcher does
// not know that reading goes on there.
template <class E>
struct NextInputs {
  const E* at[2];
};

// Elements begin .. end of one row with unit step: the loops that every contiguous Row shares.
template <class E, size_t kInputs>
class Run {
 public:
  using Real = Lanes<typename ElementTraits<E>::Real>;
  using Wide = WideOf<Real>;
  static constexpr size_t kLanes = Real::kLanes;

  HWY_INLINE Run(const RowPointers<E, kInputs>& row, size_t begin, size_t end,
                 const NextInputs<E>& next = {{nullptr, nullptr}})
      : row_(row), begin_(begin), end_(end), next_(next) {}

  // The sum over the run, in thirty-two virtual lanes: lane i meets the elements congruent to i, on
  // every target.
  template <class F, class... P>
  HWY_INLINE double accumulate(F f, P... p) const {
    Wide sum[kVectors];
    if constexpr (!kExactTerms) {
      LanesSum<Wide> lanes[kVectors];
      for (size_t begin = begin_; begin < end_; begin += kLeafLength) {
        accumulate_leaf(begin, HWY_MIN(begin + kLeafLength, end_), sum, f, p...);
        SAFEOPS_UNROLL for (size_t v = 0; v < kVectors; ++v) lanes[v].add(sum[v]);
      }
      SAFEOPS_UNROLL for (size_t v = 0; v < kVectors; ++v) sum[v] = lanes[v].value();
    } else {
      accumulate_leaf(begin_, end_, sum, f, p...);
    }
    SAFEOPS_UNROLL for (size_t half = kVectors / 2; half != 0; half /= 2) {
      SAFEOPS_UNROLL for (size_t v = 0; v < half; ++v) sum[v] = sum[v] + sum[v + half];
    }
    return total(sum[0]);
  }

  // The sum of terms in compute precision, four at a time there, then in fp64. In sixteen virtual
  // lanes: lane i meets the elements congruent to i, on every target. With kKeeps the terms are
  // stored to `kept`, one for each element.
  template <bool kKeeps, class F, class... P>
  HWY_INLINE double sum(typename Real::Scalar* kept, F f, P... p) const {
    using Sum = std::conditional_t<kExactTerms, PlainSum<Wide>, LanesSum<Wide>>;
    Sum sums[kParts];
    size_t i = begin_;
    for (; i + 64 <= end_; i += 64) {
      SAFEOPS_UNROLL for (size_t q = 0; q < kParts; ++q) {
        Real term[4];
        SAFEOPS_UNROLL for (size_t s = 0; s < 4; ++s) {
          const size_t at_element = i + 16 * s + q * kLanes;
          term[s] = at(f, at_element, p...);
          if constexpr (kKeeps) store(term[s], kept + (at_element - begin_));
        }
        sums[q].add(widen((term[0] + term[1]) + (term[2] + term[3])));
      }
    }
    for (size_t q = 0; i < end_; i += kLanes, q = (q + 1) % kParts) {
      const size_t left = end_ - i;
      Real term = left < kLanes ? at_end(f, i, p...) : at(f, i, p...);
      if (left < kLanes) term = select(first_elements<Real>(left), term, Real(0));
      // Whole vectors: there is room behind the kept terms.
      if constexpr (kKeeps) store(term, kept + (i - begin_));
      sums[q].add(widen(term));
    }
    Wide folded[kParts];
    SAFEOPS_UNROLL for (size_t q = 0; q < kParts; ++q) folded[q] = sums[q].value();
    SAFEOPS_UNROLL for (size_t half = kParts / 2; half != 0; half /= 2) {
      SAFEOPS_UNROLL for (size_t q = 0; q < half; ++q) folded[q] = folded[q] + folded[q + half];
    }
    return total(folded[0]);
  }

  template <class F, class... P>
  HWY_INLINE double max(F f, P... p) const {
    // NaN is looked for beside the chain of maxima, which would be three times as long with it.
    Real best[4] = {Real(-kInfinity), Real(-kInfinity), Real(-kInfinity), Real(-kInfinity)};
    auto found_nan = is_nan(best[0]);
    size_t i = begin_;
    for (; i + 4 * kLanes <= end_; i += 4 * kLanes) {
      SAFEOPS_UNROLL for (size_t v = 0; v < 4; ++v) {
        const Real value = as_real<Real>(at(f, i + v * kLanes, p...));
        best[v] = larger_number(best[v], value);
        found_nan = found_nan | is_nan(value);
      }
    }
    for (; i < end_; i += kLanes) {
      const size_t left = end_ - i;
      Real value = as_real<Real>(left < kLanes ? at_end(f, i, p...) : at(f, i, p...));
      if (left < kLanes) value = select(first_elements<Real>(left), value, Real(-kInfinity));
      best[0] = larger_number(best[0], value);
      found_nan = found_nan | is_nan(value);
    }
    if (HWY_UNLIKELY(any(found_nan))) return std::numeric_limits<double>::quiet_NaN();
    return largest(larger_number(larger_number(best[0], best[1]), larger_number(best[2], best[3])));
  }

  // `streams` asks for stores past the cache, which take aligned vectors.
  template <class F, class... P>
  HWY_INLINE void map(bool streams, F f, P... p) const {
    if constexpr (kCanStream<E>) {
      if (streams && is_aligned(row_.output + begin_)) return map_to<true>(f, p...);
    }
    map_to<false>(f, p...);
  }

  HWY_INLINE void fill(double value) const {
    const Real vector(static_cast<typename Real::Scalar>(value));
    size_t i = begin_;
    for (; i + kLanes <= end_; i += kLanes) store(vector, row_.output + i);
    if (i < end_) store_first(end_ - i, vector, row_.output + i);
  }

 private:
  static constexpr typename Real::Scalar kInfinity =
      std::numeric_limits<typename Real::Scalar>::infinity();
  static constexpr size_t kVectors = 32 / kLanes, kParts = 16 / kLanes;
  // fp64 is so much wider than float32 that a plain sum over a slice loses nothing that float32
  // could show. Sums of float64 are kept short, eight steps a lane, and these leaves are added with
  // compensation.
  static constexpr bool kExactTerms = !std::is_same_v<Real, Lanes<double>>;
  static constexpr size_t kLeafLength = 8 * 32;

  template <bool kStreams, class F, class... P>
  HWY_INLINE void map_to(F f, P... p) const {
    size_t i = begin_;
    for (; i + 4 * kLanes <= end_; i += 4 * kLanes) {
      SAFEOPS_UNROLL for (size_t v = 0; v < 4; ++v) {
        for (const E* next : next_.at) {
          if (next != nullptr) prefetch(next + i + v * kLanes);
        }
        const Real value = as_real<Real>(at(f, i + v * kLanes, p...));
        if constexpr (kStreams) {
          stream(value, row_.output + i + v * kLanes);
        } else {
          store(value, row_.output + i + v * kLanes);
        }
      }
    }
    for (; i + kLanes <= end_; i += kLanes) store(as_real<Real>(at(f, i, p...)), row_.output + i);
    if (i < end_) store_first(end_ - i, as_real<Real>(at_end(f, i, p...)), row_.output + i);
  }

  template <class F, class... P>
  HWY_INLINE void accumulate_leaf(size_t i, size_t end, Wide (&sum)[kVectors], F f, P... p) const {
    SAFEOPS_UNROLL for (size_t v = 0; v < kVectors; ++v) sum[v] = Wide(0.0);
    for (; i + 32 <= end; i += 32) {
      SAFEOPS_UNROLL for (size_t v = 0; v < kVectors; ++v) sum[v] =
          term(f, i + v * kLanes, sum[v], p...);
    }
    SAFEOPS_UNROLL for (size_t v = 0; v < kVectors; ++v, i += kLanes) {
      if (i + kLanes <= end) {
        sum[v] = term(f, i, sum[v], p...);
      } else if (i < end) {
        const Wide with = last_term(f, i, sum[v], p...);
        sum[v] = select(first_lanes(with, end - i), with, sum[v]);
      }
    }
  }

  template <class F, class... P>
  HWY_INLINE Wide term(F f, size_t i, Wide sum, P... p) const {
    if constexpr (kInputs == 1) {
      return f(load_wide(row_.input[0] + i), sum, Wide(p)...);
    } else {
      return f(load_wide(row_.input[0] + i), load_wide(row_.input[1] + i), sum, Wide(p)...);
    }
  }
  template <class F, class... P>
  HWY_INLINE Wide last_term(F f, size_t i, Wide sum, P... p) const {
    if constexpr (kInputs == 1) {
      return f(load_first_as<true>(end_ - i, row_.input[0] + i), sum, Wide(p)...);
    } else {
      return f(load_first_as<true>(end_ - i, row_.input[0] + i),
               load_first_as<true>(end_ - i, row_.input[1] + i), sum, Wide(p)...);
    }
  }
  template <class F, class... P>
  static constexpr bool kWide = kWantsWide<Wide, kInputs, F, std::conditional_t<true, Wide, P>...>;
  template <class F, class... P>
  using Parameter = std::conditional_t<kWide<F, P...>, Wide, Real>;

  template <class F, class... P>
  HWY_INLINE auto at(F f, size_t i, P... p) const {
    constexpr bool kIsWide = kWide<F, P...>;
    using Spread = Parameter<F, P...>;
    if constexpr (kInputs == 1) {
      return f(load_as<kIsWide>(row_.input[0] + i),
               Spread(static_cast<typename Spread::Scalar>(p))...);
    } else {
      return f(load_as<kIsWide>(row_.input[0] + i), load_as<kIsWide>(row_.input[1] + i),
               Spread(static_cast<typename Spread::Scalar>(p))...);
    }
  }
  template <class F, class... P>
  HWY_INLINE auto at_end(F f, size_t i, P... p) const {
    constexpr bool kIsWide = kWide<F, P...>;
    using Spread = Parameter<F, P...>;
    if constexpr (kInputs == 1) {
      return f(load_first_as<kIsWide>(end_ - i, row_.input[0] + i),
               Spread(static_cast<typename Spread::Scalar>(p))...);
    } else {
      return f(load_first_as<kIsWide>(end_ - i, row_.input[0] + i),
               load_first_as<kIsWide>(end_ - i, row_.input[1] + i),
               Spread(static_cast<typename Spread::Scalar>(p))...);
    }
  }

  const RowPointers<E, kInputs> row_;
  const size_t begin_, end_;
  const NextInputs<E> next_;
};

SAFEOPS_END_LANES

#endif
