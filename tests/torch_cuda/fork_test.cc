// A child of fork may use CUDA as long as its parent has not.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torch/host_cuda.h"
#include "torch/interface.h"

namespace safeops {
namespace {

using ::testing::HasSubstr;

// 0 if the child counts on CUDA, 1 if not, 2 if it is refused.
int outcome_in_child() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    try {
      safeops::log(on_cuda(at::zeros({4}, at::kDouble)), std::nullopt, Policy::zero);
      const auto records = diagnostics::snapshot();
      _exit(records.size() == 1 && records[0].count == 4 ? 0 : 1);
    } catch (const c10::NotImplementedError&) {
      _exit(2);
    }
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// In a child of its own, and before other tests, for its CUDA must not have been used yet.
TEST(ForkedChildDeathTest, UsesCudaIfItsParentDidNot) {
  const auto outcomes = [] {
    set_cuda_backend(&host_cuda());
    const int before = outcome_in_child();
    safeops::log(on_cuda(at::ones({4}, at::kDouble)));
    const int after = outcome_in_child();
    _exit(10 * before + after);
  };
  EXPECT_EXIT(outcomes(), ::testing::ExitedWithCode(2), "");
}

}  // namespace
}  // namespace safeops
