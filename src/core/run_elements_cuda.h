// Walks the elements of a call on a CUDA device. Cells are those of walk_elements_highway-inl.h.
//
// A warp takes a tile of elements at a time. A tile without suspects is computed as if there were
// no singular points; another is read again, and computed with care, 32 elements at a time.
#pragma once

#include "core/elements_cuda.h"
#include "core/memory_cuda.h"

SAFEOPS_BEGIN_LANES

inline constexpr unsigned kBlock = 128;
// Blocks for each multiprocessor: several times those that run there together, so that the last of
// them leave few others idle.
inline constexpr int kBlocksEach = 32;

template <class Cell, class E, Direction kDirection>
class ElementWarp {
 public:
  static constexpr int kVector = 16 / sizeof(E);  // elements of one load
  // Loads that a lane has in flight for each input.
  static constexpr int kVectors = 2, kSingles = 4;
  static constexpr std::uint32_t kVectorTile = kWarp * kVectors * kVector;
  static constexpr std::uint32_t kSingleTile = kWarp * kSingles;

  SAFEOPS_INLINE ElementWarp(const DeviceElements& elements, const HitSink& sink)
      : elements_(elements), sink_(sink), cell_(elements.cell) {}

  // Vectors of neighbours, as lie_in_vectors says.
  SAFEOPS_INLINE void run_vectors() const {
    each_tile<kVectorTile>([&](std::uint32_t begin, std::uint32_t end) SAFEOPS_LANES {
      return end - begin == kVectorTile && vector_tile(begin);
    });
  }

  SAFEOPS_INLINE void run_singles() const {
    each_tile<kSingleTile>([&](std::uint32_t begin, std::uint32_t end)
                               SAFEOPS_LANES { return single_tile(begin, end); });
  }

 private:
  static constexpr int kInputs = Cell::kInputs, kOutputs = Cell::kOutputs;
  static constexpr int kCounters = Cell::kCounters;
  using Real = RealOf<E>;

  struct alignas(16) Vector {
    E element[kVector];
  };

  static SAFEOPS_INLINE unsigned lane() { return threadIdx.x % kWarp; }

  // regular(begin, end) computes a tile unless it must be computed with care.
  template <std::uint32_t kTile, class F>
  SAFEOPS_INLINE void each_tile(const F& regular) const {
    constexpr unsigned kWarps = kBlock / kWarp;
    const std::uint32_t tiles = (elements_.elements - 1) / kTile + 1;
    for (std::uint32_t tile = blockIdx.x * kWarps + threadIdx.x / kWarp; tile < tiles;
         tile += gridDim.x * kWarps) {
      const std::uint32_t begin = tile * kTile, left = elements_.elements - begin;
      const std::uint32_t end = begin + (left < kTile ? left : kTile);
      if (!regular(begin, end)) careful(begin, end);
    }
  }

  SAFEOPS_INLINE Real number(int k) const {
    return static_cast<typename Real::Scalar>(elements_.number[k]);
  }
  SAFEOPS_INLINE const E* at(int k, std::int64_t offset) const {
    return reinterpret_cast<const E*>(elements_.input[k] + offset);
  }

  // The neighbours of an input. What is not loaded stays as it is, and what is loaded is converted
  // later: an instruction that touches it would wait for the load, and the next load for that.
  struct Neighbours {
    Vector vector;  // where is_run
    E one;          // elsewhere, unless the input is a number
  };

  SAFEOPS_INLINE bool vector_tile(std::uint32_t begin) const {
    const ElementOffsets<kVectors, kInputs, kOutputs> offsets(elements_, begin + lane() * kVector,
                                                              kWarp * kVector);
    Neighbours loaded[kVectors][kInputs];
    SAFEOPS_UNROLL for (int v = 0; v < kVectors; ++v) {
      SAFEOPS_UNROLL for (int k = 0; k < kInputs; ++k) {
        load(k, offsets.input[v][k], loaded[v][k]);
      }
    }
    bool suspect = false;
    SAFEOPS_UNROLL for (int v = 0; v < kVectors; ++v) {
      SAFEOPS_UNROLL for (int i = 0; i < kVector; ++i) {
        Real in[kInputs];
        neighbour(loaded[v], i, in);
        suspect = suspect || cell_.suspect(in);
      }
    }
    if (__any_sync(kWholeWarp, suspect)) return false;
    SAFEOPS_UNROLL for (int v = 0; v < kVectors; ++v) compute(loaded[v], offsets.output[v]);
    return true;
  }

  SAFEOPS_INLINE bool is_run(int k) const {
    return elements_.input[k] != nullptr && elements_.input_stride[k][0] != 0;
  }
  SAFEOPS_INLINE void load(int k, std::int64_t offset, Neighbours& neighbours) const {
    if (is_run(k)) {
      neighbours.vector = std::bit_cast<Vector>(*reinterpret_cast<const uint4*>(at(k, offset)));
    } else if (elements_.input[k] != nullptr) {
      neighbours.one = *at(k, offset);
    }
  }
  SAFEOPS_INLINE void neighbour(const Neighbours (&from)[kInputs], int i,
                                Real (&in)[kInputs]) const {
    SAFEOPS_UNROLL for (int k = 0; k < kInputs; ++k) {
      const bool is_number = elements_.input[k] == nullptr;
      const Real one = is_number ? number(k) : as_real(from[k].one);
      in[k] = is_run(k) ? as_real(from[k].vector.element[i]) : one;
    }
  }

  SAFEOPS_INLINE void compute(const Neighbours (&input)[kInputs],
                              const std::int64_t (&offset)[kOutputs]) const {
    Vector result[kOutputs];
    SAFEOPS_UNROLL for (int i = 0; i < kVector; ++i) {
      Real in[kInputs], out[kOutputs];
      neighbour(input, i, in);
      cell_.plain(in, out);
      SAFEOPS_UNROLL for (int k = 0; k < kOutputs; ++k) {
        result[k].element[i] = as_element<E>(out[k]);
      }
    }
    SAFEOPS_UNROLL for (int k = 0; k < kOutputs; ++k) {
      char* const to = elements_.output[k];
      if (to != nullptr)
        *reinterpret_cast<uint4*>(to + offset[k]) = std::bit_cast<uint4>(result[k]);
    }
  }

  SAFEOPS_INLINE bool single_tile(std::uint32_t begin, std::uint32_t end) const {
    const std::uint32_t position = begin + lane();
    const ElementOffsets<kSingles, kInputs, kOutputs> offsets(elements_, position, kWarp);
    const auto present = [&](int i) SAFEOPS_LANES {
      return position + static_cast<unsigned>(i) * kWarp < end;
    };
    E loaded[kSingles][kInputs];
    SAFEOPS_UNROLL for (int i = 0; i < kSingles; ++i) {
      gather(present(i), offsets.input[i], loaded[i]);
    }
    Real in[kSingles][kInputs];
    bool suspect = false;
    SAFEOPS_UNROLL for (int i = 0; i < kSingles; ++i) {
      input(present(i), loaded[i], in[i]);
      suspect = suspect || cell_.suspect(in[i]);
    }
    if (__any_sync(kWholeWarp, suspect)) return false;
    SAFEOPS_UNROLL for (int i = 0; i < kSingles; ++i) {
      Real out[kOutputs];
      cell_.plain(in[i], out);
      if (present(i)) scatter(out, offsets.output[i]);
    }
    return true;
  }

  SAFEOPS_INLINE void gather(bool present, const std::int64_t (&offset)[kInputs],
                             E (&loaded)[kInputs]) const {
    SAFEOPS_UNROLL for (int k = 0; k < kInputs; ++k) {
      if (present && elements_.input[k] != nullptr) loaded[k] = *at(k, offset[k]);
    }
  }
  // Past the last element stands infinity, which no operator finds singular at any threshold.
  SAFEOPS_INLINE void input(bool present, const E (&loaded)[kInputs], Real (&in)[kInputs]) const {
    const Real beyond(std::numeric_limits<typename Real::Scalar>::infinity());
    SAFEOPS_UNROLL for (int k = 0; k < kInputs; ++k) {
      const Real x = elements_.input[k] == nullptr ? number(k) : as_real(loaded[k]);
      in[k] = present ? x : beyond;
    }
  }
  SAFEOPS_INLINE void scatter(const Real (&out)[kOutputs],
                              const std::int64_t (&offset)[kOutputs]) const {
    SAFEOPS_UNROLL for (int k = 0; k < kOutputs; ++k) {
      char* const to = elements_.output[k];
      if (to != nullptr) *reinterpret_cast<E*>(to + offset[k]) = as_element<E>(out[k]);
    }
  }

  // What a warp met: counts of all lanes, but the lowest number of each.
  struct Tally {
    unsigned count[kCounters] = {};
    std::uint64_t lowest[kCounters];
  };

  SAFEOPS_INLINE void careful(std::uint32_t begin, std::uint32_t end) const {
    Tally tally;
    SAFEOPS_UNROLL for (int c = 0; c < kCounters; ++c) tally.lowest[c] = kNoRow;
    SAFEOPS_ROLL for (; begin < end; begin += kWarp) {
      const std::uint32_t position = begin + lane();
      const bool present = position < end;
      const ElementOffsets<1, kInputs, kOutputs> offsets(elements_, position, 0);
      E loaded[kInputs] = {};
      Real in[kInputs], out[kOutputs];
      gather(present, offsets.input[0], loaded);
      input(present, loaded, in);
      cell_.plain(in, out);
      if (__any_sync(kWholeWarp, cell_.suspect(in))) guarded(in, out, position, tally);
      if (present) scatter(out, offsets.output[0]);
    }
    tell(tally);
  }

  SAFEOPS_INLINE void guarded(const Real (&in)[kInputs], Real (&out)[kOutputs],
                              std::uint32_t position, Tally& tally) const {
    bool met[kCounters];
    cell_.guarded(in, out, met);
    bool counts = false;
    SAFEOPS_UNROLL for (int c = 0; c < kCounters; ++c) {
      met[c] = met[c] && !is_latent(c);
      tally.count[c] += static_cast<unsigned>(__popc(__ballot_sync(kWholeWarp, met[c])));
      counts = counts || met[c];
    }
    if (!counts) return;
    const std::uint64_t number = elements_.number_of(position);
    SAFEOPS_UNROLL for (int c = 0; c < kCounters; ++c) {
      if (met[c] && number < tally.lowest[c]) tally.lowest[c] = number;
    }
  }

  // Nothing attributes a hit of a later backward to this call.
  SAFEOPS_INLINE bool is_latent(int c) const {
    return &cell_.counter(*sink_.hits, static_cast<size_t>(c)) == &sink_.hits->latent;
  }

  // In forward every hit raises; in backward a cell says which.
  SAFEOPS_INLINE void tell(const Tally& tally) const {
    unsigned raising = 0;
    std::uint64_t lowest = kNoRow;
    SAFEOPS_UNROLL for (int c = 0; c < kCounters; ++c) {
      if (tally.count[c] == 0) continue;
      const std::uint64_t first = lowest_of_warp(tally.lowest[c]);
      Hit& hit = cell_.counter(*sink_.hits, static_cast<size_t>(c));
      const bool raises = &hit == &sink_.hits->raising;
      if (!raises && lane() == 0) add(hit, tally.count[c], first);
      if (kDirection == Direction::backward && !raises) continue;
      raising += tally.count[c];
      lowest = first < lowest ? first : lowest;
    }
    if (lane() == 0) report_raising(sink_, raising, lowest);
  }
  static SAFEOPS_INLINE std::uint64_t lowest_of_warp(std::uint64_t number) {
    unsigned long long lowest = number;
    SAFEOPS_UNROLL for (unsigned step = kWarp / 2; step != 0; step /= 2) {
      const unsigned long long other = __shfl_xor_sync(kWholeWarp, lowest, static_cast<int>(step));
      lowest = other < lowest ? other : lowest;
    }
    return lowest;
  }

  const DeviceElements& elements_;
  const HitSink& sink_;
  const Cell cell_;
};

template <class Cell, class E, Direction kDirection>
__global__ void __launch_bounds__(kBlock, 1)
    vector_elements(const __grid_constant__ DeviceElements elements,
                    const __grid_constant__ HitSink sink) {
  ElementWarp<Cell, E, kDirection>(elements, sink).run_vectors();
}

template <class Cell, class E, Direction kDirection>
__global__ void __launch_bounds__(kBlock, 1)
    single_elements(const __grid_constant__ DeviceElements elements,
                    const __grid_constant__ HitSink sink) {
  ElementWarp<Cell, E, kDirection>(elements, sink).run_singles();
}

// Whether every vector of an operand lies in one piece that can be loaded at once.
template <class E>
bool lies_in_vectors(const ElementOperand& operand, std::size_t dims) {
  constexpr std::int64_t kBytes = 16;
  bool lies = operand.stride[0] == sizeof(E) &&
              reinterpret_cast<std::uintptr_t>(operand.data) % kBytes == 0;
  for (std::size_t d = 1; d < dims; ++d) lies = lies && operand.stride[d] % kBytes == 0;
  return lies;
}

// Whether the elements can be walked in vectors of neighbours along the first dim, which are one
// repeated element in some inputs.
template <class E>
bool lie_in_vectors(const ElementArguments& arguments) {
  const std::size_t dims = arguments.size.size();
  constexpr std::int64_t kVector = 16 / sizeof(E);
  if (dims == 0 || (dims > 1 && arguments.size[0] % kVector != 0)) return false;
  bool lie = true;
  for (const ElementOperand& output : arguments.output)
    lie = lie && (output.data == nullptr || lies_in_vectors<E>(output, dims));
  for (const ElementOperand& input : arguments.input) {
    lie = lie && (input.data == nullptr || input.stride[0] == 0 || lies_in_vectors<E>(input, dims));
  }
  return lie;
}

template <class Cell, class E, Direction kDirection>
CudaStatus launch_part(const ElementArguments& arguments, const PartStart& start,
                       const CudaLaunch& launch) {
  using Warp = ElementWarp<Cell, E, kDirection>;
  const bool in_vectors = lie_in_vectors<E>(arguments);
  const DeviceElements elements(arguments, start);
  const unsigned tile = kBlock / kWarp * (in_vectors ? Warp::kVectorTile : Warp::kSingleTile);
  const unsigned blocks = (elements.elements - 1) / tile + 1;
  const auto most = static_cast<unsigned>(launch.multiprocessors * kBlocksEach);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks < most ? blocks : most);
  config.blockDim = dim3(kBlock);
  config.stream = static_cast<cudaStream_t>(launch.stream);
  const auto kernel =
      in_vectors ? vector_elements<Cell, E, kDirection> : single_elements<Cell, E, kDirection>;
  return cudaLaunchKernelEx(&config, kernel, elements, HitSink(launch));
}

template <class Cell, class E, Direction kDirection>
CudaStatus launch_elements(const ElementArguments& arguments, const CudaLaunch& launch) {
  return in_parts(arguments, {}, kMostPositions,
                  [&](const ElementArguments& part, const PartStart& start) {
                    return launch_part<Cell, E, kDirection>(part, start, launch);
                  });
}

// Runs Cell<Real, E> for the element type of the call.
template <template <class, class> class Cell, Direction kDirection>
CudaStatus run_elements(const ElementArguments& arguments, const CudaLaunch& launch) {
  if (arguments.elements() == 0) return cudaSuccess;
  if (!fits_cuda(arguments)) return cudaErrorInvalidValue;
  return with_element(arguments.element, [&](auto e) {
    using E = decltype(e);
    return launch_elements<Cell<RealOf<E>, E>, E, kDirection>(arguments, launch);
  });
}

SAFEOPS_END_LANES
