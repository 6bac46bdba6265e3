// The element kernels of the division family without torch: time per element by kind, SIMD target,
// element type, size, layout and share of singular elements. "stores_past" writes past the cache;
// "numbered" finds the numbers of hits from their place in memory, as for a transposed output.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/simd_target.h"
#include "operators/division/division.h"
#include "row_case.h"

namespace safeops {
namespace {

constexpr std::size_t kInFirstLevel = std::size_t{1} << 12;

enum class Operation { div, reciprocal, truncated, floored, rsqrt, sqrt, log };

struct DivisionCase {
  Operation operation = Operation::div;
  std::int64_t target = 0;
  std::size_t elements = kInCache;
  int percent = 0;      // of the divisors or arguments are zero
  std::size_t row = 1;  // elements that share a divisor
  bool stores_past = false;
  bool numbered = false;
};

const char* name(Operation operation) {
  constexpr const char* kNames[] = {"div",   "reciprocal", "truncated", "floored",
                                    "rsqrt", "sqrt",       "log"};
  return kNames[static_cast<int>(operation)];
}

DivisionKind kind_of(Operation operation) {
  switch (operation) {
    case Operation::truncated:
      return DivisionKind::truncated;
    case Operation::floored:
      return DivisionKind::floored;
    case Operation::rsqrt:
      return DivisionKind::rsqrt;
    case Operation::sqrt:
      return DivisionKind::sqrt;
    case Operation::log:
      return DivisionKind::log;
    default:
      return DivisionKind::quotient;
  }
}

bool is_quotient(Operation operation) { return operation <= Operation::floored; }

// Zeros lie at random: a period would be learned by the branch predictor.
template <class E>
std::vector<E> divisors(std::size_t size, int percent) {
  std::minstd_rand generator(1);
  std::vector<E> values(size);
  for (E& value : values) {
    const bool zero = static_cast<int>(generator() % 100) < percent;
    const double number = zero ? 0.0 : 0.5 + static_cast<double>(generator() % 1024) / 1024;
    from_real(static_cast<typename ElementTraits<E>::Real>(number), value);
  }
  return values;
}

template <class E>
struct Buffers {
  explicit Buffers(const DivisionCase& which)
      : rows(which.row == 1 ? 1 : which.elements / which.row),
        columns(which.elements / rows),
        last(divisors<E>(which.elements / which.row, which.percent)),
        numerator(waves<E>(which.elements, 0.7)),
        gradient(waves<E>(which.elements, 1.3)),
        out{std::vector<E>(which.elements), std::vector<E>(which.elements)},
        size{static_cast<std::int64_t>(columns), static_cast<std::int64_t>(rows)},
        dense{kBytes, kBytes * size[0]},
        per_row{which.row == 1 ? kBytes : 0, kBytes},
        order{{{dense[1], size[0]}, {dense[0], 1}}} {
    arguments.size = size;
    arguments.element = ElementTraits<E>::kElement;
    arguments.streams = which.stores_past;
    if (which.numbered) arguments.numbering.steps = order;
  }

  const ElementArguments& forward(const DivisionCase& which) {
    arguments.policy = resolve_element(Policy::zero, kind_of(which.operation), 0, false);
    arguments.output[0] = arguments.numbered = {out[0].data(), dense.data()};
    if (is_quotient(which.operation)) {
      set_numerator(0, which);
      arguments.input[1] = divisor();
    } else {
      arguments.input[0] = divisor();
    }
    return arguments;
  }
  const ElementArguments& backward(const DivisionCase& which) {
    const bool wants_first = which.operation != Operation::reciprocal;
    arguments.policy = resolve_element(Policy::zero, kind_of(which.operation), 0, true);
    arguments.input[0] = {gradient.data(), dense.data()};
    arguments.input[1] = divisor();
    if (wants_first) arguments.output[0] = {out[0].data(), dense.data()};
    if (is_quotient(which.operation)) {
      arguments.output[1] = {out[1].data(), dense.data()};
      set_numerator(2, which);
    }
    arguments.numbered = arguments.output[wants_first ? 0 : 1];
    return arguments;
  }

  ElementOperand divisor() { return {last.data(), per_row.data()}; }
  // A reciprocal has none: the number 1 stands for it.
  void set_numerator(std::size_t input, const DivisionCase& which) {
    if (which.operation != Operation::reciprocal)
      arguments.input[input] = {numerator.data(), dense.data()};
  }

  static constexpr std::int64_t kBytes = sizeof(E);
  std::size_t rows, columns;
  std::vector<E> last, numerator, gradient, out[2];
  std::array<std::int64_t, 2> size, dense, per_row;
  std::array<ElementNumbering::Step, 2> order;
  ElementArguments arguments;
};

template <class E>
void run(benchmark::State& state, DivisionCase which, bool backward) {
  use_target(which.target);
  Buffers<E> buffers(which);
  const ElementArguments& arguments = backward ? buffers.backward(which) : buffers.forward(which);
  const DivisionKind kind = kind_of(which.operation);
  SerialExecutor serial;
  Hits hits;
  for (auto _ : state) {
    if (backward) {
      division_backward(arguments, kind, serial, hits);
    } else {
      division_forward(arguments, kind, serial, hits);
    }
    benchmark::ClobberMemory();
  }
  if (hits.any() != (which.percent != 0)) state.SkipWithError("the share of hits is not as said");
  state.counters["per_element"] = benchmark::Counter(
      static_cast<double>(which.elements),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  use_target(0);
}

template <class E>
void add(const DivisionCase& which, const char* element) {
  for (const bool backward : {false, true}) {
    std::string title =
        std::string(name(which.operation)) + (backward ? "_backward/" : "_forward/");
    title += std::string(target_name(which.target)) + "/" + element + "/" +
             std::to_string(which.elements / which.row) + "x" + std::to_string(which.row) + "/" +
             std::to_string(which.percent) + "%";
    if (which.stores_past) title += "/stores_past";
    if (which.numbered) title += "/numbered";
    benchmark::RegisterBenchmark(title.c_str(), run<E>, which, backward)->MinTime(kSeconds);
  }
}

void add_kinds(std::int64_t best) {
  for (const Operation operation :
       {Operation::div, Operation::reciprocal, Operation::rsqrt, Operation::sqrt, Operation::log}) {
    for (const std::size_t elements : {kInFirstLevel, kInCache, kInMemory}) {
      for (const int percent : {0, 1, 50, 100}) {
        add<float>(
            {.operation = operation, .target = best, .elements = elements, .percent = percent},
            "float32");
      }
    }
    add<float>({.operation = operation, .target = best, .elements = kInMemory, .stores_past = true},
               "float32");
    add<float16>({.operation = operation, .target = best}, "float16");
    add<bfloat16>({.operation = operation, .target = best}, "bfloat16");
    add<double>({.operation = operation, .target = best}, "float64");
  }
  for (const Operation operation : {Operation::truncated, Operation::floored}) {
    add<float>({.operation = operation, .target = best}, "float32");
    add<double>({.operation = operation, .target = best}, "float64");
  }
}

void add_layouts(std::int64_t best) {
  for (const std::size_t row : {3, 64}) {
    for (const int percent : {0, 1})
      add<float>({.target = best, .elements = 3 * kInCache, .percent = percent, .row = row},
                 "float32");
  }
  for (const int percent : {1, 50, 100})
    add<float>({.target = best, .percent = percent, .numbered = true}, "float32");
}

[[maybe_unused]] const bool all_added = [] {
  const std::vector<std::int64_t> targets = supported_targets();
  const std::int64_t best = targets.front();
  for (const std::int64_t target : targets) {
    if (target == best) continue;
    for (const Operation operation : {Operation::div, Operation::rsqrt, Operation::log})
      add<float>({.operation = operation, .target = target}, "float32");
  }
  add_kinds(best);
  add_layouts(best);
  return true;
}();

}  // namespace
}  // namespace safeops
