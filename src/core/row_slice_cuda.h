// Rows that are split: a block owns a slice, and the program is replayed, once per reduction
// (docs/architecture.md, section 4, "Split by replay").
#pragma once

#include "core/row_block_cuda.h"
#include "core/row_chunk_cuda.h"

SAFEOPS_BEGIN_LANES

inline constexpr size_t kMaxShare = SplitPass::kMaxShare;

// What passes hand to each other about a row, in device memory.
struct SplitState {
  unsigned long long arrived;  // slices that have handed in their share of this pass
  unsigned long long passes;   // that ended in an answer; fewer than ran: the row has ended
  double answer[SplitPass::kMaxNumbers];
};
struct SplitScratch {
  SplitState* rows;
  double* shares;  // kMaxShare numbers for each slice of each row
  size_t slices;   // of a row
};

// How the shares of slices become one number, or one state, in order.
struct SumOfSlices {
  CompensatedSum sum;
  SAFEOPS_INLINE void meet(double share) { sum.add(share); }
  SAFEOPS_INLINE double value() const { return sum.value(); }
};
struct LargestOfSlices {
  double best = -std::numeric_limits<double>::infinity();
  SAFEOPS_INLINE void meet(double share) { best = larger_of(best, share); }
  SAFEOPS_INLINE double value() const { return best; }
};
template <class Reduction, class State>
struct MergedSlices {
  State state;
  bool empty = true;
  SAFEOPS_INLINE void meet(const State& share) {
    state = empty ? share : Reduction().merge(state, share);
    empty = false;
  }
  SAFEOPS_INLINE State value() const { return state; }
};

template <class State>
struct Numbers {
  static constexpr size_t kCount = sizeof(State) / sizeof(double);
  double of[kCount];
};
// `Number` is double, or volatile: read past the first-level cache, which may have met a share
// before it was written.
template <class State, class Number>
SAFEOPS_INLINE State state_at(const Number* from) {
  Numbers<State> numbers;
  SAFEOPS_UNROLL for (size_t i = 0; i < Numbers<State>::kCount; ++i) numbers.of[i] = from[i];
  return std::bit_cast<State>(numbers);
}
template <class State>
SAFEOPS_INLINE void store_state(const State& state, double* to) {
  const auto numbers = std::bit_cast<Numbers<State>>(state);
  SAFEOPS_UNROLL for (size_t i = 0; i < Numbers<State>::kCount; ++i) to[i] = numbers.of[i];
}

// Shared memory: the exchange of BlockTotals, whether a block is the last of its row, and chunks of
// elements or some shares at a time.
inline constexpr size_t kSliceFlag = kBlockExchange, kSliceRoom = kSliceFlag + 16;
inline constexpr size_t kSharesAtATime = 2 * kChunkBytes / (kMaxShare * sizeof(double));
inline constexpr size_t kSliceMemory = kSliceRoom + 2 * kChunkBytes;

// Pass k answers the first k reductions from the table and computes reduction k of its slice; every
// verb after that does nothing. In the last pass of a row no reduction is new. All that a program
// branches on is the same in every thread of every slice.
template <class Operands>
class SliceRow : public RowState<Operands> {
 public:
  using Real = typename Operands::Real;
  using Value = double;
  struct Source {
    const RowMemory<Operands, /*kUnitStep=*/true>& memory;
    SAFEOPS_INLINE auto at(size_t j) const { return memory.read(j); }
    SAFEOPS_INLINE void keep(size_t, Real) const {}
  };
  using Span = BlockSpan<Operands, Source>;

  SAFEOPS_INLINE SliceRow(const RowCall& call, const SplitScratch& scratch, int pass, size_t row,
                          size_t slice, unsigned char* shared)
      : RowState<Operands>(call, row, /*exists=*/true, slice == 0 && threadIdx.x == 0),
        memory_(call.arguments, row),
        scratch_(scratch),
        state_(scratch.rows[row]),
        shared_(shared),
        totals_(reinterpret_cast<double*>(shared)),
        pass_(pass),
        slice_(slice),
        begin_(slice * kSliceLength),
        end_(begin_ + kSliceLength < call.arguments.layout.length ? begin_ + kSliceLength
                                                                  : call.arguments.layout.length) {}

  template <class F, class... P>
  SAFEOPS_INLINE double accumulate(F f, P... p) {
    return reduced(sums_, [&](const Span&) { return accumulate_slice(f, p...); });
  }
  template <class F, class... P>
  SAFEOPS_INLINE double sum(F f, P... p) {
    return reduced(sums_, [&](const Span& span) { return span.sum(f, p...); });
  }
  template <class F, class... P>
  SAFEOPS_INLINE double max(F f, P... p) {
    return reduced(is_largest_, [&](const Span& span) { return span.max(f, p...); });
  }
  template <class Reduction>
  SAFEOPS_INLINE auto fold(Reduction reduce) {
    using State = decltype(reduce(std::declval<const Span&>()));
    State state{};
    if (!answers(state) && running()) {
      reached_ = true;
      const Source source{memory_};
      hand_in(MergedSlices<Reduction, State>(), reduce(Span(source, totals_, begin_, end_)));
    }
    return state;
  }
  template <class F, class... P>
  SAFEOPS_INLINE void write(bool singular, const Resolution& policy, F f, P... p) const {
    if (!running() || !memory_.writes()) return;
    const Filling<Real> filling = memory_.filling(singular, policy);
    memory_.write_all(begin_ + threadIdx.x, end_, blockDim.x, filling,
                      [&](const auto& x) { return applied(f, x, p...); });
  }
  // The terms of other slices are gone.
  template <class F, class... P>
  SAFEOPS_INLINE void write_kept(bool, const Resolution&, F, P...) const {}
  SAFEOPS_INLINE bool kept() const { return false; }

  SAFEOPS_INLINE void save(double value) const {
    if (running()) RowState<Operands>::save(value);
  }
  // What was reported belongs to the row: it counts if this was the last pass.
  SAFEOPS_INLINE void finish() {
    if (running()) return RowState<Operands>::finish();
    if (sums_) hand_in(SumOfSlices(), number_);
    if (is_largest_) hand_in(LargestOfSlices(), number_);
  }

 private:
  SAFEOPS_INLINE bool running() const { return !reached_; }

  // Right in warp 0.
  template <class F, class... P>
  SAFEOPS_INLINE double accumulate_slice(F f, P... p) const {
    using Buffer = Chunk<Real, Operands::kInputs>;
    const auto buffer = [&](unsigned which, size_t first) {
      return Buffer(shared_ + kSliceRoom, which, first, 1, 0);
    };
    VirtualLane<Real> lane;
    static_assert(Buffer::kNumbers % VirtualLane<Real>::kLeaf == 0);
    add_by_chunks(
        begin_, end_, Buffer::kNumbers,
        [&](unsigned which, size_t j, size_t last, unsigned thread, unsigned threads) {
          const Buffer chunk = buffer(which, j);
#pragma unroll 4
          for (j += thread; j < last; j += threads) chunk.put(j, memory_.read(j));
        },
        [&](unsigned which, size_t first, size_t last) {
          lane.add(buffer(which, first), first, last, f, p...);
        });
    return threadIdx.x < kWarp ? lane.total() : 0.0;
  }

  // Whether an earlier pass has computed the next reduction.
  template <class State>
  SAFEOPS_INLINE bool answers(State& state) {
    static_assert(Numbers<State>::kCount <= kMaxShare);
    if (answered_ == pass_) return false;
    state = state_at<State>(state_.answer + position_);
    ++answered_;
    position_ += Numbers<State>::kCount;
    return true;
  }
  // `share` computes that of this slice; only thread 0 must have it. It is handed in at the end,
  // where there is one piece of code for all reductions of a program. Sets `kind`.
  template <class Share>
  SAFEOPS_INLINE double reduced(bool& kind, Share share) {
    double state = 0;
    if (!answers(state) && running()) {
      reached_ = kind = true;
      const Source source{memory_};
      number_ = share(Span(source, totals_, begin_, end_));
    }
    return state;
  }

  // The block that comes last makes the answer, so that the order of the slices is their own.
  template <class Slices, class State>
  SAFEOPS_INLINE void hand_in(Slices slices, const State& share) {
    double* const shares = scratch_.shares + this->row_ * scratch_.slices * kMaxShare;
    auto* const last = reinterpret_cast<unsigned*>(shared_ + kSliceFlag);
    __syncthreads();  // every thread has read what the last block will change
    if (threadIdx.x == 0) {
      store_state(share, shares + slice_ * kMaxShare);
      __threadfence();
      *last = atomicAdd(&state_.arrived, 1ull) + 1 == scratch_.slices;
      __threadfence();
    }
    __syncthreads();
    if (*last != 0) answer<State>(slices, shares);
  }
  template <class State, class Slices>
  SAFEOPS_INLINE void answer(Slices slices, const volatile double* shares) {
    auto* const staged = reinterpret_cast<double*>(shared_ + kSliceRoom);
    for (size_t first = 0; first < scratch_.slices; first += kSharesAtATime) {
      const size_t rest = scratch_.slices - first;
      const size_t left = rest < kSharesAtATime ? rest : kSharesAtATime;
      for (size_t i = threadIdx.x; i < left; i += blockDim.x)
        store_state(state_at<State>(shares + (first + i) * kMaxShare), staged + i * kMaxShare);
      __syncthreads();
      if (threadIdx.x == 0) {
        for (size_t i = 0; i < left; ++i) slices.meet(state_at<State>(staged + i * kMaxShare));
      }
      __syncthreads();
    }
    if (threadIdx.x != 0) return;
    store_state(slices.value(), state_.answer + position_);
    state_.arrived = 0;
    state_.passes = static_cast<unsigned long long>(pass_) + 1;
  }

  const RowMemory<Operands, /*kUnitStep=*/true> memory_;
  const SplitScratch& scratch_;
  SplitState& state_;
  unsigned char* const shared_;
  const BlockTotals totals_;
  const int pass_;
  const size_t slice_, begin_, end_;
  int answered_ = 0;
  size_t position_ = 0;
  double number_ = 0;
  bool reached_ = false, sums_ = false, is_largest_ = false;
};

template <class Program, class Operands>
__global__ void __launch_bounds__(kBlockThreads, 1)
    walk_slices(const __grid_constant__ RowCall call, const __grid_constant__ SplitScratch scratch,
                int pass) {
  SAFEOPS_SHARED_MEMORY(shared);
  const size_t shares = call.arguments.layout.rows * scratch.slices;
  for (size_t i = blockIdx.x; i < shares; i += gridDim.x) {
    const size_t r = i / scratch.slices;
    if (scratch.rows[r].passes < static_cast<unsigned long long>(pass)) continue;
    SliceRow<Operands> row(call, scratch, pass, r, i - r * scratch.slices, shared);
    Program()(row, call.arguments.policy);
    row.finish();
    __syncthreads();
  }
}

// A template, so that it may stand in a header.
template <class State>
__global__ void __launch_bounds__(kBlockThreads, 1) clear_rows(State* rows, size_t count) {
  const size_t step = gridDim.x * size_t{kBlockThreads};
  for (size_t r = blockIdx.x * size_t{kBlockThreads} + threadIdx.x; r < count; r += step)
    rows[r].arrived = rows[r].passes = 0;
}

SAFEOPS_END_LANES
