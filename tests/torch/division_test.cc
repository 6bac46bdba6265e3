// The C++ interface of div, reciprocal, rsqrt, sqrt and log, as a program that links safeops::torch
// sees them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "torch/interface.h"

namespace safeops {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEps = 0.25;

using Function = std::function<Tensor(const Tensor&, std::optional<double>, std::optional<Policy>)>;

struct Unary {
  const char* name;
  Function call;
};
const std::vector<Unary>& unary_operators() {
  static const std::vector<Unary> operators = {
      {"reciprocal",
       [](const Tensor& x, auto eps, auto policy) { return safeops::reciprocal(x, eps, policy); }},
      {"rsqrt",
       [](const Tensor& x, auto eps, auto policy) { return safeops::rsqrt(x, eps, policy); }},
      {"sqrt",
       [](const Tensor& x, auto eps, auto policy) { return safeops::sqrt(x, eps, policy); }},
      {"log", [](const Tensor& x, auto eps, auto policy) { return safeops::log(x, eps, policy); }},
  };
  return operators;
}

/// The gradient of call(x) for an incoming gradient of 2.
Tensor slope_of(const Function& call, const Tensor& x, std::optional<double> eps = {},
                std::optional<Policy> policy = {}) {
  const Tensor leaf = x.detach().clone().requires_grad_();
  const Tensor y = call(leaf, eps, policy);
  y.backward(at::full_like(y, 2));
  return leaf.grad();
}

struct Gradients {
  Tensor a, b;
};
Gradients gradients_of_div(const Tensor& a, const Tensor& b, std::optional<double> eps = {},
                           std::optional<Policy> policy = {}) {
  const Tensor dividend = a.detach().clone().requires_grad_();
  const Tensor divisor = b.detach().clone().requires_grad_();
  const Tensor y = safeops::div(dividend, divisor, {}, eps, policy);
  y.backward(at::full_like(y, 2));
  return {dividend.grad(), divisor.grad()};
}

/// A healthy divisor, one below kEps, zeros of both signs.
Tensor dividends() { return at::tensor({6.0, 1.0, 1.0, 3.0}); }
Tensor divisors() { return at::tensor({3.0, -0.125, 0.0, -0.0}); }

using Div = Interface;
using Roots = Interface;
using Division = Interface;
using DivisionCounters = Interface;

TEST_F(Div, DividesTensorsAndNumbersThatBroadcast) {
  const Tensor a = at::tensor({6.0, 9.0}).view({2, 1}), b = at::tensor({2.0, 3.0});
  EXPECT_TRUE(same(safeops::div(a, b), at::tensor({3.0, 2.0, 4.5, 3.0}).view({2, 2})));
  EXPECT_TRUE(same(safeops::div(a, 2), a / 2));
  EXPECT_TRUE(same(safeops::divide(a, b), safeops::div(a, b)));
  EXPECT_TRUE(same(safeops::true_divide(a, 2), a / 2));
  EXPECT_EQ(safeops::div(at::ones({2}, at::kInt), 2).scalar_type(), at::kFloat);
}

TEST_F(Div, RoundsQuotientsWhereItIsAsked) {
  const Tensor a = at::tensor({7.0, -7.0});
  EXPECT_TRUE(same(safeops::div(a, 2, "trunc"), at::tensor({3.0, -3.0})));
  EXPECT_TRUE(same(safeops::div(a, 2, "floor"), at::tensor({3.0, -4.0})));
  EXPECT_TRUE(
      same(safeops::divide(a.to(at::kLong), 2, "floor"), at::tensor({3, -4}).to(at::kLong)));
}

TEST_F(Div, DerivesWithRespectToBothOperands) {
  const auto [da, db] = gradients_of_div(at::tensor({6.0}), at::tensor({3.0, 2.0}));
  EXPECT_TRUE(same(da, at::tensor({2.0 / 3 + 1}), 1e-15));           // sum of g / b
  EXPECT_TRUE(same(db, at::tensor({-12.0 / 9, -12.0 / 4}), 1e-15));  // -g a / b^2
}

TEST_F(Div, FollowsThePolicyTableAtSingularElements) {
  const Tensor a = dividends(), b = divisors();
  struct Line {
    Policy policy;
    Tensor value, da, db;
  };
  const Tensor nan = at::tensor({kNan, kNan, kNan}), zero = at::tensor({0.0, 0.0, 0.0});
  for (const Line& line :
       {Line{Policy::stock, at::tensor({-8.0, kInfinity, -kInfinity}),
             at::tensor({-16.0, kInfinity, -kInfinity}),
             at::tensor({-128.0, -kInfinity, -kInfinity})},
        Line{Policy::nan, nan, nan, nan},
        Line{Policy::epsilon, at::tensor({-4.0, 4.0, -12.0}), at::tensor({-8.0, 8.0, -8.0}), zero},
        Line{Policy::zero, zero, zero, zero}}) {
    const auto singular = [](const Tensor& t) { return t.slice(0, 1); };
    EXPECT_TRUE(same(singular(safeops::div(a, b, {}, kEps, line.policy)), line.value))
        << name(line.policy);
    const auto [da, db] = gradients_of_div(a, b, kEps, line.policy);
    EXPECT_TRUE(same(singular(da), line.da)) << name(line.policy) << da;
    EXPECT_TRUE(same(singular(db), line.db)) << name(line.policy) << db;
    EXPECT_EQ(da[0].item<double>(), 2.0 / 3) << name(line.policy);
  }
}

TEST_F(Div, OfNanIsNanUnderEveryPolicyAndNoHit) {
  const Tensor a = at::tensor({kNan}), b = at::tensor({0.0});
  for (const Policy policy : kAllPolicies) {
    EXPECT_TRUE(std::isnan(safeops::div(a, b, {}, {}, policy).item<double>())) << name(policy);
  }
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(Div, TakesANumberAsTheTensorThatHoldsIt) {
  const Tensor a = at::randn({5}, at::kHalf);
  for (const at::Scalar& number : {at::Scalar(3), at::Scalar(0.1), at::Scalar(true)}) {
    EXPECT_TRUE(same(safeops::div(a, number), a / number));
    EXPECT_TRUE(same(safeops::div(a, number, "trunc"), at::div(a, number, "trunc")));
  }
  EXPECT_EQ(safeops::div(a.to(at::kFloat), c10::complex<double>(0, 1)).scalar_type(),
            at::kComplexFloat);
  const Tensor leaf = at::tensor({1.0, 2.0}).requires_grad_();
  safeops::div(leaf, 0, {}, 0.5, Policy::epsilon).sum().backward();
  EXPECT_TRUE(same(leaf.grad(), at::tensor({2.0, 2.0})));
}

TEST_F(Div, DividesIntegersByZeroAsThePolicySays) {
  const Tensor a = at::tensor({7, 7}).to(at::kInt), b = at::tensor({0, 2}).to(at::kInt);
  const auto under = [&](Policy policy) { return safeops::div(a, b, "floor", {}, policy); };
  EXPECT_TRUE(same(under(Policy::zero), at::tensor({0, 3}).to(at::kInt)));
  for (const Policy policy : {Policy::stock, Policy::nan}) {
    EXPECT_THAT(message_of<c10::Error>([&] { under(policy); }), HasSubstr("ZeroDivisionError"));
  }
  EXPECT_EQ(
      message_of<c10::ValueError>([&] { under(Policy::raise); }),
      "safeops::div: policy 'raise' met 1 singular element of 2 (zero_denominator 1; first at "
      "element 0) in a int32 tensor of shape [2]; use policy 'zero' to continue");
  EXPECT_THAT(
      message_of<c10::ValueError>([&] { under(Policy::epsilon); }),
      HasSubstr("policy 'epsilon' cannot raise an integer divisor of 0 to eps, got 1 of 2"));
  EXPECT_EQ(diagnostics::snapshot().front().count, 5);
  EXPECT_TRUE(
      same(safeops::div(a, 2, "floor", {}, Policy::epsilon), at::tensor({3, 3}).to(at::kInt)));
}

TEST_F(Div, OfComplexNumbersIsSingularAtZeroAlone) {
  const auto complex = [](double re, double im) {
    return at::view_as_complex(at::tensor({re, im})).clone();
  };
  const Tensor one = complex(1, 0);
  EXPECT_TRUE(same(safeops::div(one, complex(0, 4)), complex(0, -0.25)));
  EXPECT_TRUE(same(safeops::div(one, complex(1e-200, 0)), complex(1e200, 0)));
  EXPECT_TRUE(same(safeops::div(one, complex(0, 0), {}, {}, Policy::zero), complex(0, 0)));
  EXPECT_TRUE(same(safeops::div(one, complex(0, 0), {}, 0.5, Policy::epsilon), complex(2, 0)));
  EXPECT_TRUE(same(safeops::div(one, complex(0, 0.25), {}, 0.5, Policy::epsilon), complex(0, -2)));
}

TEST_F(Roots, HaveTheirValuesAndSlopes) {
  const Tensor x = at::tensor({4.0, 0.25});
  EXPECT_TRUE(same(safeops::reciprocal(x), at::tensor({0.25, 4.0})));
  EXPECT_TRUE(same(safeops::rsqrt(x), at::tensor({0.5, 2.0})));
  EXPECT_TRUE(same(safeops::sqrt(x), at::tensor({2.0, 0.5})));
  EXPECT_TRUE(same(safeops::log(x), at::tensor({std::log(4.0), std::log(0.25)}), 1e-15));
  const Tensor slopes[] = {at::tensor({-0.125, -32.0}), at::tensor({-0.125, -8.0}),
                           at::tensor({0.5, 2.0}), at::tensor({0.5, 8.0})};
  for (std::size_t i = 0; i < unary_operators().size(); ++i) {
    EXPECT_TRUE(same(slope_of(unary_operators()[i].call, x), slopes[i], 1e-15))
        << unary_operators()[i].name;
  }
}

TEST_F(Roots, FollowThePolicyTableAtSingularElements) {
  // Below kEps, zero, negative.
  const Tensor x = at::tensor({0.0625, 0.0, -1.0}), zero = at::tensor({0.0, 0.0, 0.0});
  const auto everywhere = [](double value) { return at::full({3}, value, at::kDouble); };
  const double floors[] = {0, 2, 0.5, std::log(kEps)};
  for (std::size_t i = 1; i < unary_operators().size(); ++i) {
    const auto& [op, call] = unary_operators()[i];
    EXPECT_TRUE(same(call(x, kEps, Policy::epsilon), everywhere(floors[i]), 1e-15)) << op;
    EXPECT_TRUE(same(call(x, kEps, Policy::zero), zero)) << op;
    EXPECT_TRUE(same(slope_of(call, x, kEps, Policy::epsilon), zero)) << op;
    EXPECT_TRUE(same(slope_of(call, x, kEps, Policy::zero), zero)) << op;
    EXPECT_TRUE(same(slope_of(call, x, kEps, Policy::nan), everywhere(kNan))) << op;
    const bool root = std::string_view(op) == "sqrt";
    EXPECT_TRUE(same(call(x, kEps, Policy::nan), at::tensor({kNan, root ? 0 : kNan, kNan}))) << op;
  }
  EXPECT_TRUE(same(safeops::rsqrt(x, kEps), at::tensor({4.0, kInfinity, kNan})));
  EXPECT_TRUE(same(safeops::sqrt(x, kEps), at::tensor({0.25, 0.0, kNan})));
  EXPECT_TRUE(same(safeops::log(x, kEps), at::tensor({std::log(0.0625), -kInfinity, kNan}), 1e-15));
}

TEST_F(Roots, OfZeroRaisesInBackwardAlone) {
  const Tensor x = at::tensor({0.0}).requires_grad_();
  const Tensor y = safeops::sqrt(x, {}, Policy::raise);
  EXPECT_EQ(y.item<double>(), 0);
  EXPECT_EQ(
      message_of<c10::ValueError>([&] { y.backward(at::ones({1}, at::kDouble), true); }),
      "safeops::sqrt (backward): policy 'raise' met 1 singular element of 1 (zero_argument 1; "
      "first at element 0) in a float64 tensor of shape [1]; use policy 'zero', 'epsilon' or "
      "'nan' to continue");
  y.backward(at::zeros({1}, at::kDouble));
  EXPECT_EQ(x.grad().item<double>(), 0);
}

TEST_F(Roots, LeaveTheirResultsFreeAndKeepTheirInputs) {
  const Tensor x = at::tensor({4.0}).requires_grad_();
  Tensor y = safeops::sqrt(x);
  y.mul_(3);
  y.backward();
  EXPECT_TRUE(same(x.grad(), at::tensor({0.75})));
}

TEST_F(Division, NeverChangesABitOfARegularElement) {
  const Tensor x = at::rand({64, 7}, at::kFloat) + 0.5, a = at::randn({64, 7}, at::kFloat);
  for (const Policy policy : kAllPolicies) {
    EXPECT_TRUE(at::equal(safeops::div(a, x, {}, {}, policy), safeops::div(a, x))) << name(policy);
    EXPECT_TRUE(at::equal(gradients_of_div(a, x, {}, policy).b, gradients_of_div(a, x).b));
    for (const auto& [op, call] : unary_operators()) {
      EXPECT_TRUE(at::equal(call(x, {}, policy), call(x, {}, {}))) << op << name(policy);
      EXPECT_TRUE(at::equal(slope_of(call, x, {}, policy), slope_of(call, x)))
          << op << name(policy);
    }
  }
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(Division, GivesLazyViewsWhatTheirCopiesGet) {
  const Tensor negative = (-at::rand({5, 3}, at::kDouble) - 0.5)._neg_view();
  const Tensor conjugate = at::randn({5, 3}, at::kComplexDouble).conj();
  ASSERT_TRUE(negative.is_neg() && conjugate.is_conj());
  for (const Tensor& view : {negative, conjugate}) {
    const Tensor copy = view.resolve_neg().resolve_conj();
    EXPECT_TRUE(at::equal(safeops::div(view, view.flip(0)), safeops::div(copy, copy.flip(0))));
    for (const auto& [op, call] : unary_operators()) {
      EXPECT_TRUE(at::equal(call(view, {}, {}), call(copy, {}, {}))) << op;
    }
  }
}

TEST_F(Division, KeepsTheMemoryFormatThatTorchGives) {
  const Tensor image = (at::rand({2, 3, 4, 5}) + 0.5).contiguous(at::MemoryFormat::ChannelsLast);
  const Tensor turned = (at::rand({4, 3, 2}) + 0.5).transpose(0, 2), row = at::rand({5}) + 0.5;
  for (const Tensor& x : {image, turned, image.slice(3, 0, 5, 2), row.expand({3, 5})}) {
    const Tensor y = safeops::div(x, x.select(0, 0)), stock = x / x.select(0, 0);
    EXPECT_TRUE(same(y, stock)) << x.strides();
    EXPECT_EQ(y.strides(), stock.strides()) << x.strides();
    EXPECT_TRUE(same(safeops::sqrt(x), at::sqrt(x), 1e-6)) << x.strides();
    EXPECT_EQ(safeops::sqrt(x).strides(), at::sqrt(x).strides()) << x.strides();
  }
}

TEST_F(Division, InfersMetaTensorsAndCountsNothing) {
  const Tensor x = at::empty({4, 3, 2}, at::TensorOptions(at::kMeta).dtype(at::kInt));
  const Tensor y =
      safeops::div(x.transpose(0, 2), x[0][0].unsqueeze(1).unsqueeze(1), {}, {}, Policy::raise);
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 3, 4}));
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_EQ(safeops::div(x, 2, "floor").scalar_type(), at::kInt);
  for (const auto& [op, call] : unary_operators()) {
    EXPECT_EQ(call(x, {}, {}).scalar_type(), at::kFloat) << op;
  }
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(Division, ObeysTheGuardOfTheThread) {
  const PolicyGuard guard(Policy::zero);
  const Tensor x = at::tensor({-1.0});
  EXPECT_EQ(safeops::div(x, 0).item<double>(), 0);
  for (const auto& [op, call] : unary_operators()) {
    EXPECT_EQ(call(x * 0 - (std::string_view(op) == "reciprocal" ? 0 : 1), {}, {}).item<double>(),
              0)
        << op;
  }
}

std::vector<std::string> counted() {
  std::vector<std::string> lines;
  for (const diagnostics::Record& record : diagnostics::snapshot()) {
    lines.push_back(std::string(name(record.op)) + ' ' + std::string(name(record.condition)) + ' ' +
                    std::string(name(record.direction)) + ' ' + std::to_string(record.count) +
                    " from " + std::to_string(record.first_row));
  }
  return lines;
}

TEST_F(DivisionCounters, NameConditionAndDirection) {
  gradients_of_div(dividends(), divisors(), kEps, Policy::zero);
  EXPECT_THAT(counted(), ::testing::UnorderedElementsAre("div zero_denominator forward 2 from 2",
                                                         "div zero_denominator backward 2 from 2",
                                                         "div below_eps forward 1 from 1",
                                                         "div below_eps backward 1 from 1"));
  diagnostics::reset();
  slope_of(unary_operators()[2].call, at::tensor({1.0, 0.0, -1.0}));
  EXPECT_THAT(counted(),
              ::testing::UnorderedElementsAre("sqrt negative_argument forward 1 from 2",
                                              "sqrt zero_argument backward 1 from 1",
                                              "sqrt negative_argument backward 1 from 2"));
}

TEST_F(DivisionCounters, NumberElementsInRowMajorOrderWhateverTheirPlace) {
  const Tensor x = at::ones({2, 3, 4, 5});
  x[1][2][0][3] = 0;
  const std::string hit = "rsqrt zero_argument forward 1 from " + std::to_string(60 + 40 + 3);
  for (const Tensor& laid_out : {x, x.contiguous(at::MemoryFormat::ChannelsLast),
                                 x.permute({3, 1, 0, 2}).contiguous().permute({2, 1, 3, 0}),
                                 at::stack({x, x}, -1).select(-1, 1)}) {
    diagnostics::reset();
    safeops::rsqrt(laid_out);
    EXPECT_THAT(counted(), ::testing::ElementsAre(hit)) << laid_out.strides();
  }
}

TEST_F(DivisionCounters, NumberTheElementsOfTheBroadcastResult) {
  const Tensor b = at::tensor({1.0, 0.0, 1.0});
  safeops::div(at::ones({2, 1}, at::kDouble), b);
  EXPECT_THAT(counted(), ::testing::ElementsAre("div zero_denominator forward 2 from 1"));
  diagnostics::reset();
  // Its elements lie in no order from which numbers could be read.
  Tensor out = at::empty({8}, at::kDouble).as_strided({2, 3}, {3, 2});
  safeops::div_out(out, at::ones({2, 1}, at::kDouble), b);
  EXPECT_THAT(counted(), ::testing::ElementsAre("div zero_denominator forward 2 from 1"));
  EXPECT_TRUE(same(out, at::tensor({1.0, kInfinity, 1.0}).expand({2, 3})));
}

}  // namespace
}  // namespace safeops
