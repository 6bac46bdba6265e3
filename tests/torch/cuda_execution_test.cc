// Where the binding counts what a kernel for CUDA meets, and what it refuses to launch. The device
// is the host (host_cuda.h).
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "torch/cuda_fixture.h"

namespace safeops {
namespace {

using at::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(CudaExecution, ComputesOnTheDevice) {
  const Tensor y = normalize(on_cuda(regular_rows()));
  EXPECT_TRUE(y.is_cuda());
  EXPECT_TRUE(same(on_cpu(y), normalized(), 1e-15));
  EXPECT_EQ(host_launches().back().launch.stream, host_cuda().current_stream(0));
}

TEST_F(CudaExecution, CountsWithoutWaitingUntilTheCountersAreRead) {
  normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
  normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::nan);
  EXPECT_EQ(host_cuda().waits, 0);
  const auto records = diagnostics::snapshot();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].op, Operator::normalize);
  EXPECT_EQ(records[0].condition, Condition::zero_norm);
  EXPECT_EQ(records[0].device, Device::cuda);
  EXPECT_EQ(records[0].count, 4u);
  EXPECT_EQ(records[0].first_row, 1u);
  EXPECT_GT(host_cuda().waits, 0);
  EXPECT_EQ(counted(), 4u);  // once
}

TEST_F(CudaExecution, CountsForOneWhoMustNotWait) {
  normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
  safeops_record record;
  EXPECT_EQ(safeops_glance(&record, 1), 1u);
  EXPECT_EQ(record.count, 2u);
  EXPECT_EQ(host_cuda().waits, 0);
}

TEST_F(CudaExecution, ForgetsWhatWasMetBeforeAReset) {
  normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
  diagnostics::reset();
  EXPECT_EQ(counted(), 0u);
}

TEST_F(CudaExecution, KnowsARowThatWasReadBeforeItsCount) {
  normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
  diagnostics::snapshot();
  (*host_launches().back().launch.hits)[Condition::zero_norm] = {1, kNoRow};
  diagnostics::reset();
  (*host_launches().back().launch.hits)[Condition::zero_norm] = {1, kNoRow};
  const auto records = diagnostics::snapshot();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].count, 1u);
  EXPECT_EQ(records[0].first_row, 1u);
}

TEST_F(CudaExecution, CountsNothingAtLevelZero) {
  diagnostics::set_level(0);
  normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
  diagnostics::set_level(1);
  EXPECT_EQ(counted(), 0u);
}

TEST_F(CudaExecution, CountsOnEveryDevice) {
  normalize(on_cuda(singular_rows(), 0), 2, 1, std::nullopt, Policy::zero);
  normalize(on_cuda(singular_rows(), 1), 2, 1, std::nullopt, Policy::zero);
  EXPECT_NE(host_launches()[0].launch.hits, host_launches()[1].launch.hits);
  EXPECT_EQ(counted(), 4u);
}

TEST_F(CudaExecution, LaunchesOnTheDeviceOfTheInput) {
  normalize(on_cuda(singular_rows(), 1), 2, 1, std::nullopt, Policy::zero);
  normalize(on_cuda(singular_rows(), 0), 2, 1, std::nullopt, Policy::zero);
  EXPECT_EQ(host_launches()[0].device, 1);
  EXPECT_EQ(host_launches()[1].device, 0);
}

TEST_F(CudaExecution, IsToldByAReporter) {
  std::uint64_t told = 0;
  {
    normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
    diagnostics::Reporter reporter(
        [&](const diagnostics::Change& change) { told += change.added; });
    normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
    EXPECT_TRUE(reporter.flush());
    EXPECT_EQ(told, 2u);  // of the second call alone
    normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
  }
  EXPECT_EQ(told, 4u);
}

TEST_F(CudaExecution, RefusesWhatHasNoKernel) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto message = [](const Tensor& x, double p) {
    return message_of<c10::NotImplementedError>([&] { normalize(x, p); });
  };
  EXPECT_THAT(message(on_cuda(regular_rows()), 3),
              AllOf(HasSubstr("safeops::normalize: p = 3"), HasSubstr("use p = 1, 2 or inf")));
  EXPECT_THAT(message(on_cuda(at::complex(regular_rows(), regular_rows())), infinity),
              HasSubstr("use p = 2"));
  const Tensor ones = on_cuda(at::ones({2}, at::kLong));
  EXPECT_THAT(message_of<c10::NotImplementedError>([&] { safeops::div(ones, ones, "trunc"); }),
              AllOf(HasSubstr("safeops::div"), HasSubstr("int64"), HasSubstr("cuda:0")));
  normalize_forward_on_cuda.function = nullptr;
  EXPECT_THAT(message(on_cuda(regular_rows()), 2), HasSubstr("has no kernel for cuda:0"));
}

TEST_F(CudaExecution, SaysWhyThereAreNoKernels) {
  set_cuda_backend(nullptr);
  EXPECT_FALSE(safeops_has_cuda());
  const auto message = [] {
    return message_of<c10::NotImplementedError>([] { normalize(on_cuda(regular_rows())); });
  };
  EXPECT_THAT(message(), AllOf(HasSubstr("safeops::normalize: input is on cuda:0"),
                               HasSubstr("libsafeops_torch_cuda is not loaded")));
  safeops_set_cuda_unavailable("this build has none; install another");
  EXPECT_THAT(message(), HasSubstr("this build has none; install another"));
  safeops_set_cuda_unavailable(nullptr);
  EXPECT_THAT(message(), HasSubstr("libsafeops_torch_cuda is not loaded"));
}

TEST_F(CudaExecution, TellsOfALaunchThatFailed) {
  next_status() = 719;
  EXPECT_THAT(message_of<c10::Error>([] { normalize(on_cuda(regular_rows())); }), HasSubstr("719"));
  EXPECT_TRUE(same(on_cpu(normalize(on_cuda(regular_rows()))), normalized(), 1e-15));
}

TEST_F(CudaExecution, ReadsTheCountersOfADeviceThatHasFailed) {
  normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
  host_cuda().fails = true;
  EXPECT_TRUE(diagnostics::snapshot().empty());
  const char* sentence = nullptr;
  EXPECT_EQ(safeops_check(&sentence), 2);
  EXPECT_THAT(sentence, HasSubstr("driver version"));
}

TEST_F(CudaExecution, RefusesWhatBackwardIsGivenFromElsewhere) {
  const Tensor here = on_cuda(regular_rows()), there = regular_rows();
  const Tensor norm = on_cuda(at::ones({2, 1}, at::kDouble));
  const auto message = [](const char* name, auto... arguments) {
    torch::jit::Stack stack;
    torch::jit::push(stack, arguments...);
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    return message_of<c10::Error>([&] { op.callBoxed(&stack); });
  };
  const std::string zero = "zero";
  const std::vector<std::int64_t> dim = {1};
  EXPECT_EQ(message("safeops::_normalize_backward", here, there, norm, 2.0, dim, 0.0, zero),
            "safeops::_normalize_backward: self must be on the device of grad, cuda:0, got cpu; "
            "move it there");
  EXPECT_THAT(message("safeops::_normalize_backward", here, here, there.norm(2, dim, true), 2.0,
                      dim, 0.0, zero),
              HasSubstr("norm must be on the device of grad"));
  EXPECT_THAT(message("safeops::_softmax_backward", here, there, norm, at::IValue(), 1,
                      static_cast<std::int64_t>(at::kDouble), zero),
              HasSubstr("safeops::_softmax_backward: out must be on the device of grad"));
  EXPECT_THAT(message("safeops::_logsumexp_backward", norm, there, norm, at::IValue(), dim, zero),
              HasSubstr("safeops::_logsumexp_backward: self must be on the device of grad"));
  EXPECT_THAT(message("safeops::_sqrt_backward", here, there, 0.0, zero),
              HasSubstr("safeops::_sqrt_backward: self must be on the device of grad"));
  EXPECT_THAT(message("safeops::_div_backward", here, at::IValue(), there, at::IValue(), 0.0, zero,
                      std::vector<bool>{true, false}),
              HasSubstr("safeops::_div_backward: other must be on the device of grad"));
}

TEST_F(CudaExecution, LaunchesNothingForNoElements) {
  EXPECT_EQ(normalize(on_cuda(at::empty({0, 2}, at::kDouble))).numel(), 0);
  EXPECT_TRUE(host_launches().empty());
}

}  // namespace
}  // namespace safeops
