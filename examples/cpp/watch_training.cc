// Trains on documents of which one is empty, and tells step by step what the operators met: on
// stderr, and as lines of JSON in the file that is named.
#include <ATen/ATen.h>
#include <safeops/safeops.h>

#include <iostream>

namespace {

using safeops::diagnostics::Change;

void print(const Change& change) {
  std::cerr << name(change.record.op) << " " << name(change.record.condition) << " "
            << name(change.record.direction) << ": " << change.added << " more, "
            << change.record.count << " in all\n";
}

// One step of gradient descent on the cosine similarity of documents and targets.
void train(at::Tensor& weight, const at::Tensor& words, const at::Tensor& targets) {
  const at::Tensor frequencies = safeops::div(words, words.sum(-1, /*keepdim=*/true));
  const at::Tensor unit = safeops::normalize(frequencies.matmul(weight), /*p=*/2, /*dim=*/-1);
  const at::Tensor loss = 1 - (unit * targets).sum(-1).mean();
  loss.backward();
  weight.data().sub_(weight.grad(), 0.1);
  weight.mutable_grad().reset();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: watch_training FILE\n";
    return 2;
  }
  safeops::diagnostics::set_level(2);  // shapes and dtypes, too
  safeops::diagnostics::Reporter to_stderr(print);
  const safeops::diagnostics::Reporter to_file{safeops::diagnostics::JsonLines(arguments[1])};

  const at::Tensor words = at::tensor({2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0}).view({3, 3});
  const at::Tensor targets = at::eye(3, at::kDouble).narrow(1, 0, 2);
  at::Tensor weight = at::ones({3, 2}, at::kDouble).requires_grad_();
  {
    const safeops::PolicyGuard guard(safeops::Policy::zero);
    for (int step = 0; step < 3; ++step) {
      train(weight, words, targets);
      to_stderr.flush();
    }
  }
  std::cout << "weights are " << (weight.isfinite().all().item<bool>() ? "finite" : "not finite")
            << "\n";
  for (const safeops::diagnostics::Record& record : safeops::diagnostics::snapshot()) {
    std::cout << name(record.op) << " " << name(record.condition) << " " << name(record.direction)
              << ": " << record.count << "\n";
  }
}
