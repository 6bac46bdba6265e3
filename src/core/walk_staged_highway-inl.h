// Which Row walks which rows of a program that stages its operands, and how it becomes a pair of
// kernels. Compiled for float and double only; docs/architecture.md, section 4, says why.
#if defined(SAFEOPS_CORE_WALK_STAGED_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_WALK_STAGED_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_WALK_STAGED_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_WALK_STAGED_HIGHWAY_INL_H_
#endif

#include "core/scratch.h"
#include "core/side_by_side_rows_highway-inl.h"
#include "core/split_row_highway-inl.h"
#include "core/stage_highway-inl.h"

SAFEOPS_BEGIN_LANES

// Each instantiation of a program is compiled once and called by every walk that needs it.
template <class Program, class Scalar, size_t kInputs>
HWY_NOINLINE void run_row(const RowPointers<Scalar, kInputs>& pointers, size_t length,
                          const RowState& state) {
  ContiguousRow<Scalar, kInputs> row(pointers, length, state);
  Program()(row, state.arguments.policy);
}
template <class Program, class Scalar, size_t kInputs>
HWY_NOINLINE void run_batch(const RowPointers<Scalar, kInputs>& pointers, const RowLayout& layout,
                            const RowState& state) {
  ContiguousBatch<Scalar, kInputs> rows(pointers, layout, state);
  Program()(rows, state.arguments.policy);
}
// Every lane exists in memory.
template <class Program, class Scalar, size_t kInputs>
HWY_NOINLINE void run_side_by_side(const RowPointers<Scalar, kInputs>& pointers,
                                   const RowLayout::Strides* strides, size_t length,
                                   const RowState& state) {
  SideBySideRows<Scalar, kInputs> rows(pointers, strides, length, Lanes<Scalar>::kLanes, state);
  Program()(rows, state.arguments.policy);
}

HWY_INLINE size_t in_whole_vectors(size_t n, size_t lanes) {
  return (n + lanes - 1) / lanes * lanes;
}

template <class Program, class Scalar, size_t kInputs>
class StagedWalk {
 public:
  using Real = Lanes<Scalar>;
  static constexpr size_t kLanes = Real::kLanes;
  using Pointers = RowPointers<Scalar, kInputs>;
  using Cursor = RowCursor<Scalar, kInputs, kMaxOperands>;

  HWY_INLINE StagedWalk(const RowArguments& arguments, Hits& hits)
      : arguments_(arguments), layout_(arguments.layout), hits_(hits) {}

  HWY_INLINE void rows(size_t begin, size_t end) const {
    const bool staged = is_staged(arguments_) || evicts_itself();
    Cursor cursor(arguments_, begin);
    for (size_t row = begin; row < end;) {
      const size_t left = HWY_MIN(end - row, cursor.left_in_run());
      size_t count = HWY_MIN(kLanes, left);
      if (layout_.kind == RowLayout::Kind::side_by_side) {
        if (!staged && count == kLanes) {
          plain_neighbours(cursor, row);
        } else {
          count = HWY_MIN(rows_of_tile(layout_.length), left);
          tile(cursor, row, count);
        }
      } else if (layout_.length <= kTransposedLength) {
        transposed(cursor, row, count);
      } else if (layout_.length <= kShortLength) {
        staged ? staged_batch(cursor, row, count) : plain_batch(cursor, row, count);
      } else {
        count = 1;
        staged ? staged_row(cursor, row) : plain_row(cursor, row);
      }
      cursor.advance(count);
      row += count;
    }
  }

  HWY_INLINE Reached slice(const SplitPass& pass, size_t row, size_t slice) const {
    const Cursor cursor(arguments_, row);
    const Room room = room_for_a_slice();
    const size_t begin = slice * kSliceLength;
    const size_t length = HWY_MIN(kSliceLength, layout_.length - begin);
    bool nan_filled = false;
    if (!is_staged(arguments_)) {
      const Run<Scalar, kInputs> run(cursor.pointers(), begin, begin + length);
      return run_slice(run, {row, 1, arguments_, hits_, arguments_.streams, room.kept}, pass,
                       slice);
    }
    const RowState state = {row, 1, arguments_, hits_, kInCache, room.kept, &nan_filled};
    const Line line = part_of_row(cursor, 0, begin);
    for (size_t k = 0; k < kInputs; ++k) stage(k, line, length, room.input[k]);
    const Run<Scalar, kInputs> run(in_place(room), 0, length);
    const Reached reached = run_slice(run, state, pass, slice);
    if (reached.numbers == 0) unstage(room.input[0], line, length, nan_filled);
    return reached;
  }

 private:
  // What a row writes to the scratch is read again at once.
  static constexpr bool kInCache = false;
  // A run of elements that are staged together: where it begins in every operand.
  struct Line {
    ptrdiff_t offset[kMaxOperands];
    ptrdiff_t mask_step;
  };
  struct Room {
    Scalar* input[kInputs];
    Scalar* kept;
  };

  struct SameStep {
    RowLayout::Strides of[kInputs + 1];
    HWY_INLINE explicit SameStep(size_t step) {
      for (auto& operand : of) operand.step = static_cast<ptrdiff_t>(step);
    }
  };

  HWY_INLINE ptrdiff_t to_next_row(size_t which) const {
    return layout_.kept_dims == 0 ? 0 : layout_.operand[which].kept[layout_.kept_dims - 1];
  }
  // Elements `begin` and on of the row that many rows after the cursor's.
  HWY_INLINE Line part_of_row(const Cursor& cursor, size_t after, size_t begin) const {
    Line line;
    for (size_t k = 0; k < kMaxOperands; ++k) {
      line.offset[k] = cursor.offset(k) + static_cast<ptrdiff_t>(after) * to_next_row(k) +
                       static_cast<ptrdiff_t>(begin) * layout_.operand[k].step;
    }
    line.mask_step = layout_.operand[kMaskOperand].step;
    return line;
  }
  // Element j of the cursor's row and of its neighbours.
  HWY_INLINE Line across_rows(const Cursor& cursor, size_t j) const {
    Line line = part_of_row(cursor, 0, j);
    line.mask_step = to_next_row(kMaskOperand);
    return line;
  }
  HWY_INLINE MaskRun mask_of(const Line& line) const {
    const bool* mask = arguments_.storage.mask;
    return {mask ? mask + line.offset[kMaskOperand] : nullptr, line.mask_step};
  }
  HWY_INLINE void stage(size_t which, const Line& line, size_t n, Scalar* to) const {
    const Storage& storage = arguments_.storage;
    stage_run(storage.input[which], arguments_.input[which], line.offset[which], mask_of(line),
              storage.masked_input[which], n, to);
  }
  HWY_INLINE void unstage(const Scalar* from, const Line& line, size_t n, bool nan_filled) const {
    if (arguments_.output == nullptr) return;
    const Storage& storage = arguments_.storage;
    const bool whole = nan_filled && storage.nan_fill_covers_masked;
    unstage_run(from, whole ? MaskRun{nullptr, 0} : mask_of(line), storage.masked_output,
                arguments_.streams, n, storage.output, arguments_.output, line.offset[kInputs]);
  }

  // Scratch in parts of `elements`, one for each input and one for kept terms, each with a vector
  // of room behind it. Parts do not begin at a multiple of 4096 bytes from each other: a load would
  // wait for the store before it that has the same address modulo 4096.
  HWY_INLINE Room room_for(size_t elements, bool keeps = true) const {
    const size_t part = in_whole_vectors(elements, 16) + 16 + 2048 / sizeof(Scalar);
    Scalar* at = static_cast<Scalar*>(thread_scratch((kInputs + keeps) * part * sizeof(Scalar)));
    Room room;
    for (size_t k = 0; k < kInputs; ++k, at += part) room.input[k] = at;
    room.kept = keeps ? at : nullptr;
    return room;
  }
  HWY_INLINE Room room_for_a_slice() const { return room_for(kSliceLength); }
  HWY_INLINE Room room_for_a_row() const {
    return room_for(HWY_MAX(kSliceLength, HWY_MIN(layout_.length, kKeptLength)));
  }
  HWY_INLINE Pointers in_place(const Room& room) const {
    Pointers pointers;
    for (size_t k = 0; k < kInputs; ++k) pointers.input[k] = room.input[k];
    pointers.output = room.input[0];
    return pointers;
  }

  HWY_INLINE Reached run_slice(const Run<Scalar, kInputs>& run, const RowState& state,
                               const SplitPass& pass, size_t slice) const {
    SplitRow<Scalar, kInputs> row(run, arguments_.output != nullptr, state, pass, slice);
    Program()(row, arguments_.policy);
    return row.finish();
  }

  HWY_INLINE void plain_row(const Cursor& cursor, size_t row) const {
    run_row<Program, Scalar, kInputs>(
        cursor.pointers(), layout_.length,
        {row, 1, arguments_, hits_, arguments_.streams, room_for_a_row().kept});
  }
  HWY_INLINE void staged_row(const Cursor& cursor, size_t row) const {
    const Room room = room_for_a_row();
    const Line line = part_of_row(cursor, 0, 0);
    for (size_t k = 0; k < kInputs; ++k) stage(k, line, layout_.length, room.input[k]);
    bool nan_filled = false;
    run_row<Program, Scalar, kInputs>(
        in_place(room), layout_.length,
        {row, 1, arguments_, hits_, kInCache, room.kept, &nan_filled});
    unstage(room.input[0], line, layout_.length, nan_filled);
  }

  HWY_INLINE void plain_batch(const Cursor& cursor, size_t row, size_t count) const {
    run_batch<Program, Scalar, kInputs>(
        cursor.pointers(), layout_,
        {row, count, arguments_, hits_, arguments_.streams, room_for_a_slice().kept});
  }
  HWY_INLINE void staged_batch(const Cursor& cursor, size_t row, size_t count) const {
    const Room room = room_for_a_slice();
    const size_t pitch = in_whole_vectors(layout_.length, kLanes);
    RowLayout dense;
    dense.length = layout_.length;
    dense.kept_dims = 1;
    for (auto& operand : dense.operand) operand.kept[0] = static_cast<ptrdiff_t>(pitch);
    for (size_t k = 0; k < kInputs; ++k) {
      for (size_t r = 0; r < count; ++r)
        stage(k, part_of_row(cursor, r, 0), layout_.length, room.input[k] + r * pitch);
    }
    bool nan_filled[kLanes] = {};
    run_batch<Program, Scalar, kInputs>(
        in_place(room), dense, {row, count, arguments_, hits_, kInCache, room.kept, nan_filled});
    for (size_t r = 0; r < count; ++r)
      unstage(room.input[0] + r * pitch, part_of_row(cursor, r, 0), layout_.length, nan_filled[r]);
  }

  // Whether neighbouring rows of an operand follow each other without a gap.
  HWY_INLINE bool is_dense(size_t which) const {
    return layout_.operand[which].step == 1 &&
           to_next_row(which) == static_cast<ptrdiff_t>(layout_.length);
  }
  HWY_INLINE bool may_stage_as_one(size_t which) const {
    return is_dense(which) && (arguments_.storage.mask == nullptr || is_dense(kMaskOperand));
  }
  HWY_NOINLINE void transposed(const Cursor& cursor, size_t row, size_t count) const {
    const size_t length = layout_.length;
    const Room room = room_for_a_slice();
    Scalar* const dense = room.kept;
    for (size_t k = 0; k < kInputs; ++k) {
      if (may_stage_as_one(k)) {
        stage(k, part_of_row(cursor, 0, 0), count * length, dense);
      } else {
        for (size_t r = 0; r < count; ++r)
          stage(k, part_of_row(cursor, r, 0), length, dense + r * length);
      }
      transpose(dense, count, room.input[k]);
    }
    bool nan_filled[kLanes] = {};
    run_side_by_side<Program, Scalar, kInputs>(
        in_place(room), SameStep(kLanes).of, length,
        {row, count, arguments_, hits_, kInCache, nullptr, nan_filled});
    if (arguments_.output == nullptr) return;
    transpose_back(room.input[0], dense);
    bool any_filled = false;
    for (const bool filled : nan_filled) any_filled = any_filled || filled;
    if (may_stage_as_one(kInputs) && !any_filled) {
      unstage(dense, part_of_row(cursor, 0, 0), count * length, false);
    } else {
      for (size_t r = 0; r < count; ++r)
        unstage(dense + r * length, part_of_row(cursor, r, 0), length, nan_filled[r]);
    }
  }
  HWY_INLINE void transpose(Scalar* from, size_t count, Scalar* to) const {
    const size_t length = layout_.length;
    // Lanes without a row hold 1, so that no arithmetic on them is unusual.
    for (size_t i = count * length; i < kLanes * length; ++i) from[i] = 1;
    if (load_interleaved(from, length, to)) return;
    for (size_t r = 0; r < kLanes; ++r) {
      for (size_t j = 0; j < length; ++j) to[j * kLanes + r] = from[r * length + j];
    }
  }
  HWY_INLINE void transpose_back(const Scalar* from, Scalar* to) const {
    const size_t length = layout_.length;
    if (store_interleaved(from, length, to)) return;
    for (size_t r = 0; r < kLanes; ++r) {
      for (size_t j = 0; j < length; ++j) to[r * length + j] = from[j * kLanes + r];
    }
  }

  // Whether neighbouring rows had better not be walked where they lie: elements of a row that are
  // whole pages apart share one set of the first-level cache, which holds about a dozen of them.
  HWY_INLINE bool evicts_itself() const {
    constexpr ptrdiff_t kPage = 4096;
    const ptrdiff_t bytes = layout_.operand[0].step * static_cast<ptrdiff_t>(sizeof(Scalar));
    return layout_.kind == RowLayout::Kind::side_by_side && bytes % kPage == 0;
  }
  // A vector of rows where they lie; terms are kept where the output will be.
  HWY_INLINE void plain_neighbours(const Cursor& cursor, size_t row) const {
    run_side_by_side<Program, Scalar, kInputs>(
        cursor.pointers(), layout_.operand, layout_.length,
        {row, kLanes, arguments_, hits_, arguments_.streams});
  }
  HWY_NOINLINE void tile(const Cursor& cursor, size_t row, size_t count) const {
    const size_t length = layout_.length, pitch = in_whole_vectors(count, kLanes);
    const Room room = room_for(length * pitch, /*keeps=*/false);
    for (size_t k = 0; k < kInputs; ++k) {
      for (size_t j = 0; j < length; ++j)
        stage(k, across_rows(cursor, j), count, room.input[k] + j * pitch);
    }
    constexpr size_t kMaxTile = rows_of_tile(1);
    bool nan_filled[kMaxTile] = {};
    const SameStep steps(pitch);
    for (size_t first = 0; first < count; first += kLanes) {
      Pointers pointers = in_place(room);
      for (auto& input : pointers.input) input += first;
      pointers.output += first;
      run_side_by_side<Program, Scalar, kInputs>(
          pointers, steps.of, length,
          {row + first, HWY_MIN(kLanes, count - first), arguments_, hits_, kInCache, nullptr,
           nan_filled + first});
    }
    if (arguments_.output == nullptr) return;
    for (size_t j = 0; j < length; ++j)
      unstage(room.input[0] + j * pitch, across_rows(cursor, j), count, false);
    if (arguments_.storage.mask == nullptr || !arguments_.storage.nan_fill_covers_masked) return;
    for (size_t r = 0; r < count; ++r) {
      if (!nan_filled[r]) continue;
      const auto unmasked = MaskRun{nullptr, 0};
      for (size_t j = 0; j < length; ++j) {
        unstage_run(room.input[0] + j * pitch + r, unmasked, 0, false, 1, arguments_.storage.output,
                    arguments_.output, part_of_row(cursor, r, j).offset[kInputs]);
      }
    }
  }

  const RowArguments& arguments_;
  const RowLayout& layout_;
  Hits& hits_;
};

template <class Program, class Scalar, size_t kInputs>
void walk_staged_rows(const RowArguments& arguments, size_t begin, size_t end, Hits& hits) {
  StagedWalk<Program, Scalar, kInputs>(arguments, hits).rows(begin, end);
  if (arguments.streams) flush_streams();
}
template <class Program, class Scalar, size_t kInputs>
Reached walk_staged_slice(const RowArguments& arguments, const SplitPass& pass, size_t row,
                          size_t slice, Hits& hits) {
  const Reached reached =
      StagedWalk<Program, Scalar, kInputs>(arguments, hits).slice(pass, row, slice);
  if (arguments.streams) flush_streams();
  return reached;
}

// `arithmetic` is float32 or float64.
template <class Program, size_t kInputs>
RowKernels staged_row_kernels(Element arithmetic) {
  if (arithmetic == Element::float64) {
    return {walk_staged_rows<Program, double, kInputs>, walk_staged_slice<Program, double, kInputs>,
            /*stages=*/true};
  }
  return {walk_staged_rows<Program, float, kInputs>, walk_staged_slice<Program, float, kInputs>,
          /*stages=*/true};
}

SAFEOPS_END_LANES

#endif
