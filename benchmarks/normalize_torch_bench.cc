// safeops::normalize beside the composition of ATen operators that torch::nn::functional::normalize
// is, called from C++ on one thread. The two take turns within a benchmark. The counters are
// medians over the turns: seconds per call of both, and aten / safeops. The time column is the mean
// time of safeops in a turn, which is many calls where they are small.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "safeops/safeops.h"

namespace safeops {
namespace {

using at::Tensor;

constexpr double kSeconds = 0.2;
constexpr double kEps = 1e-12;

Tensor aten_normalize(const Tensor& x, std::int64_t dim) {
  const Tensor norm = at::norm(x, 2, {dim}, /*keepdim=*/true).clamp_min(kEps).expand_as(x);
  return x / norm;
}

Tensor safeops_normalize(const Tensor& x, std::int64_t dim) { return normalize(x, 2, {dim}); }

struct Case {
  std::vector<std::int64_t> shape;
  std::int64_t dim;
  at::ScalarType dtype = at::kFloat;

  Tensor values() const { return at::randn(shape, at::kFloat).to(dtype); }
  std::string name(const char* pass) const {
    std::string text = pass;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      text += (i == 0 ? "/" : "x") + std::to_string(shape[i]);
    }
    return text + "/dim:" + std::to_string(dim) + "/" + at::toString(dtype);
  }
};

// Small calls are timed many at once, or the clock itself would be measured.
int calls_at_once(std::int64_t elements) { return elements < (1 << 12) ? 64 : 1; }

template <class Call>
double seconds_per_call(int calls, const Call& call) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) benchmark::DoNotOptimize(call());
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Ours, class Theirs>
void take_turns(benchmark::State& state, const Tensor& x, const Ours& ours, const Theirs& theirs) {
  const int calls = calls_at_once(x.numel());
  for (int warm_up = 0; warm_up < 3; ++warm_up) {
    seconds_per_call(calls, ours);
    seconds_per_call(calls, theirs);
  }
  std::vector<double> our_seconds, their_seconds, ratios;
  for (auto _ : state) {
    their_seconds.push_back(seconds_per_call(calls, theirs));
    our_seconds.push_back(seconds_per_call(calls, ours));
    ratios.push_back(their_seconds.back() / our_seconds.back());
    state.SetIterationTime(our_seconds.back() * calls);
  }
  state.counters["aten"] = median(their_seconds);
  state.counters["safeops"] = median(our_seconds);
  state.counters["ratio"] = median(ratios);
}

void forward(benchmark::State& state, const Case& c) {
  const at::NoGradGuard no_grad;
  const Tensor x = c.values();
  take_turns(
      state, x, [&] { return safeops_normalize(x, c.dim); },
      [&] { return aten_normalize(x, c.dim); });
}

void forward_and_backward(benchmark::State& state, const Case& c) {
  const Tensor x = c.values().requires_grad_(), g = c.values();
  const auto gradient = [&](const Tensor& y) { return torch::autograd::grad({y}, {x}, {g}); };
  take_turns(
      state, x, [&] { return gradient(safeops_normalize(x, c.dim)); },
      [&] { return gradient(aten_normalize(x, c.dim)); });
}

// Or every large output is mapped anew, and page faults are what is compared.
void keep_memory_mapped() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 1 << 25);
}

bool add_all() {
  const std::vector<Case> cases = {
      {{4, 4}, -1},
      {{256, 256}, -1},
      {{64, 1024}, -1},
      {{1024, 64}, -1},
      {{4096, 1024}, -1},
      {{65536, 64}, -1},
      {{1024, 4096}, -1},
      {{4096, 4096}, -1},
      {{1 << 20, 3}, -1},
      {{1, 3072, 1024}, 1},
      {{4096, 1024}, -1, at::kBFloat16},
      {{4096, 1024}, -1, at::kHalf},
      {{4096, 1024}, -1, at::kDouble},
  };
  keep_memory_mapped();
  at::set_num_threads(1);
  for (const Case& c : cases) {
    const std::string forward_name = c.name("forward"), both_name = c.name("forward+backward");
    benchmark::RegisterBenchmark(forward_name.c_str(), forward, c)
        ->UseManualTime()
        ->MinTime(kSeconds);
    benchmark::RegisterBenchmark(both_name.c_str(), forward_and_backward, c)
        ->UseManualTime()
        ->MinTime(kSeconds);
  }
  return true;
}

[[maybe_unused]] const bool all_added = add_all();

}  // namespace
}  // namespace safeops
