// The row kernels of softmax, log_softmax and logsumexp without torch: time per element by SIMD
// target, element type, layout, mask and row length. "plain" is the scalar program, "xsimd" the
// second implementation.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operators/softmax/softmax.h"
#include "row_case.h"
#include "softmax_peer.h"

namespace safeops {
namespace {

struct SoftmaxCase {
  Case rows;
  SoftmaxKind kind = SoftmaxKind::softmax;
  bool masked = false;
};

const char* name(SoftmaxKind kind) {
  switch (kind) {
    case SoftmaxKind::softmax:
      return "softmax";
    case SoftmaxKind::log_softmax:
      return "log_softmax";
    case SoftmaxKind::logsumexp:
      break;
  }
  return "logsumexp";
}

template <class E>
struct Buffers {
  explicit Buffers(const SoftmaxCase& which)
      : kind(which.kind),
        shift(which.rows.arrangement == Arrangement::unaligned ? 1 : 0),
        x(waves<E>(which.rows.elements + shift, 0.7)),
        g(waves<E>(which.rows.elements + shift, 1.3)),
        y(which.rows.elements + shift),
        grad(which.rows.elements + shift),
        peak(which.rows.elements / which.rows.length),
        row_gradient(peak.size(), 0.5),
        mask(std::make_unique<bool[]>(which.rows.elements)) {
    // One element in five takes no part.
    for (std::size_t i = 0; i < which.rows.elements; ++i) mask[i] = i % 5 != 3;
    arguments.layout = layout_of(which.rows);
    arguments.element =
        which.rows.element == Element::float64 ? Element::float64 : Element::float32;
    arguments.storage.input[0] = arguments.storage.input[1] = which.rows.element;
    arguments.storage.output = which.rows.element;
    if (which.masked) arguments.storage.mask = mask.get();
  }

  RowArguments& forward() {
    set_masked_values(arguments.storage, kind, false);
    arguments.policy = resolve_empty_row(Policy::stock, kind, 0, false);
    arguments.input[0] = x.data() + shift;
    arguments.output = kind == SoftmaxKind::logsumexp ? nullptr : y.data() + shift;
    arguments.save = peak.data();
    return arguments;
  }
  RowArguments& backward() {
    const bool per_row = kind == SoftmaxKind::logsumexp;
    set_masked_values(arguments.storage, kind, true);
    arguments.policy = resolve_empty_row(Policy::stock, kind, 0, true);
    arguments.input[0] = (per_row ? x : g).data() + shift;
    arguments.input[1] = per_row ? nullptr : y.data() + shift;
    arguments.output = grad.data() + shift;
    arguments.save = nullptr;
    arguments.saved = peak.data();
    arguments.row_gradient = row_gradient.data();
    return arguments;
  }

  SoftmaxKind kind;
  std::size_t shift;
  std::vector<E> x, g, y, grad;
  std::vector<double> peak, row_gradient;
  std::unique_ptr<bool[]> mask;
  RowArguments arguments;
};

void run_forward(const SoftmaxCase& which, const RowArguments& arguments, Hits& hits) {
  if (which.rows.target == kPlain) return softmax_forward_plain(arguments, which.kind, hits);
  SerialExecutor serial;
  softmax_forward(arguments, which.kind, serial, hits);
}

void run_backward(const SoftmaxCase& which, const RowArguments& arguments, Hits& hits) {
  if (which.rows.target == kPlain) return softmax_backward_plain(arguments, which.kind, hits);
  SerialExecutor serial;
  softmax_backward(arguments, which.kind, serial, hits);
}

template <class E>
void forward(benchmark::State& state, SoftmaxCase which) {
  use_target(which.rows.target);
  Buffers<E> buffers(which);
  time_kernel(
      state, which.rows, buffers.forward(), 2 * sizeof(E),
      [&](const RowArguments& arguments, Hits& hits) { run_forward(which, arguments, hits); });
  use_target(0);
}

template <class E>
void backward(benchmark::State& state, SoftmaxCase which) {
  use_target(which.rows.target);
  Buffers<E> buffers(which);
  Hits hits;
  run_forward(which, buffers.forward(), hits);
  time_kernel(
      state, which.rows, buffers.backward(), 3 * sizeof(E),
      [&](const RowArguments& arguments, Hits& each) { run_backward(which, arguments, each); });
  use_target(0);
}

template <class E>
void add(SoftmaxCase which, const char* element) {
  which.rows.element = ElementTraits<E>::kElement;
  const std::string prefix = name(which.kind);
  const std::string suffix = which.masked ? "/masked" : "";
  const auto title = [&](const char* pass) {
    return safeops::name(which.rows, (prefix + "_" + pass).c_str(), element) + suffix;
  };
  benchmark::RegisterBenchmark(title("forward").c_str(), forward<E>, which)->MinTime(kSeconds);
  benchmark::RegisterBenchmark(title("backward").c_str(), backward<E>, which)->MinTime(kSeconds);
}

#if defined(__x86_64__)
template <class Run>
void add_peer_run(const std::string& pass, const SoftmaxPeer& peer, std::size_t elements,
                  std::size_t length, const Run& run) {
  const std::string title = pass + "/" + peer.name + "/float32/contiguous/" +
                            std::to_string(elements / length) + "x" + std::to_string(length);
  benchmark::RegisterBenchmark(title.c_str(), [=](benchmark::State& state) {
    const std::vector<float> x = waves<float>(elements, 0.7), g = waves<float>(elements, 1.3);
    std::vector<float> y(elements), out(elements);
    peer.forward(x.data(), elements / length, length, y.data());
    for (auto _ : state) {
      run(x.data(), g.data(), y.data(), out.data());
      benchmark::ClobberMemory();
    }
    state.counters["per_element"] = benchmark::Counter(
        static_cast<double>(elements),
        benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  })->MinTime(kSeconds);
}

void add_peer(const SoftmaxPeer& peer, std::size_t elements, std::size_t length) {
  const std::size_t rows = elements / length;
  add_peer_run("softmax_forward", peer, elements, length,
               [=](const float* x, const float*, const float*, float* out) {
                 peer.forward(x, rows, length, out);
               });
  add_peer_run("softmax_backward", peer, elements, length,
               [=](const float*, const float* g, const float* y, float* out) {
                 peer.backward(g, y, rows, length, out);
               });
  add_peer_run("logsumexp_forward", peer, elements, length,
               [=](const float* x, const float*, const float*, float* out) {
                 peer.logsumexp(x, rows, length, out);
               });
}

void add_peers() {
  for (const SoftmaxPeer& peer : {softmax_peer_avx2(), softmax_peer_avx512()}) {
    if (!peer.supported()) continue;
    for (const std::size_t length : {3, 16, 64, 256, 1024, 4096, 16384})
      add_peer(peer, kInCache, length);
    for (const std::size_t length : {64, 1024, 32768}) add_peer(peer, kInMemory, length);
  }
}
#else
void add_peers() {}
#endif

void add_targets_and_lengths() {
  std::vector<std::int64_t> targets = supported_targets();
  const std::int64_t best = targets.front();
  targets.push_back(kPlain);
  for (const std::int64_t target : targets) {
    for (const std::size_t length : {3, 64, 1024})
      add<float>({.rows = {.target = target, .length = length}}, "float32");
  }
  for (const std::size_t length : {2, 4, 8, 16, 17, 256, 257, 1023, 4096, 16384})
    add<float>({.rows = {.target = best, .length = length}}, "float32");
  for (const SoftmaxKind kind : {SoftmaxKind::log_softmax, SoftmaxKind::logsumexp}) {
    for (const std::size_t length : {3, 16, 64, 256, 1024, 4096, 16384})
      add<float>({.rows = {.target = best, .length = length}, .kind = kind}, "float32");
    for (const std::size_t length : {64, 1024, 32768}) {
      add<float>({.rows = {.target = best, .length = length, .elements = kInMemory}, .kind = kind},
                 "float32");
    }
  }
  for (const std::size_t length : {3, 64, 1024, 32768})
    add<float>({.rows = {.target = best, .length = length, .elements = kInMemory}}, "float32");
}

void add_storage() {
  const std::int64_t best = supported_targets().front();
  for (const std::size_t length : {3, 64, 1024}) {
    add<float16>({.rows = {.target = best, .length = length}}, "float16");
    add<bfloat16>({.rows = {.target = best, .length = length}}, "bfloat16");
    add<double>({.rows = {.target = best, .length = length}}, "float64");
    add<float>({.rows = {.target = best, .length = length}, .masked = true}, "float32");
    for (const auto arrangement : {Arrangement::unaligned, Arrangement::side_by_side}) {
      add<float>({.rows = {.target = best, .arrangement = arrangement, .length = length}},
                 "float32");
    }
  }
}

[[maybe_unused]] const bool all_added = [] {
  add_targets_and_lengths();
  add_storage();
  add_peers();
  return true;
}();

}  // namespace
}  // namespace safeops
