// Which Row walks which rows on the device, and how it is launched.
#pragma once

#include "core/row_column_cuda.h"
#include "core/row_long_column_cuda.h"
#include "core/row_register_cuda.h"
#include "core/row_slice_cuda.h"

SAFEOPS_BEGIN_LANES

/// How many Row types a program is compiled for: one off the hot path does without those that only
/// buy speed.
enum class Coverage : unsigned char { full, lean };

/// A cap that leaves every multiprocessor enough blocks to share rows out evenly; kernels walk with
/// the stride of the grid.
inline unsigned blocks_for(std::size_t wanted, const CudaLaunch& launch) {
  const std::size_t cap = static_cast<std::size_t>(launch.multiprocessors) * 64;
  return static_cast<unsigned>(wanted < cap ? wanted : cap);
}
inline constexpr std::size_t parts_of(std::size_t whole, std::size_t part) {
  return (whole + part - 1) / part;
}

/// Shared memory that a block gets without asking.
inline constexpr std::size_t kGrantedUnasked = 48 << 10;

template <class... Parameters, class... Arguments>
CudaStatus launch_rows(void (*kernel)(Parameters...), const CudaLaunch& launch, std::size_t blocks,
                       int threads, std::size_t shared_memory, const Arguments&... arguments) {
  if (shared_memory > kGrantedUnasked) {
    // The same for every call: threads that launch one kernel must not take it from each other.
    const cudaError_t refused =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(launch.shared_memory));
    if (refused != cudaSuccess) return refused;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks_for(blocks, launch));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_memory;
  config.stream = static_cast<cudaStream_t>(launch.stream);
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class Program, class Operands, int kLanes, int kItems>
CudaStatus run_registers(const RowCall& call, const CudaLaunch& launch) {
  constexpr std::size_t kRows = kRegisterThreads / kLanes;
  return launch_rows(walk_registers<Program, Operands, kLanes, kItems>, launch,
                     parts_of(call.arguments.layout.rows, kRows), kRegisterThreads, 0, call);
}

/// The width of a tile: above a warp only while several fit a multiprocessor and none is left
/// without one; 0 if a warp of columns does not fit. Bits do not depend on it.
inline unsigned tile_width(std::size_t rows, std::size_t column_bytes, const CudaLaunch& launch) {
  constexpr std::size_t kRoomy = 16 << 10;
  const std::size_t room =
      launch.shared_memory < kGrantedUnasked ? launch.shared_memory : kGrantedUnasked;
  const auto blocks = static_cast<std::size_t>(launch.multiprocessors);
  unsigned width = kColumnThreads;
  while (width > kWarp && (width * column_bytes > kRoomy || parts_of(rows, width) < blocks))
    width /= 2;
  return width * column_bytes <= room ? width : 0;
}

template <class Program, class Operands>
CudaStatus run_columns(const RowCall& call, const CudaLaunch& launch) {
  const RowLayout& layout = call.arguments.layout;
  const std::size_t column_bytes =
      Operands::kInputs * layout.length * sizeof(typename Operands::Real);
  const unsigned width = tile_width(layout.rows, column_bytes, launch);
  if (width == 0) {
    return launch_rows(walk_long_columns<Program, Operands>, launch, parts_of(layout.rows, kWarp),
                       kLongColumnThreads, kLongColumnMemory, call);
  }
  return launch_rows(walk_column_tiles<Program, Operands>, launch, parts_of(layout.rows, width),
                     kColumnThreads, width * column_bytes, call, width);
}

template <class Program, class Operands>
CudaStatus run_slices(const RowCall& call, const CudaLaunch& launch) {
  const RowLayout& layout = call.arguments.layout;
  const std::size_t slices = parts_of(layout.length, kSliceLength);
  const std::size_t states = layout.rows * sizeof(SplitState);
  void* const memory =
      launch.allocate(launch.allocator, states + layout.rows * slices * kMaxShare * sizeof(double));
  if (memory == nullptr) return cudaErrorMemoryAllocation;
  const SplitScratch scratch = {static_cast<SplitState*>(memory),
                                reinterpret_cast<double*>(static_cast<char*>(memory) + states),
                                slices};
  CudaStatus status =
      launch_rows(clear_rows<SplitState>, launch, parts_of(layout.rows, kBlockThreads),
                  kBlockThreads, 0, scratch.rows, layout.rows);
  constexpr int kReductions = Program::template kReductions<typename Operands::Stored>;
  static_assert(kReductions * kMaxShare <= SplitPass::kMaxNumbers);
  for (int pass = 0; pass <= kReductions && status == cudaSuccess; ++pass) {
    status = launch_rows(walk_slices<Program, Operands>, launch, layout.rows * slices,
                         threads_of_block(layout.length), kSliceMemory, call, scratch, pass);
  }
  return status;
}

template <class Program, class Operands>
CudaStatus run_long_rows(const RowCall& call, const CudaLaunch& launch) {
  const RowLayout& layout = call.arguments.layout;
  const std::size_t bytes = kBlockExchange + Operands::kInputs * pitch_of_tile(layout.length) *
                                                 sizeof(typename Operands::Real);
  if (layout.length > kLongestBlockRow || bytes > launch.shared_memory)
    return run_slices<Program, Operands>(call, launch);
  return launch_rows(walk_blocks<Program, Operands>, launch, layout.rows,
                     threads_of_block(layout.length), bytes, call);
}

/// Which of two orders of summation a row has, and so its bits, depends on layout and length alone.
/// `Program::kReductions<Stored>` bounds how many reductions one run of it makes.
template <class Program, class Operands, Coverage kCoverage>
CudaStatus run_rows(const RowArguments& arguments, const CudaLaunch& launch) {
  const RowCall call = {arguments, HitSink(launch)};
  const RowLayout& layout = arguments.layout;
  if (layout.rows == 0 || layout.length == 0) return cudaSuccess;
  if (layout.kind == RowLayout::Kind::side_by_side || layout.length <= kTinyLength)
    return run_columns<Program, Operands>(call, launch);
  if constexpr (kCoverage == Coverage::full) {
    if (layout.length <= 32) return run_registers<Program, Operands, 8, 4>(call, launch);
    if (layout.length <= 256) return run_registers<Program, Operands, 32, 8>(call, launch);
  }
  return run_long_rows<Program, Operands>(call, launch);
}

SAFEOPS_END_LANES
