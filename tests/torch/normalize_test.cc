// The C++ interface: normalize, PolicyGuard and the counters, as a program that links
// safeops::torch sees them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "torch/interface.h"

namespace safeops {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor healthy_and_zero_row() { return at::tensor({3.0, 4.0, 0.0, 0.0}).view({2, 2}); }
Tensor gradient_of_ones() { return at::tensor({1.0, 0.0, 1.0, 1.0}).view({2, 2}); }

/// Gradient of normalize(x) for the incoming gradient g.
Tensor gradient_of(const Tensor& x, const Tensor& g, std::optional<Policy> policy = {},
                   std::optional<double> eps = {}) {
  const Tensor leaf = x.detach().clone().requires_grad_();
  normalize(leaf, 2, 1, eps, policy).backward(g);
  return leaf.grad();
}

using Normalize = Interface;
using NormalizeOut = Interface;
using NormalizeRefuses = Interface;
using Guard = Interface;
using Counters = Interface;

TEST_F(Normalize, DividesEveryRowByItsNorm) {
  const Tensor x = at::tensor({3.0, 4.0, 5.0, 12.0}).view({2, 2});
  const Tensor y = at::tensor({0.6, 0.8, 5.0 / 13, 12.0 / 13}).view({2, 2});
  EXPECT_TRUE(at::allclose(normalize(x), y, 1e-15, 0));
}

TEST_F(Normalize, ProjectsTheGradientOntoTheTangentSpace) {
  const Tensor x = at::tensor({3.0, 4.0}).view({1, 2}), g = at::tensor({1.0, 0.0}).view({1, 2});
  const Tensor expected = at::tensor({0.128, -0.096}).view({1, 2});  // (g - y <y, g>) / 5
  EXPECT_TRUE(at::allclose(gradient_of(x, g), expected, 1e-14, 0));
}

TEST_F(Normalize, TakesOrderAndDims) {
  const Tensor x = at::tensor({1.0, -3.0, 4.0, 2.0}).view({2, 2});
  EXPECT_TRUE(same(normalize(x, 1, {0, 1}), x / 10));
  EXPECT_TRUE(same(normalize(x, 1, {}), x / 10));
  EXPECT_TRUE(same(normalize(x, std::numeric_limits<double>::infinity(), -1),
                   x / at::tensor({3.0, 4.0}).view({2, 1})));
}

TEST_F(Normalize, FollowsThePolicyTableAtASingularRow) {
  const Tensor g = gradient_of_ones();
  for (const auto& [policy, value, slope] :
       {std::tuple(Policy::stock, 0.0, 8.0), std::tuple(Policy::epsilon, 0.0, 8.0),
        std::tuple(Policy::nan, kNan, kNan), std::tuple(Policy::zero, 0.0, 0.0)}) {
    const Tensor x = healthy_and_zero_row();
    EXPECT_TRUE(same(normalize(x, 2, 1, 0.125, policy)[1], at::full({2}, value, at::kDouble)))
        << name(policy);
    const Tensor dx = gradient_of(x, g, policy, 0.125);
    EXPECT_TRUE(same(dx[1], at::full({2}, slope, at::kDouble))) << name(policy);
    EXPECT_TRUE(at::allclose(dx[0], at::tensor({0.128, -0.096}), 1e-14, 0)) << name(policy);
  }
}

TEST_F(Normalize, ThrowsUnderRaise) {
  const auto call = [] { normalize(healthy_and_zero_row(), 2, 1, {}, Policy::raise); };
  EXPECT_EQ(message_of<c10::ValueError>(call),
            "safeops::normalize: policy 'raise' met 1 singular row of 2 (zero_norm 1; first at row "
            "1) in a float64 tensor of shape [2, 2]; use policy 'zero', 'epsilon' or 'nan' to "
            "continue");
}

TEST_F(Normalize, NeverChangesABitOfARegularRow) {
  const Tensor x = at::randn({64, 7}, at::kFloat), g = at::randn({64, 7}, at::kFloat);
  for (const Policy policy : kAllPolicies) {
    EXPECT_TRUE(at::equal(normalize(x, 2, 1, {}, policy), normalize(x))) << name(policy);
    EXPECT_TRUE(at::equal(gradient_of(x, g, policy), gradient_of(x, g))) << name(policy);
  }
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(Normalize, GivesANegativeViewWhatItsCopyGets) {
  // A contiguous view that stores the opposite numbers: a kernel that read its memory would be
  // wrong without noticing.
  const Tensor stored = at::randn({5, 3}, at::kDouble).requires_grad_();
  const Tensor view = stored._neg_view(), g = at::randn({5, 3}, at::kDouble);
  ASSERT_TRUE(view.is_neg() && view.is_contiguous());
  const Tensor y = normalize(view);
  EXPECT_FALSE(y.is_neg());
  EXPECT_TRUE(at::equal(y, normalize(view.resolve_neg())));
  EXPECT_TRUE(at::equal(normalize(view.detach()), y));
  y.backward(g.neg()._neg_view());
  EXPECT_TRUE(at::equal(stored.grad(), gradient_of(stored.detach().neg(), g).neg()));
}

TEST_F(Normalize, GivesAConjugateViewWhatItsCopyGets) {
  const Tensor view = at::randn({5, 3}, at::kComplexDouble).conj();
  ASSERT_TRUE(view.is_conj());
  for (const double p : {2.0, 1.0, 3.0}) {
    EXPECT_TRUE(at::equal(normalize(view, p), normalize(view.resolve_conj(), p))) << p;
  }
}

std::vector<std::string> operators_called;

TEST_F(Normalize, GoesThroughTheDispatcher) {
  operators_called.clear();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        operators_called.emplace_back(function.name());
        return nullptr;
      }));
  normalize(healthy_and_zero_row());
  at::removeCallback(handle);
  EXPECT_THAT(operators_called, ::testing::Contains("safeops::normalize"));
}

TEST_F(Normalize, InfersShapesOfMetaTensorsAndCountsNothing) {
  const Tensor x = at::empty({4, 3, 2}, at::TensorOptions(at::kMeta).dtype(at::kHalf));
  const Tensor y = normalize(x.transpose(0, 2), 2, {0, 1}, {}, Policy::raise);
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 3, 4}));
  EXPECT_EQ(y.scalar_type(), at::kHalf);
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(NormalizeOut, WritesTheResultIntoOutAndReturnsIt) {
  const Tensor x = healthy_and_zero_row();
  Tensor out = at::full({2, 2}, 7.0, at::kDouble), nothing = at::empty({0}, at::kDouble);
  const void* const memory = out.data_ptr();
  EXPECT_EQ(&normalize_out(out, x, 2, 1, {}, Policy::zero), &out);
  EXPECT_EQ(out.data_ptr(), memory);
  EXPECT_TRUE(at::equal(out, normalize(x, 2, 1, {}, Policy::zero)));
  EXPECT_TRUE(at::equal(normalize_out(nothing, x, 2, 1, {}, Policy::zero), out));
}

TEST_F(NormalizeOut, WorksInPlace) {
  Tensor x = healthy_and_zero_row();
  const Tensor expected = normalize(x, 2, 1, {}, Policy::nan);
  EXPECT_TRUE(same(normalize_out(x, x, 2, 1, {}, Policy::nan), expected));
}

TEST_F(NormalizeOut, IsNotTouchedByACallThatThrows) {
  Tensor out = at::full({1}, 7.0, at::kDouble);
  EXPECT_THROW(normalize_out(out, healthy_and_zero_row(), 2, 1, {}, Policy::raise),
               c10::ValueError);
  EXPECT_TRUE(at::equal(out, at::full({1}, 7.0, at::kDouble)));
  Tensor x = healthy_and_zero_row();
  EXPECT_THROW(normalize_out(x, x, 2, 1, {}, Policy::raise), c10::ValueError);
  EXPECT_TRUE(at::equal(x, healthy_and_zero_row()));
}

TEST_F(NormalizeOut, RefusesToBeDifferentiated) {
  Tensor out = at::empty({2, 2}, at::kDouble);
  const Tensor x = healthy_and_zero_row().requires_grad_();
  EXPECT_THAT(message_of<c10::Error>([&] { normalize_out(out, x); }),
              HasSubstr("don't support automatic differentiation"));
}

TEST_F(NormalizeRefuses, AnEpsThatIsNoThreshold) {
  const Tensor x = healthy_and_zero_row();
  for (const double eps : {-1.0, kNan, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(message_of<c10::ValueError>([&] { normalize(x, 2, 1, eps); }),
                HasSubstr("safeops::normalize: eps must be finite and not negative, got "));
  }
  EXPECT_THAT(message_of<c10::ValueError>([&] { normalize(x, 2, 1, 0.0, Policy::epsilon); }),
              HasSubstr("under policy 'epsilon' for float64"));
}

TEST_F(NormalizeRefuses, AnOrderThatIsNotANumber) {
  EXPECT_EQ(message_of<c10::ValueError>([] { normalize(healthy_and_zero_row(), kNan); }),
            "safeops::normalize: p must be a number or +-inf, got NaN; use p=2 for the Euclidean "
            "norm");
}

TEST_F(NormalizeRefuses, ADimThatTheInputLacks) {
  EXPECT_EQ(message_of<c10::IndexError>([] { normalize(healthy_and_zero_row(), 2, 5); }),
            "safeops::normalize: dim must be in [-2, 1] for a 2-d input, got 5; name a dimension "
            "that the input has");
}

TEST_F(NormalizeRefuses, IntegersAndSparseTensors) {
  const auto integers = [] { normalize(at::ones({2, 2}, at::kInt)); };
  EXPECT_THAT(message_of<c10::NotImplementedError>(integers),
              HasSubstr("input must be float16, bfloat16,"));
  const auto sparse = [] { normalize(healthy_and_zero_row().to_sparse()); };
  EXPECT_THAT(message_of<c10::NotImplementedError>(sparse), HasSubstr("must be a dense tensor"));
}

/// What becomes of a row below eps tells apart the policies that do not throw.
Policy policy_in_force() {
  const double y = normalize(at::full({1, 1}, 0.0625, at::kDouble), 2, 1, 0.125).item<double>();
  return y == 0 ? Policy::zero : y != y ? Policy::nan : Policy::stock;
}

TEST_F(Guard, NestsAndRestores) {
  EXPECT_EQ(PolicyGuard::current(), std::nullopt);
  EXPECT_EQ(policy_in_force(), Policy::stock);
  {
    const PolicyGuard outer(Policy::zero);
    EXPECT_EQ(policy_in_force(), Policy::zero);
    {
      const PolicyGuard inner(Policy::nan);
      EXPECT_EQ(PolicyGuard::current(), Policy::nan);
      EXPECT_EQ(policy_in_force(), Policy::nan);
    }
    EXPECT_EQ(policy_in_force(), Policy::zero);
  }
  EXPECT_EQ(PolicyGuard::current(), std::nullopt);
  EXPECT_EQ(policy_in_force(), Policy::stock);
}

TEST_F(Guard, EndsWithAnException) {
  EXPECT_THROW(
      {
        const PolicyGuard guard(Policy::raise);
        normalize(healthy_and_zero_row());
      },
      c10::ValueError);
  EXPECT_EQ(PolicyGuard::current(), std::nullopt);
}

TEST_F(Guard, LosesToThePolicyOfACall) {
  const PolicyGuard guard(Policy::raise);
  EXPECT_NO_THROW(normalize(healthy_and_zero_row(), 2, 1, {}, Policy::zero));
}

TEST_F(Guard, IsSeenByItsThreadOnly) {
  const PolicyGuard guard(Policy::zero);
  Policy there = Policy::raise;
  std::thread([&] {
    there = policy_in_force();
    const PolicyGuard other(Policy::nan);
  }).join();
  EXPECT_EQ(there, Policy::stock);
  EXPECT_EQ(policy_in_force(), Policy::zero);
}

TEST_F(Guard, OfTheForwardCallDecidesAboutBackward) {
  const Tensor x = healthy_and_zero_row().requires_grad_();
  Tensor y;
  {
    const PolicyGuard guard(Policy::zero);
    y = normalize(x);
  }
  const PolicyGuard other(Policy::nan);
  y.backward(gradient_of_ones());
  EXPECT_TRUE(at::equal(x.grad()[1], at::zeros({2}, at::kDouble)));
}

Tensor backward_under_raise(const Tensor& g) {
  using Backward = Tensor(const Tensor&, const Tensor&, const Tensor&, double, at::IntArrayRef,
                          double, std::string_view);
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("safeops::_normalize_backward", "")
                      .typed<Backward>();
  const Tensor x = healthy_and_zero_row();
  return op.call(g, x, at::tensor({5.0, 0.0}).view({2, 1}), 2, 1, 0, "raise");
}

TEST_F(Guard, OfRaiseThrowsInBackwardOnlyForAGradientThatIsNotZero) {
  EXPECT_THAT(message_of<c10::ValueError>([] { backward_under_raise(gradient_of_ones()); }),
              HasSubstr("safeops::normalize (backward): policy 'raise' met 1 singular row of 2"));
  Tensor masked = gradient_of_ones();
  masked[1].zero_();
  EXPECT_TRUE(at::equal(backward_under_raise(masked)[1], at::zeros({2}, at::kDouble)));
}

TEST_F(Counters, NameOperatorConditionDirectionAndFirstRow) {
  const Tensor x = at::tensor({3.0, 0.01, 0.0, 0.0}).view({4, 1}).requires_grad_();
  normalize(x, 2, 1, 0.125, Policy::zero).sum().backward();
  std::vector<std::string> lines;
  for (const diagnostics::Record& record : diagnostics::snapshot()) {
    lines.push_back(std::string(name(record.op)) + ' ' + std::string(name(record.condition)) + ' ' +
                    std::string(name(record.direction)) + ' ' + std::string(name(record.device)) +
                    ' ' + std::to_string(record.count) + " from row " +
                    std::to_string(record.first_row));
  }
  EXPECT_THAT(lines,
              ::testing::UnorderedElementsAre("normalize zero_norm forward cpu 2 from row 2",
                                              "normalize zero_norm backward cpu 2 from row 2",
                                              "normalize below_eps forward cpu 1 from row 1",
                                              "normalize below_eps backward cpu 1 from row 1"));
}

TEST_F(Counters, StandStillAtLevelZero) {
  ASSERT_TRUE(diagnostics::set_level(0));
  normalize(healthy_and_zero_row());
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(Counters, AreZeroAfterAReset) {
  normalize(healthy_and_zero_row());
  EXPECT_FALSE(diagnostics::snapshot().empty());
  diagnostics::reset();
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

}  // namespace
}  // namespace safeops
