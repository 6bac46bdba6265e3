// Arguments of the C++ interface of softmax, log_softmax and logsumexp: dtypes, out and refusals.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "torch/interface.h"

namespace safeops {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A regular row and one that is empty.
Tensor regular_and_empty() { return at::tensor({1.0, 2.0, -kInfinity, -kInfinity}).view({2, 2}); }

using SoftmaxDtype = Interface;
using SoftmaxOut = Interface;
using SoftmaxRefuses = Interface;

TEST_F(SoftmaxDtype, ConvertsHalvesOnLoadAndReturnsTheGradientInTheDtypeOfTheInput) {
  const Tensor x = at::randn({4, 6}).to(at::kHalf);
  const Tensor leaf = x.clone().requires_grad_();
  const Tensor y = safeops::softmax(leaf, 1, at::kFloat);
  EXPECT_TRUE(same(y, safeops::softmax(x.to(at::kFloat), 1)));
  y.backward(at::randn({4, 6}));
  EXPECT_EQ(leaf.grad().scalar_type(), at::kHalf);
  EXPECT_TRUE(same(safeops::log_softmax(at::ones({1, 2}, at::kInt), 1, at::kDouble),
                   at::full({1, 2}, std::log(0.5), at::kDouble), 1e-15));
}

TEST_F(SoftmaxDtype, OfTheInputDecidesAboutTheDefaultEps) {
  const Tensor empty = at::full({1, 2}, -kInfinity, at::kHalf);
  const Tensor y = safeops::log_softmax(empty, 1, at::kDouble, {}, {}, Policy::epsilon);
  EXPECT_TRUE(same(y, at::full({1, 2}, std::log(0x1p-14), at::kDouble), 1e-15));
}

TEST_F(SoftmaxOut, WritesTheResultIntoOutAndReturnsIt) {
  const Tensor x = regular_and_empty();
  Tensor out = at::full({2, 2}, 7.0, at::kDouble), nothing = at::empty({0}, at::kDouble);
  const void* const memory = out.data_ptr();
  EXPECT_EQ(&safeops::softmax_out(out, x, 1, {}, {}, {}, Policy::zero), &out);
  EXPECT_EQ(out.data_ptr(), memory);
  EXPECT_TRUE(at::equal(out, safeops::softmax(x, 1, {}, {}, {}, Policy::zero)));
  EXPECT_TRUE(at::equal(safeops::softmax_out(nothing, x, 1, {}, {}, {}, Policy::zero), out));
  EXPECT_TRUE(at::equal(safeops::log_softmax_out(out, x, 1, {}, {}, {}, Policy::zero),
                        safeops::log_softmax(x, 1, {}, {}, {}, Policy::zero)));
  Tensor rows = at::empty({2}, at::kFloat);
  EXPECT_TRUE(
      at::equal(safeops::logsumexp_out(rows, x, 1), safeops::logsumexp(x, 1).to(at::kFloat)));
}

TEST_F(SoftmaxOut, WorksInPlace) {
  Tensor x = regular_and_empty();
  const Tensor expected = safeops::softmax(x, 1, {}, {}, {}, Policy::nan);
  EXPECT_TRUE(same(safeops::softmax_out(x, x, 1, {}, {}, {}, Policy::nan), expected));
}

TEST_F(SoftmaxOut, IsNotTouchedByACallThatThrows) {
  Tensor out = at::full({1}, 7.0, at::kDouble), x = regular_and_empty();
  EXPECT_THROW(safeops::softmax_out(out, x, 1, {}, {}, {}, Policy::raise), c10::ValueError);
  EXPECT_THROW(safeops::logsumexp_out(out, x, 1, false, {}, Policy::raise), c10::ValueError);
  EXPECT_TRUE(at::equal(out, at::full({1}, 7.0, at::kDouble)));
  EXPECT_THROW(safeops::softmax_out(x, x, 1, {}, {}, {}, Policy::raise), c10::ValueError);
  EXPECT_TRUE(at::equal(x, regular_and_empty()));
}

TEST_F(SoftmaxOut, RefusesToBeDifferentiatedAndAnotherDtype) {
  Tensor out = at::empty({2, 2}, at::kDouble), narrow = at::empty({2, 2}, at::kFloat);
  const Tensor x = regular_and_empty().requires_grad_();
  EXPECT_THAT(message_of<c10::Error>([&] { safeops::softmax_out(out, x, 1); }),
              HasSubstr("safeops::softmax: functions with out=... arguments don't support"));
  EXPECT_EQ(message_of<c10::Error>([&] { safeops::softmax_out(narrow, x.detach(), 1); }),
            "safeops::softmax: out must have the dtype float64 of the result, got float32; pass an "
            "out of dtype float64 or another dtype argument");
}

TEST_F(SoftmaxRefuses, DtypesOfWhichItHasNoKernel) {
  const auto integers = [] { safeops::softmax(at::ones({2, 2}, at::kInt), 1); };
  EXPECT_EQ(message_of<c10::NotImplementedError>(integers),
            "safeops::softmax: input must be float16, bfloat16, float32 or float64, got int32; "
            "convert it first, for example with input.float()");
  const auto complex = [] { safeops::log_softmax(at::ones({2, 2}), 1, at::kComplexFloat); };
  EXPECT_THAT(message_of<c10::NotImplementedError>(complex),
              HasSubstr("safeops::log_softmax: dtype must be"));
  const auto sparse = [] { safeops::logsumexp(regular_and_empty().to_sparse(), 1); };
  EXPECT_THAT(message_of<c10::NotImplementedError>(sparse),
              HasSubstr("safeops::logsumexp: self must be a dense tensor"));
}

TEST_F(SoftmaxRefuses, AnEpsThatIsNoThreshold) {
  const Tensor x = regular_and_empty();
  for (const double eps : {-1.0, kNan, kInfinity}) {
    EXPECT_THAT(message_of<c10::ValueError>([&] { safeops::softmax(x, 1, {}, {}, eps); }),
                HasSubstr("safeops::softmax: eps must be finite and not negative, got "));
  }
  EXPECT_NO_THROW(safeops::log_softmax(x, 1, {}, {}, 0.0, Policy::zero));
  EXPECT_NO_THROW(safeops::log_softmax(x, 1, {}, {}, 5e-324, Policy::epsilon));
  EXPECT_EQ(message_of<c10::ValueError>(
                [&] { safeops::log_softmax(x, 1, {}, {}, 0.0, Policy::epsilon); }),
            "safeops::log_softmax: eps must be positive under policy 'epsilon', because log(eps) "
            "must be finite there, got 0; raise eps or use policy 'zero'");
}

TEST_F(SoftmaxRefuses, DimsThatTheInputLacksOrThatRepeat) {
  EXPECT_EQ(
      message_of<c10::IndexError>([] { safeops::softmax(regular_and_empty(), 2); }),
      "safeops::softmax: dim must be in [-2, 1] for a 2-d input, got 2; name a dimension that "
      "the input has");
  EXPECT_THAT(message_of<c10::Error>([] {
                safeops::logsumexp(regular_and_empty(), {1, -1});
              }),
              HasSubstr("safeops::logsumexp: dim must name every dimension once, got dim 1 twice"));
}

TEST_F(SoftmaxRefuses, AMaskThatIsNotBoolOrDoesNotFit) {
  const Tensor x = regular_and_empty();
  EXPECT_THAT(message_of<c10::Error>([&] {
                safeops::softmax(x, 1, {}, at::ones({2, 2}));
              }),
              HasSubstr("safeops::softmax: where must be a bool tensor, got float32"));
  EXPECT_THAT(message_of<c10::Error>([&] { safeops::softmax(x, 1, {}, at::ones({3}, at::kBool)); }),
              HasSubstr("where must be expandable to the shape of input, [2, 2], got [3]"));
  EXPECT_THAT(message_of<c10::Error>([&] {
                safeops::softmax(x[0], 0, {}, at::ones({2, 2}, at::kBool));
              }),
              HasSubstr("where must be expandable to the shape of input, [2], got [2, 2]"));
}

}  // namespace
}  // namespace safeops
