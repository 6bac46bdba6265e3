// Rows in shared memory: a block owns a row of a few slices.
#pragma once

#include "core/row_memory_cuda.h"

SAFEOPS_BEGIN_LANES

// At most; registers leave room for two or three such blocks on a multiprocessor.
inline constexpr int kBlockThreads = 256;
// About 32 elements a thread. The order of sums depends on it, so it depends on the length alone.
inline int threads_of_block(std::size_t length) {
  int threads = 32;
  while (threads < kBlockThreads && static_cast<std::size_t>(threads) * 32 < length) threads *= 2;
  return threads;
}
// In front of the elements in shared memory: what warps hand to each other.
inline constexpr size_t kBlockExchange = kBlockThreads / kWarp * sizeof(double);

// What the threads of a block make of a number from each warp, or from each thread. All of them
// hold the same bits, and all must call.
class BlockTotals {
 public:
  SAFEOPS_INLINE explicit BlockTotals(double* exchange) : exchange_(exchange) {}

  template <class Real>
  SAFEOPS_INLINE double sum(double mine) const {
    return sum_of_warps(sum_of_terms<Real, int{kWarp}>(mine), warps());
  }
  SAFEOPS_INLINE double sum_of_warps(double mine, int count) const {
    const auto add = [](CompensatedSum sum, double total) {
      sum.add(total);
      return sum;
    };
    return of_warps(mine, count, CompensatedSum(), add).value();
  }
  SAFEOPS_INLINE double max(double mine) const {
    return of_warps(largest_of_lanes<int{kWarp}>(mine), warps(),
                    -std::numeric_limits<double>::infinity(), larger_of);
  }

 private:
  static SAFEOPS_INLINE int warps() { return static_cast<int>(blockDim.x / kWarp); }
  // The numbers of the first `count` warps in their order, folded into `state`.
  template <class State, class Combine>
  SAFEOPS_INLINE State of_warps(double mine, int count, State state, Combine combine) const {
    if (threadIdx.x % kWarp == 0) exchange_[threadIdx.x / kWarp] = mine;
    __syncthreads();
    for (int w = 0; w < count; ++w) state = combine(state, exchange_[w]);
    __syncthreads();
    return state;
  }

  double* exchange_;
};

// What a virtual lane adds of a slice, in the order of docs/architecture.md, section 4: the lanes
// of a warp are the virtual ones.
template <class Real>
class VirtualLane {
 public:
  // Eight steps of a lane.
  static constexpr size_t kLeaf = 8 * kWarp;

  // Elements first .. end of `source`, where whole leaves went before.
  template <class Source, class F, class... P>
  SAFEOPS_INLINE void add(const Source& source, size_t first, size_t end, F f, P... p) {
    const size_t lane = threadIdx.x % kWarp;
    if constexpr (kExactTerms<Real>) {
      sum_ = with_leaf(source, first + lane, end, sum_, f, p...);
    } else {
      for (; first < end; first += kLeaf) {
        const size_t last = first + kLeaf < end ? first + kLeaf : end;
        leaves_.add(with_leaf(source, first + lane, last, 0.0, f, p...).raw);
      }
    }
  }
  // Of all lanes. The whole warp must call.
  SAFEOPS_INLINE double total() const {
    return sum_of_lanes<int{kWarp}>(kExactTerms<Real> ? sum_.raw : leaves_.value());
  }

 private:
  template <class Source, class F, class... P>
  static SAFEOPS_INLINE Lanes<double> with_leaf(const Source& source, size_t j, size_t end,
                                                Lanes<double> sum, F f, P... p) {
#pragma unroll 4
    for (; j < end; j += kWarp) sum = accumulated(f, source.at(j), sum, p...);
    return sum;
  }

  Lanes<double> sum_ = 0.0;
  CompensatedSum leaves_;
};

// Elements begin .. end of one row, of at most a slice or for order-free verbs of any length.
// `Source` has at(j), the elements, and keep(j, term).
template <class Operands, class Source>
class BlockSpan {
 public:
  using Real = typename Operands::Real;
  using Value = double;

  SAFEOPS_INLINE BlockSpan(const Source& source, const BlockTotals& totals, size_t begin,
                           size_t end)
      : source_(source), totals_(totals), begin_(begin), end_(end) {}

  template <class F, class... P>
  SAFEOPS_INLINE double max(F f, P... p) const {
    Largest<Real> largest;
#pragma unroll 4
    for (size_t j = begin_ + threadIdx.x; j < end_; j += blockDim.x)
      largest.meet(applied(f, source_.at(j), p...));
    return totals_.max(largest.value());
  }
  template <class F, class... P>
  SAFEOPS_INLINE double sum(F f, P... p) const {
    return sum_terms<false>(f, p...);
  }
  template <class F, class... P>
  SAFEOPS_INLINE double sum_keeping(F f, P... p) const {
    return sum_terms<true>(f, p...);
  }

 private:
  template <bool kKeeps, class F, class... P>
  SAFEOPS_INLINE Real term(size_t j, F f, P... p) const {
    const Real term = applied(f, source_.at(j), p...);
    if constexpr (kKeeps) source_.keep(j, term);
    return term;
  }
  // Terms in compute precision are added four at a time there, then in fp64.
  template <bool kKeeps, class F, class... P>
  SAFEOPS_INLINE double sum_terms(F f, P... p) const {
    TermSum<Real> sum;
    const size_t step = blockDim.x;
    size_t j = begin_ + threadIdx.x;
    if constexpr (kExactTerms<Real>) {
      for (; j + 3 * step < end_; j += 4 * step) {
        Real x[4];
        SAFEOPS_UNROLL for (int s = 0; s < 4; ++s) x[s] = term<kKeeps>(j + s * step, f, p...);
        sum.add(widen((x[0] + x[1]) + (x[2] + x[3])).raw);
      }
    }
#pragma unroll 1
    for (; j < end_; j += step) sum.add(widen(term<kKeeps>(j, f, p...)).raw);
    return totals_.template sum<Real>(sum.value());
  }

  const Source& source_;
  const BlockTotals& totals_;
  const size_t begin_, end_;
};

// Elements of shared memory for each input: packs of every type begin at multiples of 16 bytes.
constexpr size_t pitch_of_tile(size_t length) { return (length + 7) / 8 * 8; }

// A row in shared memory in compute precision.
template <class Operands>
class BlockTile {
 public:
  using Real = typename Operands::Real;
  using Scalar = typename Real::Scalar;
  static constexpr size_t kInputs = Operands::kInputs;

  SAFEOPS_INLINE BlockTile(Scalar* tile, size_t length)
      : tile_(tile), length_(length), pitch_(pitch_of_tile(length)) {}
  SAFEOPS_INLINE Elements<Real, kInputs> at(size_t j) const {
    Elements<Real, kInputs> x;
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) x.of[k] = tile_[k * pitch_ + j];
    return x;
  }
  SAFEOPS_INLINE void put(size_t j, const Elements<Real, kInputs>& x) const {
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) tile_[k * pitch_ + j] = x.of[k].raw;
  }
  template <class Pack>
  SAFEOPS_INLINE Pack& pack(size_t which, size_t j) const {
    return *reinterpret_cast<Pack*>(tile_ + which * pitch_ + j);
  }
  // Terms take the place of elements, unless those are read again.
  SAFEOPS_INLINE bool keeps() const { return length_ <= kSliceLength; }
  SAFEOPS_INLINE void keep(size_t j, Real term) const {
    if (keeps()) tile_[j] = term.raw;
  }

 private:
  Scalar* tile_;
  size_t length_, pitch_;
};

// Per-row values are the same in every thread, so that branches on them do not part the block.
template <class Operands>
class BlockRow : public RowState<Operands> {
  using Memory = RowMemory<Operands, /*kUnitStep=*/true>;
  using Pack = typename Memory::RealPack;
  static constexpr size_t kPack = Memory::kPack;
  using X = Elements<typename Operands::Real, Operands::kInputs>;

 public:
  using Real = typename Operands::Real;
  using Value = double;
  using Source = BlockTile<Operands>;
  using Span = BlockSpan<Operands, Source>;

  SAFEOPS_INLINE BlockRow(const RowCall& call, size_t row, unsigned char* shared)
      : RowState<Operands>(call, row, /*exists=*/true, threadIdx.x == 0),
        memory_(call.arguments, row),
        length_(call.arguments.layout.length),
        totals_(reinterpret_cast<double*>(shared)),
        tile_(reinterpret_cast<typename Source::Scalar*>(shared + kBlockExchange), length_) {
    size_t j = threadIdx.x;
    if (memory_.has_packs()) {
#pragma unroll 4
      for (size_t i = kPack * threadIdx.x; i < in_packs(); i += kPack * blockDim.x) {
        SAFEOPS_UNROLL for (size_t k = 0; k < Operands::kInputs; ++k)
            tile_.template pack<Pack>(k, i) = memory_.read_pack(k, i);
      }
      j += in_packs();
    }
#pragma unroll 4
    for (; j < length_; j += blockDim.x) tile_.put(j, memory_.read(j));
    __syncthreads();
  }

  template <class F, class... P>
  SAFEOPS_INLINE double accumulate(F f, P... p) const {
    const auto warp = static_cast<int>(threadIdx.x / kWarp);
    double mine = 0;
    if (warp < slices()) {
      VirtualLane<Real> lane;
      lane.add(tile_, begin_of(warp), end_of(warp), f, p...);
      mine = lane.total();
    }
    return totals_.sum_of_warps(mine, slices());
  }
  template <class F, class... P>
  SAFEOPS_INLINE double sum(F f, P... p) const {
    CompensatedSum sum;
    for (int s = 0; s < slices(); ++s) sum.add(slice(s).sum(f, p...));
    return sum.value();
  }
  template <class F, class... P>
  SAFEOPS_INLINE double max(F f, P... p) const {
    return Span(tile_, totals_, 0, length_).max(f, p...);
  }
  template <class Reduction>
  SAFEOPS_INLINE auto fold(Reduction reduce) const {
    auto state = reduce(slice(0));
    for (int s = 1; s < slices(); ++s) state = reduce.merge(state, reduce(slice(s)));
    return state;
  }
  template <class F, class... P>
  SAFEOPS_INLINE void write(bool singular, const Resolution& policy, F f, P... p) const {
    write_elements(singular, policy, [&](const X& x) { return applied(f, x, p...); });
  }
  template <class F, class... P>
  SAFEOPS_INLINE void write_kept(bool singular, const Resolution& policy, F f, P... p) const {
    write_elements(singular, policy,
                   [&](const X& x) { return applied(f, Elements<Real, 1>{x.of[0]}, p...); });
  }
  // Terms of several slices are relative to a reference each.
  SAFEOPS_INLINE bool kept() const { return tile_.keeps(); }

 private:
  SAFEOPS_INLINE int slices() const {
    return static_cast<int>((length_ + kSliceLength - 1) / kSliceLength);
  }
  SAFEOPS_INLINE size_t begin_of(int s) const { return static_cast<size_t>(s) * kSliceLength; }
  SAFEOPS_INLINE size_t end_of(int s) const {
    return begin_of(s) + kSliceLength < length_ ? begin_of(s) + kSliceLength : length_;
  }
  SAFEOPS_INLINE Span slice(int s) const { return {tile_, totals_, begin_of(s), end_of(s)}; }
  SAFEOPS_INLINE size_t in_packs() const { return length_ / kPack * kPack; }
  template <class Result>
  SAFEOPS_INLINE void write_elements(bool singular, const Resolution& policy, Result result) const {
    if (!memory_.writes()) return;
    const Filling<Real> filling = memory_.filling(singular, policy);
    size_t j = threadIdx.x;
    if (memory_.has_packs()) {
#pragma unroll 1
      for (size_t i = kPack * threadIdx.x; i < in_packs(); i += kPack * blockDim.x)
        memory_.write_pack(i, filling, pack_of_results(i, result));
      j += in_packs();
    }
#pragma unroll 2
    for (; j < length_; j += blockDim.x)
      memory_.write(j, memory_.is_masked(j), filling, result(tile_.at(j)));
  }
  template <class Result>
  SAFEOPS_INLINE Pack pack_of_results(size_t i, Result result) const {
    Pack x[Operands::kInputs], results;
    SAFEOPS_UNROLL for (size_t k = 0; k < Operands::kInputs; ++k) x[k] =
        tile_.template pack<Pack>(k, i);
    SAFEOPS_UNROLL for (size_t s = 0; s < kPack; ++s) {
      X one;
      SAFEOPS_UNROLL for (size_t k = 0; k < Operands::kInputs; ++k) one.of[k] = x[k].of[s];
      results.of[s] = result(one).raw;
    }
    return results;
  }

  const Memory memory_;
  const size_t length_;
  const BlockTotals totals_;
  const Source tile_;
};

// A warp adds a slice.
inline constexpr size_t kLongestBlockRow = kBlockThreads / kWarp * kSliceLength;

template <class Program, class Operands>
__global__ void __launch_bounds__(kBlockThreads, 1)
    walk_blocks(const __grid_constant__ RowCall call) {
  SAFEOPS_SHARED_MEMORY(shared);
  for (size_t r = blockIdx.x; r < call.arguments.layout.rows; r += gridDim.x) {
    BlockRow<Operands> row(call, r, shared);
    Program()(row, call.arguments.policy);
    row.finish();
    __syncthreads();
  }
}

SAFEOPS_END_LANES
