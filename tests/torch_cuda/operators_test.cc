// Every operator on CUDA tensors through the dispatcher, the binding and the emulated kernels, next
// to the same call on the CPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "emulator/emulator.h"
#include "torch/host_cuda.h"
#include "torch/interface.h"
#include "torch_cuda/host_operators.h"

namespace safeops {
namespace {

using at::Tensor;
using ::testing::HasSubstr;
using Call = std::function<Tensor(const Tensor&)>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class OnCuda : public Interface {
 protected:
  void SetUp() override {
    set_cuda_backend(&host_cuda());
    emulator::limits() = {host_cuda().shared_memory(0), host_cuda().current_stream(0)};
    Interface::SetUp();
  }
  void TearDown() override {
    Interface::TearDown();
    set_cuda_backend(nullptr);
  }
};

struct Counted {
  int op, condition, direction;
  std::uint64_t count, first_row;
  bool operator==(const Counted&) const = default;
};

// What was counted since the last time.
std::vector<Counted> take_counts() {
  std::vector<Counted> counts;
  for (const auto& record : diagnostics::snapshot()) {
    counts.push_back({static_cast<int>(record.op), static_cast<int>(record.condition),
                      static_cast<int>(record.direction), record.count, record.first_row});
  }
  diagnostics::reset();
  return counts;
}

// An incoming gradient that differs from element to element.
Tensor gradient_for(const Tensor& y) {
  Tensor g = at::linspace(-1, 2, y.numel(), at::kDouble).view(y.sizes());
  if (y.is_complex()) g = at::complex(g, g.flip(0));
  g = g.to(y.scalar_type());
  return y.is_cuda() ? on_cuda(g) : g;
}

// Value and gradient of a call.
std::vector<Tensor> computed(const Tensor& x, const Call& call) {
  const Tensor leaf = x.detach().requires_grad_(x.is_floating_point() || x.is_complex());
  const Tensor y = call(leaf);
  if (!leaf.requires_grad()) return {y};
  y.backward(gradient_for(y));
  return {y.detach(), leaf.grad()};
}

// Values, strides and counts.
void expect_as_on_the_cpu(const Tensor& x, const Call& call, double tolerance = 0) {
  const auto expected = computed(x.clone(), call);
  const auto expected_counts = take_counts();
  const std::uint64_t launches = emulator::statistics().launches;
  const auto actual = computed(on_cuda(x), call);
  EXPECT_GE(emulator::statistics().launches, launches + expected.size());
  const auto counts = take_counts();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i == 0 ? "value" : "gradient");
    ASSERT_TRUE(actual[i].is_cuda());
    EXPECT_EQ(actual[i].strides(), expected[i].strides());
    const Tensor back = on_cpu(actual[i].contiguous());
    EXPECT_TRUE(same(back, expected[i], tolerance)) << back << '\n' << expected[i];
  }
  EXPECT_EQ(counts, expected_counts);
}

// Rows with zeros, infinities and NaN.
Tensor rows(at::ScalarType dtype) {
  Tensor x = at::linspace(-2, 3, 84, at::kDouble).view({7, 12});
  x[1].zero_();
  x[2].fill_(-std::numeric_limits<double>::infinity());
  x[3][2] = kNan;
  x[5][0] = 0;
  return x.to(dtype);
}

const at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
constexpr Policy kPoliciesThatReturn[] = {Policy::stock, Policy::nan, Policy::epsilon,
                                          Policy::zero};

TEST_F(OnCuda, Normalizes) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const Policy policy : kPoliciesThatReturn) {
      for (const double p : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
        for (const std::int64_t dim : {0, 1}) {
          SCOPED_TRACE(c10::str(dtype, ' ', name(policy), " p = ", p, " dim ", dim));
          expect_as_on_the_cpu(rows(dtype), [&](const Tensor& x) {
            return normalize(x, p, dim, std::nullopt, policy);
          });
        }
      }
    }
  }
}

TEST_F(OnCuda, NormalizesWhatLiesOtherwise) {
  const Tensor x = at::linspace(-2, 3, 240, at::kDouble).view({4, 3, 4, 5});
  for (const std::vector<std::int64_t>& dim :
       std::vector<std::vector<std::int64_t>>{{1}, {0, 2}, {0, 1, 2, 3}, {3}}) {
    expect_as_on_the_cpu(x, [&](const Tensor& t) { return normalize(t, 2, dim); });
    expect_as_on_the_cpu(x, [&](const Tensor& t) {
      return normalize(t.permute({0, 2, 3, 1}).slice(2, 1, 4), 2, dim);
    });
  }
}

TEST_F(OnCuda, NormalizesComplexRows) {
  const Tensor x = at::complex(rows(at::kDouble), rows(at::kDouble));
  expect_as_on_the_cpu(x, [](const Tensor& t) { return normalize(t); });
}

TEST_F(OnCuda, TakesSoftmaxes) {
  for (const at::ScalarType dtype : kDtypes) {
    const double tolerance = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 1e-5 : 2e-2;
    for (const Policy policy : kPoliciesThatReturn) {
      for (const std::int64_t dim : {0, 1}) {
        SCOPED_TRACE(c10::str(dtype, ' ', name(policy), " dim ", dim));
        const auto check = [&](const Call& call) {
          expect_as_on_the_cpu(rows(dtype), call, tolerance);
        };
        check([&](const Tensor& x) {
          return safeops::softmax(x, dim, std::nullopt, std::nullopt, std::nullopt, policy);
        });
        check([&](const Tensor& x) {
          return safeops::log_softmax(x, dim, std::nullopt, std::nullopt, std::nullopt, policy);
        });
        check([&](const Tensor& x) {
          return safeops::logsumexp(x, dim, false, std::nullopt, policy);
        });
      }
    }
  }
}

TEST_F(OnCuda, TakesMaskedSoftmaxes) {
  const Tensor mask =
      (at::arange(84).view({7, 12}) % 3 != 0).logical_and((at::arange(7) != 4).view({7, 1}));
  expect_as_on_the_cpu(
      rows(at::kFloat),
      [&](const Tensor& x) {
        const Tensor where = x.is_cuda() ? on_cuda(mask) : mask;
        return safeops::softmax(x, 1, std::nullopt, where, std::nullopt, Policy::zero);
      },
      1e-6);
}

TEST_F(OnCuda, Divides) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const Policy policy : kPoliciesThatReturn) {
      SCOPED_TRACE(c10::str(dtype, ' ', name(policy)));
      const auto check = [&](const Call& call) { expect_as_on_the_cpu(rows(dtype), call); };
      check([&](const Tensor& x) { return safeops::div(x, x.flip({0}), {}, {}, policy); });
      check([&](const Tensor& x) { return safeops::div(x, x.select(0, 5), {}, {}, policy); });
      check([&](const Tensor& x) {
        return safeops::div(x, x.t().reshape({7, 12}), "floor", {}, policy);
      });
      check([&](const Tensor& x) { return safeops::div(x, at::Scalar(0.3), {}, {}, policy); });
      check([&](const Tensor& x) { return safeops::div(x, at::Scalar(0), "trunc", {}, policy); });
    }
  }
}

TEST_F(OnCuda, DividesByAndOfNumbersOfTheHost) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const double number : {0.3, 0.0}) {
      const Tensor host = at::scalar_tensor(number, at::kDouble);
      const auto check = [&](const Call& call) { expect_as_on_the_cpu(rows(dtype), call); };
      check([&](const Tensor& x) { return safeops::div(x, host, {}, {}, Policy::zero); });
      check([&](const Tensor& x) { return safeops::div(host, x, {}, {}, Policy::zero); });
      check([&](const Tensor& x) {
        return safeops::div(x, host.to(dtype), "trunc", {}, Policy::zero);
      });
    }
  }
}

// Without a copy from the host, which would wait and which no graph may hold.
TEST_F(OnCuda, DifferentiatesAQuotientByANumberTwice) {
  const auto second_gradient = [](const Tensor& at_point) {
    const Tensor x = at_point.detach().requires_grad_();
    const Tensor y = safeops::div(x * x * x, at::Scalar(0.3), {}, {}, Policy::zero);
    const auto first = torch::autograd::grad({y}, {x}, {at::ones_like(y)}, /*retain_graph=*/true,
                                             /*create_graph=*/true);
    const auto second = torch::autograd::grad({first[0]}, {x}, {at::ones_like(y)});
    return second[0];
  };
  const Tensor x = at::linspace(-2, 3, 12, at::kDouble);
  const std::int64_t copies = copies_from_host();
  EXPECT_TRUE(same(on_cpu(second_gradient(on_cuda(x))), second_gradient(x), 1e-14));
  EXPECT_EQ(copies_from_host(), copies);
}

TEST_F(OnCuda, DividesMixedDtypes) {
  const Tensor counts = at::arange(12, at::kInt);
  const auto there = [](const Tensor& tensor, const Tensor& x) {
    return x.is_cuda() ? on_cuda(tensor) : tensor;
  };
  expect_as_on_the_cpu(rows(at::kFloat), [&](const Tensor& x) {
    return safeops::div(x, there(counts, x), {}, {}, Policy::zero);
  });
  expect_as_on_the_cpu(rows(at::kHalf), [&](const Tensor& x) {
    return safeops::div(x, there(rows(at::kDouble), x), {}, {}, Policy::zero);
  });
  expect_as_on_the_cpu(counts, [&](const Tensor& x) {
    return safeops::div(x, there(counts.flip({0}), x), {}, {}, Policy::zero);
  });
  expect_as_on_the_cpu(counts, [](const Tensor& x) { return safeops::sqrt(x, {}, Policy::zero); });
}

TEST_F(OnCuda, TakesReciprocalsRootsAndLogarithms) {
  for (const at::ScalarType dtype : kDtypes) {
    const double tolerance = dtype == at::kDouble ? 1e-14 : dtype == at::kFloat ? 1e-6 : 1e-2;
    for (const Policy policy : kPoliciesThatReturn) {
      SCOPED_TRACE(c10::str(dtype, ' ', name(policy)));
      const auto check = [&](const Call& call) {
        expect_as_on_the_cpu(rows(dtype), call, tolerance);
      };
      check([&](const Tensor& x) { return safeops::reciprocal(x, {}, policy); });
      check([&](const Tensor& x) { return safeops::rsqrt(x.t(), {}, policy); });
      check([&](const Tensor& x) { return safeops::sqrt(x, {}, policy); });
      check([&](const Tensor& x) { return safeops::log(x, {}, policy); });
    }
  }
}

TEST_F(OnCuda, WorksInPlace) {
  expect_as_on_the_cpu(rows(at::kFloat), [](const Tensor& x) {
    Tensor copy = x.clone();
    safeops::div_(copy, x.flip({1}), {}, {}, Policy::zero);
    safeops::sqrt_(copy, {}, Policy::zero);
    return copy;
  });
}

TEST_F(OnCuda, RaisesLater) {
  safeops::softmax(on_cuda(rows(at::kFloat)), 1, std::nullopt, std::nullopt, std::nullopt,
                   Policy::raise);
  EXPECT_THAT(message_of<c10::ValueError>([] { safeops::log(on_cuda(rows(at::kFloat))); }),
              HasSubstr("safeops::softmax: policy 'raise' met a singular row of 7 (empty_row; at "
                        "row 2) in a float32 tensor of shape [7, 12], in an earlier call"));
  safeops::div(on_cuda(rows(at::kFloat)), on_cuda(rows(at::kFloat)), {}, {}, Policy::raise);
  EXPECT_THAT(message_of<c10::ValueError>([] { diagnostics::check(); }),
              HasSubstr("safeops::div: policy 'raise' met a singular element of 84"));
}

TEST_F(OnCuda, RaisesAtOnceInExactMode) {
  diagnostics::set_raise_mode(RaiseMode::exact);
  const auto message = [](const Tensor& x) {
    return message_of<c10::ValueError>([&] { safeops::rsqrt(x, {}, Policy::raise); });
  };
  EXPECT_EQ(message(on_cuda(rows(at::kFloat))), message(rows(at::kFloat)));
  diagnostics::set_raise_mode(RaiseMode::deferred);
}

}  // namespace
}  // namespace safeops
