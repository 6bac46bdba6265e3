// When policy `raise` throws for a kernel for CUDA, and what is left alone while a graph is
// captured. The device is the host (host_cuda.h).
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "torch/cuda_fixture.h"

namespace safeops {
namespace {

using at::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

using DeferredRaise = CudaExecution;
using ExactRaise = CudaExecution;
using CapturedGraph = CudaExecution;

TEST_F(DeferredRaise, IsThrownByTheNextCall) {
  raising(on_cuda(singular_rows()));
  const std::string message = next_error();
  EXPECT_THAT(message, AllOf(HasSubstr("safeops::normalize: policy 'raise' met a singular row of 4 "
                                       "(zero_norm; at row 1) in a float64 tensor of shape [4, 2], "
                                       "in an earlier call on cuda:0"),
                             HasSubstr("raise mode 'exact'")));
  EXPECT_EQ(host_launches().size(), 1u);  // the call that threw computed nothing
  EXPECT_TRUE(same(on_cpu(normalize(on_cuda(regular_rows()))), normalized(), 1e-15));
}

TEST_F(DeferredRaise, IsSettledOnce) {
  raising(on_cuda(singular_rows()));
  const std::uint64_t launch = safeops_last_launch(), epoch = safeops_hit_epoch;
  next_error();
  EXPECT_EQ(safeops_raised_launch(), launch);
  EXPECT_EQ(safeops_hit_epoch, epoch + 1);
  safeops_hit hit;
  ASSERT_TRUE(safeops_last_hit(&hit));
  EXPECT_EQ(hit.raised, 1);
  EXPECT_EQ(hit.first_row, 1u);
  EXPECT_EQ(hit.rows, 4u);
  EXPECT_EQ(hit.serial, epoch + 1);
  EXPECT_EQ(static_cast<Condition>(hit.condition), Condition::zero_norm);
  EXPECT_EQ(static_cast<Device>(hit.device), Device::cuda);
  EXPECT_EQ(counted(), 2u);
}

TEST_F(DeferredRaise, IsThrownAgainForAnotherCall) {
  raising(on_cuda(singular_rows()));
  next_error();
  raising(on_cuda(singular_rows()));
  next_error();
  EXPECT_EQ(counted(), 4u);
}

TEST_F(DeferredRaise, IsThrownByCheck) {
  EXPECT_NO_THROW(diagnostics::check());
  raising(on_cuda(singular_rows()));
  EXPECT_THROW(diagnostics::check(), c10::ValueError);
  EXPECT_GT(host_cuda().waits, 0);
  EXPECT_NO_THROW(diagnostics::check());
}

TEST_F(DeferredRaise, IsTakenThroughC) {
  const char* sentence = "";
  EXPECT_EQ(safeops_check(&sentence), 0);
  EXPECT_EQ(sentence, nullptr);
  raising(on_cuda(singular_rows()));
  EXPECT_EQ(safeops_check(&sentence), 1);
  EXPECT_THAT(sentence, HasSubstr("policy 'raise' met"));
  safeops_hit hit;
  ASSERT_TRUE(safeops_last_hit(&hit));
  EXPECT_EQ(hit.raised, 1);
}

TEST_F(DeferredRaise, IsThrownByACallOnAnotherDevice) {
  raising(on_cuda(singular_rows(), 1));
  EXPECT_THAT(next_error(0), HasSubstr("in an earlier call on cuda:1"));
}

TEST_F(DeferredRaise, ConcernsNoCallOnTheCpu) {
  raising(on_cuda(singular_rows()));
  EXPECT_NO_THROW(normalize(regular_rows()));
}

TEST_F(DeferredRaise, IsThrownInBackwardAndOfBackward) {
  const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("safeops::_normalize_backward", "");
  const auto backward = [&](const Tensor& x) {
    torch::jit::Stack stack;
    torch::jit::push(stack, on_cuda(at::ones_like(x)), on_cuda(x),
                     on_cuda(x.norm(2, {1}, /*keepdim=*/true)), 2.0, std::vector<std::int64_t>{1},
                     0.0, std::string("raise"));
    handle.callBoxed(&stack);
  };
  raising(on_cuda(singular_rows()));
  EXPECT_THROW(backward(regular_rows()), c10::ValueError);
  backward(singular_rows());
  EXPECT_THAT(next_error(), HasSubstr("safeops::normalize (backward): policy 'raise'"));
  EXPECT_EQ(counted(Direction::backward), 2u);
}

TEST_F(DeferredRaise, WritesOutWithoutATemporary) {
  Tensor out = on_cuda(at::zeros({4, 2}, at::kDouble));
  normalize_out(out, on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::raise);
  EXPECT_EQ(host_launches().back().arguments.output, out.mutable_data_ptr());
  next_error();
}

TEST_F(DeferredRaise, IsThrownAtLevelZero) {
  diagnostics::set_level(0);
  raising(on_cuda(singular_rows()));
  EXPECT_THAT(next_error(), HasSubstr("zero_norm"));
  diagnostics::set_level(1);
  EXPECT_EQ(counted(), 0u);
}

TEST_F(DeferredRaise, IsThrownOnceAmongThreads) {
  raising(on_cuda(singular_rows()));
  std::atomic<int> thrown{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      try {
        diagnostics::check();
      } catch (const c10::ValueError&) {
        ++thrown;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(thrown, 1);
}

TEST_F(DeferredRaise, IsThrownOfACallThatWasForgotten) {
  raising(on_cuda(singular_rows()));
  const HostLaunch late = host_launches().back();
  next_error();
  for (int i = 0; i < 9000; ++i) raising(on_cuda(regular_rows()));
  Tensor output = on_cuda(singular_rows()), input = on_cuda(singular_rows());
  RowArguments arguments = late.arguments;
  arguments.output = output.mutable_data_ptr();
  arguments.input[0] = input.const_data_ptr();
  normalize_on_host(arguments, late.order, late.launch);
  EXPECT_THAT(next_error(), HasSubstr("singular row or element (number 1)"));
}

TEST_F(CapturedGraph, IsLeftAlone) {
  raising(on_cuda(singular_rows()));
  host_cuda().capturing[0] = true;
  EXPECT_NO_THROW(normalize(on_cuda(regular_rows())));
  EXPECT_NO_THROW(diagnostics::check());
  EXPECT_TRUE(diagnostics::snapshot().empty());
  diagnostics::reset();
  host_cuda().capturing.fill(false);
  next_error();
  EXPECT_EQ(counted(), 2u);
}

TEST_F(CapturedGraph, IsLeftAloneByAnErrorOfAnotherDevice) {
  raising(on_cuda(singular_rows(), 1));
  host_cuda().capturing[0] = true;
  EXPECT_NO_THROW(normalize(on_cuda(regular_rows(), 0)));
  EXPECT_NO_THROW(diagnostics::check());
  host_cuda().capturing.fill(false);
  EXPECT_THAT(next_error(0), HasSubstr("in an earlier call on cuda:1"));
}

TEST_F(CapturedGraph, MayBeTheFirstCallOnADevice) {
  host_cuda().capturing[3] = true;
  EXPECT_NO_THROW(normalize(on_cuda(singular_rows(), 3), 2, 1, std::nullopt, Policy::zero));
  host_cuda().capturing.fill(false);
  EXPECT_EQ(counted(), 2u);
}

TEST_F(CapturedGraph, CountsAndRaisesAtEveryReplay) {
  host_cuda().capturing[0] = true;
  const Tensor x = on_cuda(singular_rows());
  const Tensor y = raising(x);
  const std::uint64_t launch = safeops_last_launch();
  const HostLaunch graph = host_launches().back();
  host_cuda().capturing.fill(false);
  next_error();  // what is captured runs here at once
  for (int i = 0; i < 9000; ++i) raising(on_cuda(regular_rows()));
  for (int replay = 0; replay < 2; ++replay) {
    normalize_on_host(graph.arguments, graph.order, graph.launch);
    EXPECT_THAT(next_error(), HasSubstr("tensor of shape [4, 2], in an earlier call"));
    EXPECT_EQ(safeops_raised_launch(), launch);
  }
  EXPECT_EQ(counted(), 6u);
}

TEST_F(CapturedGraph, IsDeferredInExactMode) {
  diagnostics::set_raise_mode(RaiseMode::exact);
  host_cuda().capturing[0] = true;
  EXPECT_NO_THROW(raising(on_cuda(singular_rows())));
  host_cuda().capturing.fill(false);
  next_error();
}

TEST_F(ExactRaise, IsThrownByTheCallItself) {
  diagnostics::set_raise_mode(RaiseMode::exact);
  const std::string message =
      message_of<c10::ValueError>([] { raising(on_cuda(singular_rows())); });
  EXPECT_THAT(message, HasSubstr("safeops::normalize: policy 'raise' met 2 singular rows of 4 "
                                 "(zero_norm 2; first at row 1) in a float64 tensor of shape"));
  EXPECT_EQ(host_cuda().waits, 1);
  EXPECT_NO_THROW(normalize(on_cuda(regular_rows())));
  EXPECT_EQ(counted(), 2u);
}

TEST_F(ExactRaise, SettlesEveryHitAsOnTheCpu) {
  diagnostics::set_raise_mode(RaiseMode::exact);
  const std::uint64_t epoch = safeops_hit_epoch;
  normalize(on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::zero);
  EXPECT_EQ(safeops_hit_epoch, epoch + 1);
  safeops_hit hit;
  ASSERT_TRUE(safeops_last_hit(&hit));
  EXPECT_EQ(hit.raised, 0);
  EXPECT_EQ(hit.count, 2u);
  EXPECT_EQ(static_cast<Device>(hit.device), Device::cuda);
  EXPECT_EQ(counted(), 2u);
}

TEST_F(ExactRaise, LeavesOutAloneWhereItThrows) {
  diagnostics::set_raise_mode(RaiseMode::exact);
  Tensor out = on_cuda(at::zeros({4, 2}, at::kDouble));
  EXPECT_THROW(normalize_out(out, on_cuda(singular_rows()), 2, 1, std::nullopt, Policy::raise),
               c10::ValueError);
  EXPECT_TRUE(same(on_cpu(out), at::zeros({4, 2}, at::kDouble)));
}

TEST_F(ExactRaise, KeepsNothingOfACallThatFailed) {
  diagnostics::set_raise_mode(RaiseMode::exact);
  next_status() = 700;
  EXPECT_THROW(normalize(on_cuda(singular_rows())), c10::Error);
  normalize(on_cuda(regular_rows()));
  EXPECT_EQ(counted(), 0u);
}

TEST(RaiseModes, AreRefusedWhereUnknown) {
  EXPECT_EQ(safeops_raise_mode(), 0);
  EXPECT_EQ(safeops_set_raise_mode(2), 0);
  EXPECT_EQ(safeops_set_raise_mode(-1), 0);
  EXPECT_EQ(safeops_set_raise_mode(1), 1);
  EXPECT_EQ(diagnostics::raise_mode(), RaiseMode::exact);
  EXPECT_EQ(safeops_set_raise_mode(0), 1);
}

}  // namespace
}  // namespace safeops
