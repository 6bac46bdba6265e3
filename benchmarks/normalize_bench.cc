// The row kernels of normalize without torch: time per element by SIMD target, element type, layout
// and row length. "plain" is the scalar program.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "operators/normalize/normalize.h"
#include "row_case.h"

namespace safeops {
namespace {

template <class E>
struct Buffers {
  explicit Buffers(const Case& c)
      : shift(c.arrangement == Arrangement::unaligned ? 1 : 0),
        x(waves<E>(c.elements + shift, 0.7)),
        g(waves<E>(c.elements + shift, 1.3)),
        y(c.elements + shift),
        norm(c.elements / c.length) {
    arguments.layout = layout_of(c);
    arguments.element = c.element;
    arguments.output = y.data() + shift;
    arguments.policy = resolve(Policy::stock, 1e-12, false);
  }

  RowArguments& forward() {
    arguments.input[0] = x.data() + shift;
    arguments.save = norm.data();
    return arguments;
  }
  RowArguments& backward() {
    arguments.input[0] = g.data() + shift;
    arguments.input[1] = x.data() + shift;
    arguments.save = nullptr;
    arguments.saved = norm.data();
    return arguments;
  }

  std::size_t shift;
  std::vector<E> x, g, y;
  std::vector<double> norm;
  RowArguments arguments;
};

void run_forward(const Case& c, const RowArguments& arguments, Hits& hits) {
  if (c.target == kPlain) return normalize_forward_plain(arguments, NormOrder::two, hits);
  SerialExecutor serial;
  normalize_forward(arguments, NormOrder::two, serial, hits);
}

void run_backward(const Case& c, const RowArguments& arguments, Hits& hits) {
  if (c.target == kPlain) return normalize_backward_plain(arguments, NormOrder::two, hits);
  SerialExecutor serial;
  normalize_backward(arguments, NormOrder::two, serial, hits);
}

template <class E>
void forward(benchmark::State& state, Case c) {
  use_target(c.target);
  Buffers<E> buffers(c);
  time_kernel(state, c, buffers.forward(), 2 * sizeof(E),
              [&c](const RowArguments& arguments, Hits& hits) { run_forward(c, arguments, hits); });
  use_target(0);
}

template <class E>
void backward(benchmark::State& state, Case c) {
  use_target(c.target);
  Buffers<E> buffers(c);
  Hits hits;
  run_forward(c, buffers.forward(), hits);
  time_kernel(
      state, c, buffers.backward(), 3 * sizeof(E),
      [&c](const RowArguments& arguments, Hits& each) { run_backward(c, arguments, each); });
  use_target(0);
}

// What the memory allows: one read and one write an element.
void copy(benchmark::State& state) {
  const auto elements = static_cast<std::size_t>(state.range(0));
  const std::vector<float> from = waves<float>(elements, 0.7);
  std::vector<float> to(elements);
  for (auto _ : state) {
    std::copy(from.begin(), from.end(), to.begin());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(2 * elements * sizeof(float)));
}
BENCHMARK(copy)->Arg(kInCache)->Arg(kInMemory);

template <class E>
void add(Case c, const char* element) {
  c.element = ElementTraits<E>::kElement;
  benchmark::RegisterBenchmark(name(c, "forward", element).c_str(), forward<E>, c)
      ->MinTime(kSeconds);
  benchmark::RegisterBenchmark(name(c, "backward", element).c_str(), backward<E>, c)
      ->MinTime(kSeconds);
}

bool add_all() {
  std::vector<std::int64_t> targets = supported_targets();
  const std::int64_t best = targets.front();
  targets.push_back(kPlain);
  for (const std::int64_t target : targets) {
    for (const std::size_t length : {3, 8, 64, 1024})
      add<float>({.target = target, .length = length}, "float32");
  }
  for (const std::size_t length : {2, 4, 16, 17, 256, 257, 1023, 4096, 16384}) {
    add<float>({.target = best, .length = length}, "float32");
  }
  for (const std::size_t length : {3, 64, 1024}) {
    add<float16>({.target = best, .length = length}, "float16");
    add<bfloat16>({.target = best, .length = length}, "bfloat16");
    add<double>({.target = best, .length = length}, "float64");
  }
  for (const std::size_t length : {3, 64, 1024}) {
    for (const auto arrangement : {Arrangement::unaligned, Arrangement::side_by_side}) {
      add<float>({.target = best, .arrangement = arrangement, .length = length}, "float32");
    }
  }
  for (const std::size_t length : {3, 64, 1024, 4096}) {
    add<float>({.target = best, .length = length, .elements = kInMemory}, "float32");
  }
  return true;
}

[[maybe_unused]] const bool all_added = add_all();

}  // namespace
}  // namespace safeops
