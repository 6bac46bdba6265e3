// Which Row walks which rows, and how a row program becomes a pair of kernels.
#if defined(SAFEOPS_CORE_WALK_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_WALK_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_WALK_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_WALK_HIGHWAY_INL_H_
#endif

#include "core/rows_highway-inl.h"
#include "core/side_by_side_rows_highway-inl.h"
#include "core/split_row_highway-inl.h"

SAFEOPS_BEGIN_LANES

template <class E, size_t kInputs, class Program>
HWY_NOINLINE void walk_long(const RowArguments& arguments, size_t begin, size_t end, Hits& hits,
                            Program program) {
  RowCursor<E, kInputs> cursor(arguments, begin);
  for (size_t r = begin; r < end; ++r, cursor.advance(1)) {
    const auto pointers = cursor.pointers();
    ContiguousRow<E, kInputs> row(pointers, arguments.layout.length,
                                  RowState{r, 1, arguments, hits, arguments.streams});
    program(row, arguments.policy);
  }
}

// Calls walk(pointers, state) for batches of neighbouring rows, each within one run along the last
// kept dim.
template <class E, size_t kInputs, class Walk>
HWY_INLINE void each_batch(const RowArguments& arguments, size_t begin, size_t end, Hits& hits,
                           Walk walk) {
  RowCursor<E, kInputs> cursor(arguments, begin);
  for (size_t r = begin; r < end;) {
    const size_t count = HWY_MIN(kLanesOf<E>, HWY_MIN(end - r, cursor.left_in_run()));
    walk(cursor.pointers(), RowState{r, count, arguments, hits, arguments.streams});
    cursor.advance(count);
    r += count;
  }
}

template <class E, size_t kInputs, class Program>
HWY_NOINLINE void walk_short(const RowArguments& arguments, size_t begin, size_t end, Hits& hits,
                             Program program) {
  each_batch<E, kInputs>(arguments, begin, end, hits,
                         [&](const RowPointers<E, kInputs>& pointers, const RowState& state)
                             SAFEOPS_LANES {
                               ContiguousBatch<E, kInputs> rows(pointers, arguments.layout, state);
                               program(rows, arguments.policy);
                             });
}

template <class E, size_t kInputs, class Program>
HWY_NOINLINE void walk_side_by_side(const RowArguments& arguments, size_t begin, size_t end,
                                    Hits& hits, Program program) {
  each_batch<E, kInputs>(
      arguments, begin, end, hits,
      [&](const RowPointers<E, kInputs>& pointers, const RowState& state) SAFEOPS_LANES {
        SideBySideRows<E, kInputs> rows(pointers, arguments.layout.operand, arguments.layout.length,
                                        state.count, state);
        program(rows, arguments.policy);
      });
}

// Tiny rows are transposed into a buffer on the stack, element j of all of them next to each other.
template <class E, size_t kInputs>
class TinyRows {
 public:
  using Scalar = typename ElementTraits<E>::Real;
  static constexpr size_t kRows = kLanesOf<E>;

  HWY_INLINE explicit TinyRows(const RowLayout& layout)
      : layout_(layout), dense_(layout.kept_dims != 0) {
    for (size_t k = 0; k <= kInputs; ++k) {
      const ptrdiff_t stride =
          layout.kept_dims == 0 ? 0 : layout.operand[k].kept[layout.kept_dims - 1];
      dense_ = dense_ && stride == static_cast<ptrdiff_t>(layout.length);
      strides_[k].step = kRows;
    }
  }

  template <class Program>
  HWY_INLINE void run(const RowPointers<E, kInputs>& pointers, const RowState& state,
                      const Resolution& policy, Program program) const {
    alignas(64) Scalar input[kInputs][kTinyLength * kRows];
    alignas(64) Scalar output[kTinyLength * kRows];
    RowPointers<Scalar, kInputs> buffers;
    for (size_t k = 0; k < kInputs; ++k) {
      gather(pointers, k, state.count, input[k]);
      buffers.input[k] = input[k];
    }
    buffers.output = pointers.output ? output : nullptr;
    SideBySideRows<Scalar, kInputs, ElementTraits<E>> rows(buffers, strides_, layout_.length, kRows,
                                                           state);
    program(rows, policy);
    if (pointers.output) scatter(output, pointers, state.count);
  }

 private:
  HWY_INLINE bool interleaved(size_t count) const { return dense_ && count == kRows; }

  HWY_INLINE void gather(const RowPointers<E, kInputs>& pointers, size_t which, size_t count,
                         Scalar* to) const {
    const size_t length = layout_.length;
    if constexpr (std::is_floating_point_v<E>) {
      if (interleaved(count) && load_interleaved(pointers.input[which], length, to)) return;
    }
    for (size_t r = 0; r < count; ++r) {
      const E* row = pointers.neighbour(layout_, r).input[which];
      for (size_t j = 0; j < length; ++j) to[j * kRows + r] = to_real(row[j]);
    }
    // Lanes without a row hold 1, so that no arithmetic on them is unusual.
    for (size_t r = count; r < kRows; ++r) {
      for (size_t j = 0; j < length; ++j) to[j * kRows + r] = 1;
    }
  }
  HWY_INLINE void scatter(const Scalar* from, const RowPointers<E, kInputs>& pointers,
                          size_t count) const {
    const size_t length = layout_.length;
    if constexpr (std::is_floating_point_v<E>) {
      if (interleaved(count) && store_interleaved(from, length, pointers.output)) return;
    }
    for (size_t r = 0; r < count; ++r) {
      E* row = pointers.neighbour(layout_, r).output;
      for (size_t j = 0; j < length; ++j) from_real(from[j * kRows + r], row[j]);
    }
  }

  const RowLayout& layout_;
  bool dense_;
  RowLayout::Strides strides_[kInputs + 1];
};

template <class E, size_t kInputs, class Program>
HWY_NOINLINE void walk_tiny(const RowArguments& arguments, size_t begin, size_t end, Hits& hits,
                            Program program) {
  const TinyRows<E, kInputs> tiny(arguments.layout);
  each_batch<E, kInputs>(
      arguments, begin, end, hits,
      [&](const RowPointers<E, kInputs>& pointers, const RowState& state)
          SAFEOPS_LANES { tiny.run(pointers, state, arguments.policy, program); });
}

// How many Row types a program is compiled for. Every one costs compile time for each element type
// and target: a program off the hot path does without the two that only buy speed.
enum class Coverage : unsigned char { full, lean };

// The choice depends on layout and length alone, so a row has the same bits in any company.
template <class Program, class E, size_t kInputs, Coverage kCoverage>
void walk_rows(const RowArguments& arguments, size_t begin, size_t end, Hits& hits) {
  const size_t length = arguments.layout.length;
  if (arguments.layout.kind == RowLayout::Kind::side_by_side) {
    walk_side_by_side<E, kInputs>(arguments, begin, end, hits, Program());
  } else if (length <= kTinyLength) {
    walk_tiny<E, kInputs>(arguments, begin, end, hits, Program());
  } else if (kCoverage == Coverage::full && length <= kShortLength) {
    if constexpr (kCoverage == Coverage::full) {
      walk_short<E, kInputs>(arguments, begin, end, hits, Program());
    }
  } else {
    walk_long<E, kInputs>(arguments, begin, end, hits, Program());
  }
  if (arguments.streams) flush_streams();
}

template <class Program, class E, size_t kInputs>
Reached walk_slice(const RowArguments& arguments, const SplitPass& pass, size_t row, size_t slice,
                   Hits& hits) {
  const auto pointers = RowCursor<E, kInputs>(arguments, row).pointers();
  const size_t begin = slice * kSliceLength;
  const Run<E, kInputs> run(pointers, begin,
                            HWY_MIN(begin + kSliceLength, arguments.layout.length));
  SplitRow<E, kInputs> split(run, pointers.output != nullptr,
                             RowState{row, 1, arguments, hits, arguments.streams}, pass, slice);
  Program()(split, arguments.policy);
  if (arguments.streams) flush_streams();
  return split.finish();
}

template <class Program, class E, size_t kInputs, Coverage kCoverage>
RowKernels row_kernels() {
  if constexpr (kCoverage == Coverage::full) {
    return {walk_rows<Program, E, kInputs, kCoverage>, walk_slice<Program, E, kInputs>};
  } else {
    return {walk_rows<Program, E, kInputs, kCoverage>, nullptr};
  }
}

template <class Program, size_t kInputs, Coverage kCoverage>
RowKernels row_kernels(Element element) {
  switch (element) {
    case Element::float16:
      return row_kernels<Program, float16, kInputs, kCoverage>();
    case Element::bfloat16:
      return row_kernels<Program, bfloat16, kInputs, kCoverage>();
    case Element::float32:
      return row_kernels<Program, float, kInputs, kCoverage>();
    case Element::float64:
      break;
  }
  return row_kernels<Program, double, kInputs, kCoverage>();
}

SAFEOPS_END_LANES

#endif
