// Unit rows of a matrix that has a zero row: value, gradient and what was counted.
#include <ATen/Functions.h>
#include <safeops/safeops.h>

#include <iostream>

namespace {

void show_gradient() {
  const at::Tensor x = at::tensor({3.0, 4.0, 0.0, 0.0}).view({2, 2}).requires_grad_();
  at::Tensor y;
  {
    safeops::PolicyGuard guard(safeops::Policy::zero);
    y = safeops::normalize(x, /*p=*/2, /*dim=*/-1);
  }
  // Outside the guard: the backward pass keeps the policy of the forward call.
  y[0][0].add(y[1][0]).backward();
  std::cout << "value\n" << y.detach() << "\ngradient\n" << x.grad() << "\n";
}

void show_error() {
  try {
    safeops::normalize(at::zeros({2, 3}), 2, -1, std::nullopt, safeops::Policy::raise);
  } catch (const c10::ValueError& error) {
    std::cout << error.what_without_backtrace() << "\n";
  }
}

void show_counters() {
  for (const safeops::diagnostics::Record& record : safeops::diagnostics::snapshot()) {
    std::cout << name(record.op) << " " << name(record.condition) << " " << name(record.direction)
              << ": " << record.count << " rows, first row " << record.first_row << "\n";
  }
}

}  // namespace

int main() {
  show_gradient();
  show_error();
  show_counters();
}
