// One thread a row, element by element: neighbouring rows whose elements lie side by side, and rows
// of a few elements.
#pragma once

#include "core/row_memory_cuda.h"

SAFEOPS_BEGIN_LANES

// The elements of a row in a tile of shared memory, whose rows are `width` columns.
template <class Operands>
class ColumnOfTile {
 public:
  using Real = typename Operands::Real;
  using Scalar = typename Real::Scalar;
  static constexpr size_t kInputs = Operands::kInputs;

  SAFEOPS_INLINE ColumnOfTile(Scalar* tile, size_t length, size_t width, size_t column)
      : at_(tile + column), input_(length * width), width_(width) {}
  SAFEOPS_INLINE Elements<Real, kInputs> at(size_t j) const {
    Elements<Real, kInputs> x;
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) x.of[k] = at_[k * input_ + j * width_];
    return x;
  }
  SAFEOPS_INLINE void put(size_t j, const Elements<Real, kInputs>& x) const {
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) at_[k * input_ + j * width_] = x.of[k].raw;
  }
  SAFEOPS_INLINE void keep(size_t j, Real term) const { at_[j * width_] = term.raw; }

 private:
  Scalar* at_;
  size_t input_, width_;
};

// Adds in element order. No verb needs another thread, so that threads may part at any branch.
template <class Operands>
class ColumnRow : public RowState<Operands> {
  using Column = ColumnOfTile<Operands>;

 public:
  using Real = typename Operands::Real;
  using Value = double;
  static constexpr size_t kInputs = Operands::kInputs;

  SAFEOPS_INLINE ColumnRow(const RowCall& call, size_t row, bool exists,
                           const RowMemory<Operands, false>& memory, const Column& column)
      : RowState<Operands>(call, row, exists, /*leads=*/true),
        memory_(memory),
        column_(column),
        length_(call.arguments.layout.length) {}

  template <class F, class... P>
  SAFEOPS_INLINE double accumulate(F f, P... p) const {
    if constexpr (kExactTerms<Real>) {
      return accumulate_leaf(0, length_, f, p...);
    } else {
      CompensatedSum sum;
#pragma unroll 1
      for (size_t j = 0; j < length_; j += 8)
        sum.add(accumulate_leaf(j, j + 8 < length_ ? j + 8 : length_, f, p...));
      return sum.value();
    }
  }
  template <class F, class... P>
  SAFEOPS_INLINE double max(F f, P... p) const {
    Largest<Real> largest;
#pragma unroll 2
    for (size_t j = 0; j < length_; ++j) largest.meet(applied(f, column_.at(j), p...));
    return larger_of(largest.value(), -std::numeric_limits<double>::infinity());
  }
  template <class F, class... P>
  SAFEOPS_INLINE double sum(F f, P... p) const {
    return sum_terms<false>(f, p...);
  }
  template <class F, class... P>
  SAFEOPS_INLINE double sum_keeping(F f, P... p) const {
    return sum_terms<true>(f, p...);
  }
  template <class Reduction>
  SAFEOPS_INLINE auto fold(Reduction reduce) const {
    return reduce(*this);
  }
  template <class F, class... P>
  SAFEOPS_INLINE void write(bool singular, const Resolution& policy, F f, P... p) const {
    write_elements(singular, policy, [&](size_t j) { return applied(f, column_.at(j), p...); });
  }
  template <class F, class... P>
  SAFEOPS_INLINE void write_kept(bool singular, const Resolution& policy, F f, P... p) const {
    write_elements(singular, policy, [&](size_t j) {
      return applied(f, Elements<Real, 1>{column_.at(j).of[0]}, p...);
    });
  }
  SAFEOPS_INLINE bool kept() const { return true; }

 private:
  template <class F, class... P>
  SAFEOPS_INLINE double accumulate_leaf(size_t j, size_t end, F f, P... p) const {
    Lanes<double> sum = 0.0;
#pragma unroll 2
    for (; j < end; ++j) sum = accumulated(f, column_.at(j), sum, p...);
    return sum.raw;
  }
  template <bool kKeeps, class F, class... P>
  SAFEOPS_INLINE double sum_terms(F f, P... p) const {
    TermSum<Real> sum;
#pragma unroll 2
    for (size_t j = 0; j < length_; ++j) {
      const Real term = applied(f, column_.at(j), p...);
      if constexpr (kKeeps) column_.keep(j, term);
      sum.add(widen(term).raw);
    }
    return sum.value();
  }
  template <class Result>
  SAFEOPS_INLINE void write_elements(bool singular, const Resolution& policy, Result result) const {
    if (!memory_.writes()) return;
    const Filling<Real> filling = memory_.filling(singular, policy);
#pragma unroll 2
    for (size_t j = 0; j < length_; ++j) memory_.write(j, memory_.is_masked(j), filling, result(j));
  }

  const RowMemory<Operands, false>& memory_;
  const Column column_;
  const size_t length_;
};

inline constexpr int kColumnThreads = 256;

// All threads bring in `width` rows, a power of two and whole warps; the first `width` threads walk
// them.
template <class Program, class Operands>
__global__ void __launch_bounds__(kColumnThreads, 1)
    walk_column_tiles(const __grid_constant__ RowCall call, unsigned width) {
  using Column = ColumnOfTile<Operands>;
  SAFEOPS_SHARED_MEMORY(shared);
  const RowArguments& arguments = call.arguments;
  const size_t rows = arguments.layout.rows, length = arguments.layout.length;
  const unsigned place = threadIdx.x & (width - 1);
  const Column column(reinterpret_cast<typename Column::Scalar*>(shared), length, width, place);
  for (size_t first = blockIdx.x * size_t{width}; first < rows;
       first += gridDim.x * size_t{width}) {
    const size_t r = first + place;
    const bool exists = r < rows;
    const RowMemory<Operands, false> memory(arguments, exists ? r : first);
    if (exists) {
#pragma unroll 4
      for (size_t j = threadIdx.x / width; j < length; j += kColumnThreads / width)
        column.put(j, memory.read(j));
    }
    __syncthreads();
    if (threadIdx.x < width) {
      ColumnRow<Operands> row(call, r, exists, memory, column);
      if (exists) Program()(row, arguments.policy);
      row.finish();
    }
    __syncthreads();
  }
}

SAFEOPS_END_LANES
