#pragma once

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/element.h"
#include "core/row_layout.h"
#include "core/simd_target.h"

// What the benchmarks of row kernels share: how rows lie, what they hold, what is reported.
namespace safeops {

inline constexpr std::size_t kInCache = std::size_t{1} << 16;   // elements: 256 KiB of float32
inline constexpr std::size_t kInMemory = std::size_t{1} << 22;  // 16 MiB of float32
inline constexpr double kSeconds = 0.2;
inline constexpr std::int64_t kPlain = 0;  // no target of Highway has this value

enum class Arrangement { contiguous, unaligned, side_by_side };

inline const char* name(Arrangement arrangement) {
  switch (arrangement) {
    case Arrangement::contiguous:
      return "contiguous";
    case Arrangement::unaligned:
      return "unaligned";
    case Arrangement::side_by_side:
      break;
  }
  return "side_by_side";
}

struct Case {
  std::int64_t target;
  Element element = Element::float32;
  Arrangement arrangement = Arrangement::contiguous;
  std::size_t length = 1024;
  std::size_t elements = kInCache;
};

inline std::string name(const Case& c, const char* pass, const char* element) {
  const char* target = c.target == kPlain ? "plain" : target_name(c.target);
  return std::string(pass) + "/" + target + "/" + element + "/" + name(c.arrangement) + "/" +
         std::to_string(c.elements / c.length) + "x" + std::to_string(c.length);
}

// A value per position that is neither zero nor monotonous along a row.
template <class E>
std::vector<E> waves(std::size_t size, double frequency) {
  std::vector<E> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double value = std::sin(frequency * static_cast<double>(i % 65521)) + 0.01;
    from_real(static_cast<typename ElementTraits<E>::Real>(value), values[i]);
  }
  return values;
}

inline RowLayout layout_of(const Case& c) {
  RowLayout layout;
  layout.rows = c.elements / c.length;
  layout.length = c.length;
  layout.kept_dims = 1;
  layout.kept_size[0] = layout.rows;
  const bool side_by_side = c.arrangement == Arrangement::side_by_side;
  if (side_by_side) layout.kind = RowLayout::Kind::side_by_side;
  for (RowLayout::Strides& strides : layout.operand) {
    strides.step = static_cast<std::ptrdiff_t>(side_by_side ? layout.rows : 1);
    strides.kept[0] = static_cast<std::ptrdiff_t>(side_by_side ? 1 : c.length);
  }
  return layout;
}

using Kernel = std::function<void(const RowArguments&, Hits&)>;

inline void time_kernel(benchmark::State& state, const Case& c, const RowArguments& arguments,
                        std::size_t bytes_per_element, const Kernel& kernel) {
  Hits hits;
  for (auto _ : state) {
    kernel(arguments, hits);
    benchmark::ClobberMemory();
  }
  if (hits.any()) state.SkipWithError("the rows of this benchmark must be regular");
  const auto elements = static_cast<std::int64_t>(c.elements);
  state.SetBytesProcessed(state.iterations() * elements *
                          static_cast<std::int64_t>(bytes_per_element));
  state.counters["per_element"] = benchmark::Counter(
      static_cast<double>(elements),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

}  // namespace safeops
