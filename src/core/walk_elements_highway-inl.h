// Walks the elements of a call (docs/architecture.md, section 7). A Cell, made from CellArguments,
// says what is computed:
//  - kInputs, kOutputs
//  - plain(in, out): the outputs as if there were no singular points
//  - suspect(in): a mask of lanes, cheap and perhaps too wide; outside it all elements are regular
//  - guarded(in, out, met): lets the policy decide about the singular lanes; says in kCounters
//    masks which lanes are to be counted
//  - counter(hits, i): where those of mask i are counted
#if defined(SAFEOPS_CORE_WALK_ELEMENTS_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_CORE_WALK_ELEMENTS_HIGHWAY_INL_H_
#undef SAFEOPS_CORE_WALK_ELEMENTS_HIGHWAY_INL_H_
#else
#define SAFEOPS_CORE_WALK_ELEMENTS_HIGHWAY_INL_H_
#endif

#include <limits>

#include "core/element_cursor.h"
#include "core/hits.h"
#include "core/memory_highway-inl.h"
#include "core/run_elements.h"

SAFEOPS_BEGIN_LANES

template <class Cell, class E>
class ElementWalk {
 public:
  ElementWalk(const ElementArguments& arguments, Hits& hits)
      : arguments_(arguments), cell_(arguments.cell()), numbers_(arguments), hits_(hits) {}

  void run(size_t begin, size_t end) {
    ElementCursor cursor(arguments_, begin);
    const bool side_by_side = is_side_by_side();
    for (size_t position = begin; position < end;) {
      const size_t left = end - position;
      const size_t run = cursor.run() < left ? cursor.run() : left;
      if (side_by_side && run >= kWorthwhile) {
        run_in_place(cursor, position, run);
        cursor.advance(run);
        position += run;
      } else {
        position += run_tile(cursor, position, left);
      }
    }
    if (arguments_.streams) flush_streams();
  }

 private:
  using Real = Lanes<typename ElementTraits<E>::Real>;
  using LaneMask = Mask<typename Real::Scalar>;
  static constexpr size_t kLanes = Real::kLanes;
  // Vectors that share one test for suspects: enough to hide the latency of a division.
  static constexpr size_t kVectors = 4;
  static constexpr size_t kStaged = 512;
  // Runs so long are computed one by one; shorter ones are put together.
  static constexpr size_t kWorthwhile = 256;

  // Inputs and outputs of a run of elements that lie side by side.
  struct Run {
    const E* input[Cell::kInputs];  // null: `repeated` is every element
    Real repeated[Cell::kInputs];
    E* output[Cell::kOutputs];  // null: not wanted
    bool streams[Cell::kOutputs] = {};
  };

  bool is_side_by_side() const {
    if (arguments_.size.empty()) return false;
    constexpr std::int64_t kStep = sizeof(E);
    bool fits = true;
    for (size_t k = 0; k < Cell::kInputs; ++k) {
      const ElementOperand& input = arguments_.input[k];
      fits = fits && (input.data == nullptr || input.stride[0] == kStep || input.stride[0] == 0);
    }
    for (size_t k = 0; k < Cell::kOutputs; ++k) {
      const ElementOperand& output = arguments_.output[k];
      fits = fits && (output.data == nullptr || output.stride[0] == kStep);
    }
    return fits;
  }

  void run_in_place(const ElementCursor& cursor, size_t position, size_t n) {
    Run run;
    for (size_t k = 0; k < Cell::kInputs; ++k) {
      const E* const input = reinterpret_cast<const E*>(cursor.input(k));
      const bool repeats = input == nullptr || arguments_.input[k].stride[0] == 0;
      run.input[k] = repeats ? nullptr : input;
      run.repeated[k] = input == nullptr ? number(k) : Real(to_real(*input));
    }
    for (size_t k = 0; k < Cell::kOutputs; ++k)
      run.output[k] = reinterpret_cast<E*>(cursor.output(k));
    size_t i = 0;
    if constexpr (kCanStream<E>) {
      if (arguments_.streams) i = start_streaming(run, position, n);
    }
    compute(run, i, n, position);
  }

  // Elements [i, n) of a run. Copies, whose address nobody has, can stay in registers: a store of
  // lanes might otherwise change them.
  HWY_NOINLINE void compute(const Run& shared, size_t i, size_t n, size_t position) {
    const Run run = shared;
    const Cell cell = cell_;
    for (; i + kVectors * kLanes <= n; i += kVectors * kLanes)
      vectors<kVectors>(cell, run, i, position);
    for (; i + kLanes <= n; i += kLanes) vectors<1>(cell, run, i, position);
    if (i < n) part(shared, i, n - i, position);
  }

  // Elements up to where the outputs are aligned. Outputs that are not aligned together are stored
  // as usual.
  size_t start_streaming(Run& run, size_t position, size_t n) {
    size_t i = 0;
    for (size_t k = 0; k < Cell::kOutputs && i == 0; ++k) {
      if (run.output[k] == nullptr || is_aligned(run.output[k])) continue;
      while (i < n && !is_aligned(run.output[k] + i)) ++i;
    }
    if (i != 0) part(run, 0, i, position);
    for (size_t k = 0; k < Cell::kOutputs; ++k)
      run.streams[k] = run.output[k] != nullptr && is_aligned(run.output[k] + i);
    return i;
  }

  // A rectangle of the first two dims: several whole runs, or a part of one.
  struct Tile {
    size_t runs, length;
    size_t elements() const { return runs * length; }
  };

  Tile tile_at(const ElementCursor& cursor, size_t left) const {
    const size_t run = cursor.run();
    const bool whole = !arguments_.size.empty() && run == size_t(arguments_.size[0]);
    if (!whole || 2 * run > kStaged || run > left) return {1, least(least(run, left), kStaged)};
    return {least(cursor.runs(), least(kStaged, left) / run), run};
  }
  static size_t least(size_t a, size_t b) { return a < b ? a : b; }

  // Elements that do not lie side by side are copied together, computed, and copied back.
  size_t run_tile(ElementCursor& cursor, size_t position, size_t left) {
    alignas(64) E input[Cell::kInputs][kStaged], output[Cell::kOutputs][kStaged];
    const Tile tile = tile_at(cursor, left);
    Run run;
    for (size_t k = 0; k < Cell::kInputs; ++k) {
      const E* const from = reinterpret_cast<const E*>(cursor.input(k));
      const bool gathers = from != nullptr && !is_dense(arguments_.input[k], tile);
      run.input[k] = gathers ? input[k] : from;
      run.repeated[k] = number(k);
      if (gathers) gather(cursor.input(k), arguments_.input[k], tile, input[k]);
    }
    for (size_t k = 0; k < Cell::kOutputs; ++k) {
      E* const to = reinterpret_cast<E*>(cursor.output(k));
      const bool scatters = to != nullptr && !is_dense(arguments_.output[k], tile);
      run.output[k] = scatters ? output[k] : to;
    }
    compute(run, 0, tile.elements(), position);
    for (size_t k = 0; k < Cell::kOutputs; ++k) {
      if (run.output[k] == output[k])
        scatter(output[k], arguments_.output[k], tile, cursor.output(k));
    }
    if (tile.runs == 1) {
      cursor.advance(tile.length);
    } else {
      cursor.advance_runs(tile.runs);
    }
    return tile.elements();
  }

  // Strides between neighbours and between runs.
  struct Strides {
    std::int64_t within, between;
  };
  Strides strides(const ElementOperand& operand, const Tile& tile) const {
    const std::int64_t* const stride = operand.stride;
    return {arguments_.size.empty() ? 0 : stride[0], tile.runs == 1 ? 0 : stride[1]};
  }
  bool is_dense(const ElementOperand& operand, const Tile& tile) const {
    const Strides stride = strides(operand, tile);
    constexpr std::int64_t kStep = sizeof(E);
    return stride.within == kStep &&
           (tile.runs == 1 || stride.between == std::int64_t(tile.length) * kStep);
  }
  void gather(const char* from, const ElementOperand& operand, const Tile& tile, E* to) const {
    const Strides stride = strides(operand, tile);
    const auto each_run = [&](const auto& copy) {
      for (size_t r = 0; r < tile.runs; ++r, from += stride.between, to += tile.length)
        copy(from, to);
    };
    if (stride.within == sizeof(E)) {
      each_run([&](const char* run, E* at) { __builtin_memcpy(at, run, tile.length * sizeof(E)); });
    } else if (stride.within == 0 && tile.length >= kLanes) {
      each_run([&](const char* run, E* at) {
        repeat(*reinterpret_cast<const E*>(run), tile.length, at);
      });
    } else {
      each_run([&](const char* run, E* at) {
        for (size_t i = 0; i < tile.length; ++i, run += stride.within)
          at[i] = *reinterpret_cast<const E*>(run);
      });
    }
  }
  // n is at least a vector: the last one may overlap the one before.
  static void repeat(E x, size_t n, E* to) {
    const Real lanes(to_real(x));
    for (size_t i = 0; i + kLanes <= n; i += kLanes) store(lanes, to + i);
    store(lanes, to + n - kLanes);
  }
  void scatter(const E* from, const ElementOperand& operand, const Tile& tile, char* to) const {
    const Strides stride = strides(operand, tile);
    for (size_t r = 0; r < tile.runs; ++r, to += stride.between) {
      char* at = to;
      for (size_t i = 0; i < tile.length; ++i, at += stride.within)
        *reinterpret_cast<E*>(at) = *from++;
    }
  }

  Real number(size_t k) const {
    return Real(static_cast<typename Real::Scalar>(arguments_.number[k]));
  }

  template <size_t kCount>
  HWY_INLINE void vectors(const Cell& cell, const Run& run, size_t i, size_t position) {
    Real in[kCount][Cell::kInputs], out[kCount][Cell::kOutputs];
    LaneMask suspect[kCount];
    SAFEOPS_UNROLL for (size_t v = 0; v < kCount; ++v) {
      SAFEOPS_UNROLL for (size_t k = 0; k < Cell::kInputs; ++k) {
        in[v][k] = run.input[k] == nullptr ? run.repeated[k] : load(run.input[k] + i + v * kLanes);
      }
      suspect[v] = cell.suspect(in[v]);
      cell.plain(in[v], out[v]);
    }
    auto together = suspect[0];
    SAFEOPS_UNROLL for (size_t v = 1; v < kCount; ++v) together = together | suspect[v];
    if (any(together)) guarded<kCount>(cell, in, out, position + i);
    SAFEOPS_UNROLL for (size_t k = 0; k < Cell::kOutputs; ++k) {
      if (run.output[k] == nullptr) continue;
      SAFEOPS_UNROLL for (size_t v = 0; v < kCount; ++v) {
        put(out[v][k], run.output[k] + i + v * kLanes, run.streams[k]);
      }
    }
  }

  HWY_NOINLINE void part(const Run& run, size_t i, size_t n, size_t position) {
    Real in[1][Cell::kInputs], out[1][Cell::kOutputs];
    // Past the last element stands infinity, which no operator finds singular at any threshold.
    const Real beyond(std::numeric_limits<typename Real::Scalar>::infinity());
    const auto present = first_elements<Real>(n);
    for (size_t k = 0; k < Cell::kInputs; ++k) {
      const Real x = run.input[k] == nullptr ? run.repeated[k] : load_first(n, run.input[k] + i);
      in[0][k] = select(present, x, beyond);
    }
    cell_.plain(in[0], out[0]);
    if (any(cell_.suspect(in[0]))) guarded<1>(cell_, in, out, position + i);
    for (size_t k = 0; k < Cell::kOutputs; ++k) {
      if (run.output[k] != nullptr) store_first(n, out[0][k], run.output[k] + i);
    }
  }

  // Counts for all vectors together: a count costs less than what surrounds it.
  template <size_t kCount>
  HWY_INLINE void guarded(const Cell& cell, const Real (&in)[kCount][Cell::kInputs],
                          Real (&out)[kCount][Cell::kOutputs], size_t position) {
    LaneMask met[kCount][Cell::kCounters];
    SAFEOPS_UNROLL for (size_t v = 0; v < kCount; ++v) cell.guarded(in[v], out[v], met[v]);
    SAFEOPS_UNROLL for (size_t c = 0; c < Cell::kCounters; ++c) {
      size_t count = 0;
      SAFEOPS_UNROLL for (size_t v = 0; v < kCount; ++v) count += count_set(met[v][c]);
      if (count == 0) continue;
      Hit& hit = cell.counter(hits_, c);
      hit.count += count;
      if (numbers_.least_from(position) >= hit.first) continue;
      for (size_t v = 0; v < kCount; ++v) lower(hit, met[v][c], position + v * kLanes);
    }
  }

  HWY_NOINLINE void lower(Hit& hit, LaneMask met, size_t position) {
    for_each_set(met, [&](size_t lane) {
      const size_t number = numbers_.number(position + lane);
      if (number < hit.first) hit.first = number;
    });
  }

  HWY_INLINE static void put(Real x, E* to, bool streams) {
    if constexpr (kCanStream<E>) {
      if (streams) return stream(x, to);
    }
    store(x, to);
  }

  const ElementArguments& arguments_;
  const Cell cell_;
  const ElementNumbers numbers_;
  Hits& hits_;
};

template <class Cell, class E>
void walk_elements(const ElementArguments& arguments, size_t begin, size_t end, Hits& hits) {
  ElementWalk<Cell, E>(arguments, hits).run(begin, end);
}

// The kernel of Cell<Real, E> for the element type of the call.
template <template <class, class> class Cell>
ElementKernel element_kernel(Element element) {
  switch (element) {
    case Element::float16:
      return walk_elements<Cell<Lanes<float>, float16>, float16>;
    case Element::bfloat16:
      return walk_elements<Cell<Lanes<float>, bfloat16>, bfloat16>;
    case Element::float32:
      return walk_elements<Cell<Lanes<float>, float>, float>;
    case Element::float64:
      break;
  }
  return walk_elements<Cell<Lanes<double>, double>, double>;
}

SAFEOPS_END_LANES

#endif
