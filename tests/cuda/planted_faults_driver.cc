// normalize of float32 rows by the row skeleton alone, for planted_faults.py: every walk once,
// under every order. Exits with 1 if a result is wrong.
#define SAFEOPS_CUDA

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/run_rows_cuda.h"
#include "operators/normalize/normalize.h"
#include "operators/normalize/normalize_math.h"

namespace safeops {
namespace {

// A reduction ahead of that of normalize, so that one follows upon another.
struct UnitRows {
  template <class Stored>
  static constexpr int kReductions = 2;
  template <class Row>
  void operator()(Row& row, const Resolution& policy) const {
    [[maybe_unused]] const volatile double largest =
        device::number(row.max([](typename Row::Real x) { return magnitude(x); }));
    device::normalize_forward_row<NormOrder::two>(row, policy);
  }
};

/// One walk: a length, and the shared memory with which rows of it take the walk.
struct Walk {
  std::size_t rows, length, shared_memory;
};
// Columns, quarter warps, warps, blocks with several rows each, slices.
constexpr Walk kWalks[] = {{70, 3, 227 << 10},  {9, 5, 227 << 10},     {33, 20, 227 << 10},
                           {7, 300, 227 << 10}, {66, 1100, 227 << 10}, {2, 9000, 16 << 10}};

bool is_zero_row(std::size_t row) { return row % 3 == 1; }

std::vector<float> input_of(const Walk& walk) {
  std::vector<float> x(walk.rows * walk.length);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = is_zero_row(i / walk.length) ? 0.0f : static_cast<float>(i * 37 % 101) - 49.5f;
  return x;
}

RowArguments arguments_of(const Walk& walk, const std::vector<float>& x, std::vector<float>& y) {
  RowArguments arguments;
  arguments.layout.rows = walk.rows;
  arguments.layout.length = walk.length;
  arguments.layout.kept_dims = 1;
  arguments.layout.kept_size[0] = walk.rows;
  for (RowLayout::Strides& strides : arguments.layout.operand)
    strides.kept[0] = static_cast<std::ptrdiff_t>(walk.length);
  arguments.input[0] = x.data();
  arguments.output = y.data();
  arguments.policy = {0, 0, 0, true};
  return arguments;
}

[[noreturn]] void wrong(const char* what, const Walk& walk, std::size_t where) {
  std::printf("wrong %s: rows of %zu elements, at %zu\n", what, walk.length, where);
  std::exit(1);
}

void check_values(const Walk& walk, const std::vector<float>& x, const std::vector<float>& y) {
  for (std::size_t r = 0; r < walk.rows; ++r) {
    double square = 0;
    for (std::size_t i = r * walk.length; i < (r + 1) * walk.length; ++i)
      square += double{x[i]} * x[i];
    for (std::size_t i = r * walk.length; i < (r + 1) * walk.length; ++i) {
      const double expected = square == 0 ? 0 : x[i] / std::sqrt(square);
      if (!(std::abs(y[i] - expected) <= 1e-6)) wrong("value", walk, i);
    }
  }
}

void* allocate(void* memory, std::size_t bytes) {
  auto& blocks = *static_cast<std::vector<std::vector<double>>*>(memory);
  return blocks.emplace_back((bytes + sizeof(double) - 1) / sizeof(double), NAN).data();
}

void run(const Walk& walk) {
  const std::vector<float> x = input_of(walk);
  std::vector<float> y(x.size());
  std::vector<std::vector<double>> scratch;
  Hits hits;
  CudaLaunch launch;
  launch.shared_memory = walk.shared_memory;
  launch.hits = &hits;
  launch.allocate = &allocate;
  launch.allocator = &scratch;
  using Operands = device::RowOperands<float, 1, /*kMayBeStaged=*/false>;
  const int status = device::run_rows<UnitRows, Operands, device::Coverage::full>(
      arguments_of(walk, x, y), launch);
  if (status != 0) wrong("status", walk, static_cast<std::size_t>(status));
  check_values(walk, x, y);
  const std::size_t zeros = (walk.rows + 1) / 3;
  if (hits[Condition::zero_norm].count != zeros) wrong("count", walk, zeros);
}

}  // namespace
}  // namespace safeops

int main() {
  for (const safeops::emulator::Order order : safeops::emulator::kOrders) {
    safeops::emulator::schedule().order = order;
    for (const safeops::Walk& walk : safeops::kWalks) safeops::run(walk);
  }
  std::puts("all right");
}
