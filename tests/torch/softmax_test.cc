// The C++ interface of softmax, log_softmax and logsumexp, as a program that links safeops::torch
// sees them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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

Tensor row(double a, double b) { return at::tensor({a, b}); }

/// A regular row and one that is empty.
Tensor regular_and_empty() {
  return at::tensor({std::log(1.0), std::log(3.0), -kInfinity, -kInfinity}).view({2, 2});
}

/// The first element takes no part, in either row.
Tensor second_only() { return at::tensor({0, 1}).to(at::kBool); }

enum class Kind { softmax, log_softmax, logsumexp };

Tensor call(Kind kind, const Tensor& x, std::optional<Policy> policy = {},
            const std::optional<Tensor>& where = {}) {
  switch (kind) {
    case Kind::softmax:
      return safeops::softmax(x, 1, {}, where, {}, policy);
    case Kind::log_softmax:
      return safeops::log_softmax(x, 1, {}, where, {}, policy);
    case Kind::logsumexp:
      break;
  }
  return safeops::logsumexp(x, 1, false, where, policy);
}

Tensor gradient_of(Kind kind, const Tensor& x, const Tensor& g, std::optional<Policy> policy = {},
                   const std::optional<Tensor>& where = {}) {
  const Tensor leaf = x.detach().clone().requires_grad_();
  call(kind, leaf, policy, where).backward(g);
  return leaf.grad();
}

using Softmax = Interface;
using LogSoftmax = Interface;
using LogSumExp = Interface;
using SoftmaxFamily = Interface;
using SoftmaxMask = Interface;
using SoftmaxCounters = Interface;

TEST_F(Softmax, SharesOneOutByTheExponentials) {
  EXPECT_TRUE(same(safeops::softmax(regular_and_empty()[0], 0), row(0.25, 0.75), 1e-15));
  // y (g - <y, g>) with y = (1/4, 3/4), g = (1, 0)
  EXPECT_TRUE(
      same(gradient_of(Kind::softmax, regular_and_empty().narrow(0, 0, 1), row(1, 0).view({1, 2})),
           row(0.1875, -0.1875).view({1, 2}), 1e-15));
}

TEST_F(LogSoftmax, IsTheLogarithmOfTheShares) {
  EXPECT_TRUE(same(safeops::log_softmax(regular_and_empty()[0], -1),
                   row(std::log(0.25), std::log(0.75)), 1e-15));
  // g - e^y sum g with e^y = (1/4, 3/4), g = (1, 0)
  EXPECT_TRUE(same(
      gradient_of(Kind::log_softmax, regular_and_empty().narrow(0, 0, 1), row(1, 0).view({1, 2})),
      row(0.75, -0.75).view({1, 2}), 1e-15));
}

TEST_F(LogSumExp, IsTheLogarithmOfTheSum) {
  const Tensor x = at::tensor({1.0, 3.0, 5.0, 7.0}).log().view({2, 2});
  EXPECT_TRUE(same(safeops::logsumexp(x, 1), row(4, 12).log(), 1e-15));
  EXPECT_TRUE(same(safeops::logsumexp(x, 0, true), row(6, 10).log().view({1, 2}), 1e-15));
  EXPECT_TRUE(
      same(safeops::logsumexp(x, {0, 1}), at::scalar_tensor(16.0, at::kDouble).log(), 1e-15));
  EXPECT_TRUE(
      same(safeops::logsumexp(x, {}, true), at::full({1, 1}, 16.0, at::kDouble).log(), 1e-15));
  // g e^(x - l)
  EXPECT_TRUE(same(gradient_of(Kind::logsumexp, x, row(2, 0)),
                   at::tensor({0.5, 1.5, 0.0, 0.0}).view({2, 2}), 1e-15));
}

TEST_F(LogSumExp, OfNothingIsMinusInfinityAndNoHit) {
  EXPECT_TRUE(
      same(safeops::logsumexp(at::empty({2, 0}), 1), at::full({2}, -kInfinity, at::kFloat)));
  EXPECT_NO_THROW(safeops::logsumexp(at::empty({2, 0}), 1, false, {}, Policy::raise));
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(LogSumExp, PromotesIntegersAndLeavesComplexTensorsToTorch) {
  const Tensor ones = at::ones({1, 4}, at::kLong);
  EXPECT_TRUE(same(safeops::logsumexp(ones, 1), at::logsumexp(ones.to(at::kFloat), 1), 1e-6));
  const Tensor z = at::randn({3, 4}, at::kComplexDouble);
  EXPECT_TRUE(same(safeops::logsumexp(z, 1), at::logsumexp(z, 1)));
  const Tensor mask = at::tensor({1, 1, 0, 1}).to(at::kBool);
  EXPECT_TRUE(same(safeops::logsumexp(z, 1, false, mask),
                   at::logsumexp(z.index_select(1, at::tensor({0, 1, 3}, at::kLong)), 1), 1e-14));
}

TEST_F(SoftmaxFamily, FollowsThePolicyTableAtAnEmptyRow) {
  const double floor = std::log(1e-12);
  struct Line {
    Policy policy;
    double softmax, log_softmax, slope;
  };
  const Tensor g = at::tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2}), g_rows = row(1, 2);
  for (const Line& line :
       {Line{Policy::stock, kNan, kNan, kNan}, Line{Policy::nan, kNan, kNan, kNan},
        Line{Policy::epsilon, 0, floor, 0}, Line{Policy::zero, 0, -kInfinity, 0}}) {
    const Tensor x = regular_and_empty();
    const auto whole = [](double value) { return at::full({2}, value, at::kDouble); };
    EXPECT_TRUE(same(call(Kind::softmax, x, line.policy)[1], whole(line.softmax)))
        << name(line.policy);
    EXPECT_TRUE(same(call(Kind::log_softmax, x, line.policy)[1], whole(line.log_softmax), 1e-15))
        << name(line.policy);
    EXPECT_EQ(call(Kind::logsumexp, x, line.policy)[1].item<double>(), -kInfinity)
        << name(line.policy);
    for (const Kind kind : {Kind::softmax, Kind::log_softmax, Kind::logsumexp}) {
      const Tensor dx = gradient_of(kind, x, kind == Kind::logsumexp ? g_rows : g, line.policy);
      EXPECT_TRUE(same(dx[1], whole(line.slope))) << name(line.policy);
    }
  }
}

TEST_F(SoftmaxFamily, ThrowsUnderRaise) {
  for (const auto& [kind, op] :
       {std::pair(Kind::softmax, "softmax"), std::pair(Kind::log_softmax, "log_softmax"),
        std::pair(Kind::logsumexp, "logsumexp")}) {
    const auto raising = [&] { call(kind, regular_and_empty(), Policy::raise); };
    EXPECT_EQ(message_of<c10::ValueError>(raising),
              std::string("safeops::") + op +
                  ": policy 'raise' met 1 singular row of 2 (empty_row 1; first at row 1) in a "
                  "float64 tensor of shape [2, 2]; use policy 'zero', 'epsilon' or 'nan' to "
                  "continue");
  }
}

TEST_F(SoftmaxFamily, NeverChangesABitOfARegularRow) {
  const Tensor x = at::randn({64, 7}, at::kFloat), g = at::randn({64, 7}, at::kFloat);
  for (const Kind kind : {Kind::softmax, Kind::log_softmax, Kind::logsumexp}) {
    const Tensor grad = kind == Kind::logsumexp ? g.select(1, 0) : g;
    for (const Policy policy : kAllPolicies) {
      EXPECT_TRUE(at::equal(call(kind, x, policy), call(kind, x))) << name(policy);
      EXPECT_TRUE(at::equal(gradient_of(kind, x, grad, policy), gradient_of(kind, x, grad)))
          << name(policy);
    }
  }
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(SoftmaxFamily, GivesANegativeViewWhatItsCopyGets) {
  const Tensor stored = at::randn({5, 3}, at::kDouble).requires_grad_();
  const Tensor view = stored._neg_view();
  ASSERT_TRUE(view.is_neg() && view.is_contiguous());
  for (const Kind kind : {Kind::softmax, Kind::log_softmax, Kind::logsumexp}) {
    const Tensor y = call(kind, view);
    EXPECT_FALSE(y.is_neg());
    EXPECT_TRUE(at::equal(y, call(kind, view.resolve_neg())));
    EXPECT_TRUE(at::equal(call(kind, view.detach()), y));
  }
}

// What lies in memory in some other way than the result gives the bits of its contiguous copy, or,
// where rows are added in another order, values within a few ulp.
TEST_F(SoftmaxFamily, GivesEveryLayoutTheValuesOfItsCopy) {
  const Tensor block = at::randn({3, 9, 5}, at::kDouble);
  for (const Tensor& x :
       {block.transpose(0, 2), block.transpose(1, 2), block.slice(2, 0, 5, 2),
        block.select(2, 1).unsqueeze(2), block.slice(1, 0, 1).expand({3, 9, 5})}) {
    for (const int dim : {0, 1, 2}) {
      const Tensor copy = x.contiguous();
      EXPECT_TRUE(same(safeops::softmax(x, dim), at::softmax(copy, dim), 1e-14))
          << x.strides() << dim;
      EXPECT_TRUE(safeops::softmax(x, dim).is_contiguous()) << x.strides() << dim;
      EXPECT_TRUE(same(safeops::logsumexp(x, dim), at::logsumexp(copy, dim), 1e-14))
          << x.strides() << dim;
      EXPECT_TRUE(same(safeops::logsumexp(x, {0, dim == 0 ? 1 : dim}),
                       at::logsumexp(copy, {0, dim == 0 ? 1 : dim}), 1e-14))
          << x.strides() << dim;
    }
  }
}

TEST_F(SoftmaxFamily, WalksNeighbouringRowsThatFormNoTileThroughACopy) {
  // Longer than a tile; and fewer neighbours than fill one.
  for (const Tensor& x : {at::randn({65537, 6}), at::randn({4, 300, 3})}) {
    const int dim = x.dim() == 2 ? 0 : 1;
    EXPECT_TRUE(
        same(safeops::softmax(x, dim), at::softmax(x.to(at::kDouble), dim).to(at::kFloat), 1e-6));
    EXPECT_TRUE(same(safeops::logsumexp(x, dim),
                     at::logsumexp(x.to(at::kDouble), dim).to(at::kFloat), 1e-6));
  }
}

TEST_F(SoftmaxFamily, InfersShapesOfMetaTensorsAndCountsNothing) {
  const Tensor x = at::empty({4, 3, 2}, at::TensorOptions(at::kMeta).dtype(at::kHalf));
  const Tensor y = safeops::softmax(x.transpose(0, 2), 0, at::kFloat, {}, {}, Policy::raise);
  EXPECT_TRUE(y.is_meta() && y.is_contiguous());
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 3, 4}));
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_EQ(safeops::log_softmax(x, 1).scalar_type(), at::kHalf);
  EXPECT_EQ(safeops::logsumexp(x, {0, 2}).sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(safeops::logsumexp(x, {0, 2}, true).sizes(), at::IntArrayRef({1, 3, 1}));
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(SoftmaxMask, KeepsElementsOutOfValueAndGradient) {
  const Tensor x = at::tensor({kNan, 1.0, 2.0}).view({1, 3});
  const Tensor mask = at::tensor({0, 1, 1}).to(at::kBool);
  const Tensor g = at::tensor({kNan, 1.0, 0.0}).view({1, 3});
  const auto rest = [](const Tensor& t) { return t.slice(1, 1); };
  for (const Kind kind : {Kind::softmax, Kind::log_softmax}) {
    const Tensor y = call(kind, x, {}, mask), dx = gradient_of(kind, x, g, {}, mask);
    EXPECT_EQ(y[0][0].item<double>(), kind == Kind::softmax ? 0 : -kInfinity);
    EXPECT_EQ(dx[0][0].item<double>(), 0);
    EXPECT_TRUE(same(rest(y), call(kind, rest(x)), 1e-15));
    EXPECT_TRUE(same(rest(dx), gradient_of(kind, rest(x), rest(g)), 1e-15));
  }
  EXPECT_TRUE(same(safeops::logsumexp(x, 1, false, mask), safeops::logsumexp(rest(x), 1), 1e-15));
  const Tensor dx = gradient_of(Kind::logsumexp, x, at::ones({1}, at::kDouble), {}, mask);
  EXPECT_EQ(dx[0][0].item<double>(), 0);
}

TEST_F(SoftmaxMask, MayLieAnyhowInMemory) {
  const Tensor x = at::randn({2, 3, 4, 5}, at::kDouble);
  const Tensor lead = at::randn({2, 1, 1, 5}, at::kDouble) > -0.5;
  const Tensor turned = (at::randn({5, 4, 3, 2}, at::kDouble) > -0.5).permute({3, 2, 1, 0});
  for (const Tensor& mask : {lead, turned, lead.select(0, 0).select(0, 0).select(0, 0)}) {
    const Tensor masked = x.masked_fill(mask.logical_not(), -kInfinity);
    for (const int dim : {0, 1, 2, 3}) {
      EXPECT_TRUE(same(safeops::softmax(x, dim, {}, mask, {}, Policy::zero),
                       at::softmax(masked, dim).nan_to_num(0), 1e-14))
          << mask.strides() << dim;
    }
    EXPECT_TRUE(
        same(safeops::logsumexp(x, {1, 3}, false, mask), at::logsumexp(masked, {1, 3}), 1e-14))
        << mask.strides();
  }
}

TEST_F(SoftmaxMask, ThatLeavesNothingMakesTheRowEmpty) {
  const Tensor x = regular_and_empty(), none = at::zeros({2, 2}, at::kBool);
  EXPECT_TRUE(same(safeops::softmax(x, 1, {}, none), at::full({2, 2}, kNan, at::kDouble)));
  EXPECT_TRUE(same(gradient_of(Kind::softmax, x, at::ones_like(x), {}, none), at::zeros_like(x)));
  // epsilon floors only what takes part.
  const Tensor y = safeops::log_softmax(x, 1, {}, second_only(), 0.125, Policy::epsilon);
  EXPECT_TRUE(same(y[1], row(-kInfinity, std::log(0.125)), 1e-15));
}

std::vector<std::string> counted() {
  std::vector<std::string> lines;
  for (const diagnostics::Record& record : diagnostics::snapshot()) {
    lines.push_back(std::string(name(record.op)) + ' ' + std::string(name(record.condition)) + ' ' +
                    std::string(name(record.direction)) + ' ' + std::to_string(record.count) +
                    " from row " + std::to_string(record.first_row));
  }
  return lines;
}

TEST_F(SoftmaxCounters, NameTheOperatorInBothDirections) {
  for (const Kind kind : {Kind::softmax, Kind::log_softmax, Kind::logsumexp}) {
    const Tensor g = kind == Kind::logsumexp ? row(1, 1) : at::ones({2, 2}, at::kDouble);
    gradient_of(kind, regular_and_empty(), g, Policy::zero);
  }
  EXPECT_THAT(counted(),
              ::testing::UnorderedElementsAre("softmax empty_row forward 1 from row 1",
                                              "softmax empty_row backward 1 from row 1",
                                              "log_softmax empty_row forward 1 from row 1",
                                              "log_softmax empty_row backward 1 from row 1",
                                              "logsumexp empty_row forward 1 from row 1",
                                              "logsumexp empty_row backward 1 from row 1"));
}

TEST_F(SoftmaxCounters, NoticeRowsThatAreNotFiniteOrHoldTheLowestNumber) {
  const double lowest = std::numeric_limits<double>::lowest();
  safeops::softmax(at::tensor({kNan, 0.0, kInfinity, 0.0, lowest, lowest}).view({3, 2}), 1);
  EXPECT_THAT(counted(),
              ::testing::UnorderedElementsAre("softmax nonfinite_input forward 2 from row 0",
                                              "softmax finite_min_row forward 1 from row 2"));
}

Tensor backward_under_raise(const Tensor& g) {
  using Backward = Tensor(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&,
                          std::int64_t, at::ScalarType, std::string_view);
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("safeops::_softmax_backward", "")
                      .typed<Backward>();
  return op.call(g, at::tensor({0.25, 0.75, kNan, kNan}).view({2, 2}),
                 at::tensor({0.0, -kInfinity}).view({2, 1}), std::nullopt, 1, at::kDouble, "raise");
}

TEST_F(SoftmaxFamily, ThrowsInBackwardUnderRaiseOnlyForAGradientThatIsNotZero) {
  const Tensor g = at::ones({2, 2}, at::kDouble);
  EXPECT_THAT(message_of<c10::ValueError>([&] { backward_under_raise(g); }),
              HasSubstr("safeops::softmax (backward): policy 'raise' met 1 singular row of 2"));
  g[1].zero_();
  EXPECT_TRUE(at::equal(backward_under_raise(g)[1], at::zeros({2}, at::kDouble)));
}

}  // namespace
}  // namespace safeops
