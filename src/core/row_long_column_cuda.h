// Neighbouring rows whose elements lie side by side, too long for a tile in shared memory.
#pragma once

#include "core/row_chunk_cuda.h"

SAFEOPS_BEGIN_LANES

inline constexpr unsigned kLongColumnThreads = 256;
// Shared memory: votes of warps, a number of each thread, and chunks.
inline constexpr size_t kColumnNumbers = kLongColumnThreads / kWarp * sizeof(unsigned);
inline constexpr size_t kColumnChunks = kColumnNumbers + kLongColumnThreads * sizeof(double);
inline constexpr size_t kLongColumnMemory = kColumnChunks + 2 * kChunkBytes;

// All threads of a block must call.
struct BlockVote {
  static SAFEOPS_INLINE bool any(bool mine) {
    SAFEOPS_SHARED_MEMORY(shared);
    auto* const votes = reinterpret_cast<unsigned*>(shared);
    const auto vote = static_cast<unsigned>(__any_sync(kWholeWarp, mine) != 0);
    if (threadIdx.x % kWarp == 0) votes[threadIdx.x / kWarp] = vote;
    __syncthreads();
    unsigned all = 0;
    SAFEOPS_UNROLL for (unsigned w = 0; w < kLongColumnThreads / kWarp; ++w) all |= votes[w];
    __syncthreads();
    return all != 0;
  }
};

// Lane i of every warp stands for row i of 32 and runs the program; elements are dealt to warps.
// Warp 0 adds, in element order, and hands the sums to the others.
template <class Operands>
class LongColumnRow : public RowState<Operands, Voted<BlockVote>> {
  using State = RowState<Operands, Voted<BlockVote>>;

 public:
  using Real = typename Operands::Real;
  using typename State::Value;

  SAFEOPS_INLINE LongColumnRow(const RowCall& call, size_t row, bool exists, unsigned char* shared)
      : State(call, row, exists, threadIdx.x < kWarp),
        memory_(call.arguments, exists ? row : 0),
        shared_(shared),
        length_(call.arguments.layout.length) {}

  template <class F, class... P>
  SAFEOPS_INLINE Value accumulate(F f, P... p) const {
    // Float64: leaves of eight elements are added with compensation, as ColumnRow does.
    constexpr size_t kLeaf = 8;
    Lanes<double> sum = 0.0;
    CompensatedSum leaves;
    add_up<Operands::kInputs>([&](size_t j) { return read(j); },
                              [&](const auto& chunk, size_t j, size_t last) {
                                if constexpr (kExactTerms<Real>) {
#pragma unroll 4
                                  for (; j < last; ++j)
                                    sum = accumulated(f, chunk.at(j), sum, p...);
                                } else {
                                  for (; j < last; j += kLeaf) {
                                    sum = 0.0;
                                    const size_t end = j + kLeaf < last ? j + kLeaf : last;
                                    for (size_t i = j; i < end; ++i)
                                      sum = accumulated(f, chunk.at(i), sum, p...);
                                    leaves.add(sum.raw);
                                  }
                                }
                              });
    return from_first_warp(kExactTerms<Real> ? sum.raw : leaves.value());
  }
  // Terms are made by those who bring elements in.
  template <class F, class... P>
  SAFEOPS_INLINE Value sum(F f, P... p) const {
    TermSum<Real> sum;
    add_up<1>([&](size_t j) { return Elements<Real, 1>{applied(f, read(j), p...)}; },
              [&](const auto& chunk, size_t j, size_t last) {
#pragma unroll 4
                for (; j < last; ++j) sum.add(widen(chunk.at(j).of[0]).raw);
              });
    return from_first_warp(sum.value());
  }
  template <class F, class... P>
  SAFEOPS_INLINE Value sum_keeping(F f, P... p) const {
    return sum(f, p...);
  }
  template <class F, class... P>
  SAFEOPS_INLINE Value max(F f, P... p) const {
    Largest<Real> largest;
#pragma unroll 4
    for (size_t j = warp(); j < length_; j += kWarps) largest.meet(applied(f, read(j), p...));
    numbers()[threadIdx.x] = largest.value();
    __syncthreads();
    double best = -std::numeric_limits<double>::infinity();
    for (size_t w = 0; w < kWarps; ++w) best = larger_of(best, numbers()[w * kWarp + column()]);
    __syncthreads();
    return best;
  }
  template <class Reduction>
  SAFEOPS_INLINE auto fold(Reduction reduce) const {
    return reduce(*this);
  }
  template <class Mask, class F, class... P>
  SAFEOPS_INLINE void write(Mask singular, const Resolution& policy, F f, P... p) const {
    if (!this->exists_ || !memory_.writes()) return;
    memory_.write_all(warp(), length_, kWarps, memory_.filling(singular, policy),
                      [&](const auto& x) { return applied(f, x, p...); });
  }
  template <class Mask, class F, class... P>
  SAFEOPS_INLINE void write_kept(Mask, const Resolution&, F, P...) const {}
  SAFEOPS_INLINE bool kept() const { return false; }

 private:
  static constexpr size_t kWarps = kLongColumnThreads / kWarp;

  static SAFEOPS_INLINE size_t warp() { return threadIdx.x / kWarp; }
  static SAFEOPS_INLINE size_t column() { return threadIdx.x % kWarp; }
  SAFEOPS_INLINE double* numbers() const {
    return reinterpret_cast<double*>(shared_ + kColumnNumbers);
  }
  SAFEOPS_INLINE double from_first_warp(double mine) const {
    if (threadIdx.x < kWarp) numbers()[threadIdx.x] = mine;
    __syncthreads();
    const double number = numbers()[column()];
    __syncthreads();
    return number;
  }
  SAFEOPS_INLINE Elements<Real, Operands::kInputs> read(size_t j) const {
    if (this->exists_) return memory_.read(j);
    Elements<Real, Operands::kInputs> x;
    for (Real& one : x.of) one = Real(1);
    return x;
  }
  template <size_t kNumbers, class Make, class Add>
  SAFEOPS_INLINE void add_up(Make make, Add add) const {
    using Buffer = Chunk<Real, kNumbers>;
    const auto buffer = [&](unsigned which, size_t first) {
      return Buffer(shared_ + kColumnChunks, which, first, kWarp, column());
    };
    add_by_chunks(
        0, length_, Buffer::kNumbers / kWarp,
        [&](unsigned which, size_t j, size_t last, unsigned thread, unsigned threads) {
          const Buffer chunk = buffer(which, j);
#pragma unroll 4
          for (j += thread / kWarp; j < last; j += threads / kWarp) chunk.put(j, make(j));
        },
        [&](unsigned which, size_t first, size_t last) { add(buffer(which, first), first, last); });
  }

  const RowMemory<Operands, /*kUnitStep=*/false> memory_;
  unsigned char* const shared_;
  const size_t length_;
};

template <class Program, class Operands>
__global__ void __launch_bounds__(kLongColumnThreads, 1)
    walk_long_columns(const __grid_constant__ RowCall call) {
  SAFEOPS_SHARED_MEMORY(shared);
  const size_t rows = call.arguments.layout.rows;
  for (size_t first = blockIdx.x * size_t{kWarp}; first < rows;
       first += gridDim.x * size_t{kWarp}) {
    const size_t r = first + threadIdx.x % kWarp;
    LongColumnRow<Operands> row(call, r, r < rows, shared);
    Program()(row, call.arguments.policy);
    row.finish();
  }
}

SAFEOPS_END_LANES
