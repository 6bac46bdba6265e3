// Rows in registers: kLanes lanes of a warp own a row.
#pragma once

#include "core/row_memory_cuda.h"

SAFEOPS_BEGIN_LANES

// Element j belongs to lane j % kLanes, which is virtual lane j % 32 of the order of summation
// (docs/architecture.md, section 4) or one of the 32 / kLanes that it stands for. Sums and maxima
// are exchanged by butterflies, whose steps commute: all lanes of a row hold the same bits.
template <class Operands, int kLanes, int kItems>
class RegisterRow
    : public RowState<Operands, std::conditional_t<kLanes == kWarp, double, Voted<WarpVote>>> {
  using State = RowState<Operands, std::conditional_t<kLanes == kWarp, double, Voted<WarpVote>>>;

 public:
  using Real = typename Operands::Real;
  using typename State::Value;
  static constexpr size_t kInputs = Operands::kInputs;

  SAFEOPS_INLINE RegisterRow(const RowCall& call, size_t row, bool exists)
      : State(call, row, exists, lane() == 0),
        memory_(call.arguments, exists ? row : 0),
        length_(exists ? static_cast<int>(call.arguments.layout.length) : kLanes * kItems) {
    SAFEOPS_UNROLL for (int i = 0; i < kItems; ++i) {
      SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) x_[i].of[k] = Real(1);
      if (!exists || !holds(i)) continue;
      const bool masked = memory_.is_masked(element(i));
      x_[i] = memory_.read(element(i), masked);
      if (masked) masked_ |= 1u << i;
    }
  }

  template <class F, class... P>
  SAFEOPS_INLINE Value accumulate(F f, P... p) const {
    TermSum<Real> whole[kSlots];
    SAFEOPS_UNROLL for (int leaf = 0; leaf < kItems; leaf += kLeaf) {
      Lanes<double> sum[kSlots];
      SAFEOPS_UNROLL for (int s = 0; s < kSlots; ++s) sum[s] = 0.0;
      SAFEOPS_UNROLL for (int i = leaf; i < kItems && i < leaf + kLeaf; ++i) {
        if (is_past(i)) break;
        const Lanes<double> with = accumulated(f, x_[i], sum[i % kSlots], p...);
        sum[i % kSlots] = select(holds(i), with, sum[i % kSlots]);
      }
      SAFEOPS_UNROLL for (int s = 0; s < kSlots; ++s) whole[s].add(sum[s].raw);
    }
    double slot[kSlots];
    SAFEOPS_UNROLL for (int s = 0; s < kSlots; ++s) slot[s] = whole[s].value();
    SAFEOPS_UNROLL for (int half = kSlots / 2; half != 0; half /= 2) {
      SAFEOPS_UNROLL for (int s = 0; s < half; ++s) slot[s] = slot[s] + slot[s + half];
    }
    return sum_of_lanes<kLanes>(slot[0]);
  }
  template <class F, class... P>
  SAFEOPS_INLINE Value sum(F f, P... p) const {
    return sum_terms<false>(f, p...);
  }
  template <class F, class... P>
  SAFEOPS_INLINE Value sum_keeping(F f, P... p) const {
    return sum_terms<true>(f, p...);
  }
  template <class F, class... P>
  SAFEOPS_INLINE Value max(F f, P... p) const {
    Largest<Real> largest;
    const Real nothing(-std::numeric_limits<typename Real::Scalar>::infinity());
    SAFEOPS_UNROLL for (int i = 0; i < kItems; ++i) {
      if (is_past(i)) break;
      largest.meet(select(holds(i), applied(f, x_[i], p...), nothing));
    }
    return largest_of_lanes<kLanes>(largest.value());
  }
  template <class Reduction>
  SAFEOPS_INLINE auto fold(Reduction reduce) const {
    return reduce(*this);
  }
  template <class Mask, class F, class... P>
  SAFEOPS_INLINE void write(Mask singular, const Resolution& policy, F f, P... p) const {
    write_items(singular, policy, [&](int i) { return applied(f, x_[i], p...); });
  }
  template <class Mask, class F, class... P>
  SAFEOPS_INLINE void write_kept(Mask singular, const Resolution& policy, F f, P... p) const {
    write_items(singular, policy,
                [&](int i) { return applied(f, Elements<Real, 1>{x_[i].of[0]}, p...); });
  }
  SAFEOPS_INLINE bool kept() const { return true; }

 private:
  static constexpr int kSlots = int{kWarp} / kLanes;
  // Sums of float64 are kept short, eight steps of a virtual lane, and these leaves are added with
  // compensation.
  static constexpr int kLeaf = kExactTerms<Real> ? kItems : 8 * kSlots;

  static SAFEOPS_INLINE int lane() { return static_cast<int>(threadIdx.x % kLanes); }
  static SAFEOPS_INLINE int element(int i) { return lane() + i * kLanes; }
  SAFEOPS_INLINE bool holds(int i) const { return element(i) < length_; }
  // Whether item i is past the end in every lane.
  SAFEOPS_INLINE bool is_past(int i) const { return i * kLanes >= length_; }

  // Terms in compute precision are added four at a time there, then in fp64. They are kept in place
  // of the elements.
  template <bool kKeeps, class F, class... P>
  SAFEOPS_INLINE double sum_terms(F f, P... p) const {
    TermSum<Real> sum;
    static_assert(kItems % 4 == 0);
    SAFEOPS_UNROLL for (int i = 0; i < kItems; i += 4) {
      if (is_past(i)) break;
      Real term[4];
      SAFEOPS_UNROLL for (int s = 0; s < 4; ++s) {
        term[s] = applied(f, x_[i + s], p...);
        if constexpr (kKeeps) x_[i + s].of[0] = term[s];
        term[s] = select(holds(i + s), term[s], Real(0));
      }
      if constexpr (kExactTerms<Real>) {
        sum.add(widen((term[0] + term[1]) + (term[2] + term[3])).raw);
      } else {
        SAFEOPS_UNROLL for (int s = 0; s < 4; ++s) sum.add(term[s].raw);
      }
    }
    return sum_of_terms<Real, kLanes>(sum.value());
  }
  template <class Mask, class Result>
  SAFEOPS_INLINE void write_items(Mask singular, const Resolution& policy, Result result) const {
    if (!this->exists_ || !memory_.writes()) return;
    const Filling<Real> filling = memory_.filling(singular, policy);
    SAFEOPS_UNROLL for (int i = 0; i < kItems; ++i) {
      if (holds(i)) memory_.write(element(i), (masked_ >> i & 1u) != 0, filling, result(i));
    }
  }

  const RowMemory<Operands, /*kUnitStep=*/true> memory_;
  const int length_;
  mutable Elements<Real, kInputs> x_[kItems];
  unsigned masked_ = 0;
};

inline constexpr int kRegisterThreads = 128;

// The trip count is that of the warp: rows past the last one are computed with their neighbours.
template <class Program, class Operands, int kLanes, int kItems>
__global__ void __launch_bounds__(kRegisterThreads, 1)
    walk_registers(const __grid_constant__ RowCall call) {
  constexpr int kRows = kWarp / kLanes;
  const size_t warp = (blockIdx.x * size_t{kRegisterThreads} + threadIdx.x) / kWarp;
  const size_t warps = gridDim.x * size_t{kRegisterThreads} / kWarp;
  const size_t rows = call.arguments.layout.rows;
  for (size_t first = warp * kRows; first < rows; first += warps * kRows) {
    const size_t mine = first + threadIdx.x % kWarp / kLanes;
    RegisterRow<Operands, kLanes, kItems> row(call, mine, mine < rows);
    Program()(row, call.arguments.policy);
    row.finish();
  }
}

SAFEOPS_END_LANES
