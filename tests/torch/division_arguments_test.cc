// Arguments of the C++ interface of div, reciprocal, rsqrt, sqrt and log: out, in place, refusals.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "torch/interface.h"

namespace safeops {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor dividends() { return at::tensor({6.0, 1.0}); }
Tensor divisors() { return at::tensor({3.0, 0.0}); }
Tensor half_and_zero() { return at::tensor({2.0, 0.0}); }

using DivisionOut = Interface;
using DivisionInPlace = Interface;
using DivisionRefuses = Interface;

TEST_F(DivisionOut, WritesTheResultIntoOutAndReturnsIt) {
  Tensor out = at::full({2}, 7.0, at::kDouble), nothing = at::empty({0}, at::kFloat);
  const void* const memory = out.data_ptr();
  EXPECT_EQ(&safeops::div_out(out, dividends(), divisors(), {}, {}, Policy::zero), &out);
  EXPECT_EQ(out.data_ptr(), memory);
  EXPECT_TRUE(same(out, half_and_zero()));
  EXPECT_TRUE(same(safeops::div_out(nothing, dividends(), divisors(), {}, {}, Policy::zero),
                   half_and_zero().to(at::kFloat)));
  EXPECT_TRUE(same(safeops::divide_out(out, dividends(), 4, "floor"), at::tensor({1.0, 0.0})));
  EXPECT_TRUE(same(safeops::true_divide_out(out, dividends(), 4), dividends() / 4));
  const Tensor x = at::tensor({4.0, 0.25});
  EXPECT_TRUE(same(safeops::reciprocal_out(out, x), safeops::reciprocal(x)));
  EXPECT_TRUE(same(safeops::rsqrt_out(out, x), safeops::rsqrt(x)));
  EXPECT_TRUE(same(safeops::sqrt_out(out, x), safeops::sqrt(x)));
  EXPECT_TRUE(same(safeops::log_out(out, x), safeops::log(x)));
}

TEST_F(DivisionOut, IsResizedToTheStridesThatTorchGives) {
  const Tensor image = at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  Tensor out = at::empty({0}), stock = at::empty({0});
  safeops::div_out(out, image, 2);
  at::div_out(stock, image, at::scalar_tensor(2));
  EXPECT_TRUE(same(out, stock));
  EXPECT_EQ(out.strides(), stock.strides());
}

TEST_F(DivisionOut, MayOverlapTheInputs) {
  Tensor a = dividends(), b = divisors();
  EXPECT_TRUE(same(safeops::div_out(b, a, b, {}, {}, Policy::zero), half_and_zero()));
  EXPECT_TRUE(same(safeops::div_out(a, a, 2), at::tensor({3.0, 0.5})));
  Tensor square = at::arange(1, 10, at::kDouble).view({3, 3});
  const Tensor expected = square / square.diagonal();
  EXPECT_TRUE(same(safeops::div_out(square, square, square.diagonal()), expected));
}

TEST_F(DivisionOut, MayBeALazyView) {
  const Tensor stored = at::zeros({2}, at::kComplexDouble);
  Tensor out = stored.conj();
  const Tensor z = at::randn({2}, at::kComplexDouble);
  safeops::div_out(out, z, 2);
  EXPECT_TRUE(same(stored, (z / 2).conj().resolve_conj()));
}

TEST_F(DivisionOut, IsNotTouchedByACallThatThrows) {
  Tensor out = at::full({1}, 7.0, at::kDouble), a = dividends();
  const Tensor x = at::tensor({1.0, -1.0});
  EXPECT_THROW(safeops::div_out(out, a, divisors(), {}, {}, Policy::raise), c10::ValueError);
  EXPECT_THROW(safeops::log_out(out, x, {}, Policy::raise), c10::ValueError);
  EXPECT_THROW(safeops::rsqrt_out(out, x, {}, Policy::raise), c10::ValueError);
  EXPECT_THROW(safeops::sqrt_out(out, x, {}, Policy::raise), c10::ValueError);
  EXPECT_TRUE(at::equal(out, at::full({1}, 7.0, at::kDouble)));
  EXPECT_THROW(safeops::div_out(a, a, divisors(), {}, {}, Policy::raise), c10::ValueError);
  EXPECT_THROW(safeops::div_(a, divisors(), {}, {}, Policy::raise), c10::ValueError);
  EXPECT_TRUE(at::equal(a, dividends()));
  Tensor whole = at::tensor({5, 7}).to(at::kInt);
  EXPECT_THROW(safeops::div_(whole, at::tensor({2, 0}).to(at::kInt), "floor"), c10::Error);
  EXPECT_TRUE(at::equal(whole, at::tensor({5, 7}).to(at::kInt)));
}

TEST_F(DivisionOut, RefusesToBeDifferentiatedAndAnotherKindOfDtype) {
  Tensor out = at::empty({2}, at::kDouble), integers = at::empty({2}, at::kInt);
  const Tensor a = dividends().requires_grad_();
  EXPECT_THAT(message_of<c10::Error>([&] { safeops::div_out(out, a, 2); }),
              HasSubstr("safeops::div: functions with out=... arguments don't support"));
  EXPECT_THAT(message_of<c10::Error>([&] { safeops::rsqrt_out(out, a); }),
              HasSubstr("safeops::rsqrt: functions with out=... arguments don't support"));
  EXPECT_THAT(message_of<c10::Error>([&] { safeops::div_out(integers, dividends(), 2); }),
              HasSubstr("out must have a dtype that float64 can be cast to, got int32"));
}

TEST_F(DivisionInPlace, ChangesAndReturnsItsInput) {
  Tensor a = dividends();
  EXPECT_EQ(&safeops::div_(a, divisors(), {}, {}, Policy::zero), &a);
  EXPECT_TRUE(same(a, half_and_zero()));
  EXPECT_TRUE(same(safeops::divide_(a, 2, "floor"), at::tensor({1.0, 0.0})));
  EXPECT_TRUE(same(safeops::true_divide_(a, 2), at::tensor({0.5, 0.0})));
  Tensor x = at::tensor({4.0});
  EXPECT_TRUE(same(safeops::sqrt_(x), at::tensor({2.0})));
  EXPECT_TRUE(same(safeops::reciprocal_(x), at::tensor({0.5})));
  EXPECT_TRUE(same(safeops::rsqrt_(x), at::tensor({0.5}).rsqrt(), 1e-15));
  EXPECT_TRUE(same(safeops::log_(x), at::tensor({0.5}).rsqrt().log(), 1e-15));
  Tensor half = at::ones({2}, at::kHalf);
  EXPECT_TRUE(same(safeops::div_(half, at::full({2}, 3.0)), at::full({2}, 1.0f / 3).to(at::kHalf)));
}

TEST_F(DivisionInPlace, IsDifferentiatedAsIfOutOfPlace) {
  const Tensor leaf = dividends().requires_grad_(),
               divisor = at::tensor({3.0, 2.0}).requires_grad_();
  Tensor a = leaf * 1;
  safeops::div_(a, divisor);
  safeops::div_(a, 2);
  a.backward(at::ones({2}, at::kDouble));
  EXPECT_TRUE(same(leaf.grad(), at::tensor({1.0 / 6, 0.25}), 1e-15));
  EXPECT_TRUE(same(divisor.grad(), at::tensor({-1.0 / 3, -0.125}), 1e-15));
  const Tensor root = at::tensor({4.0}).requires_grad_();
  Tensor x = root * 1;
  safeops::sqrt_(x).backward();
  EXPECT_TRUE(same(root.grad(), at::tensor({0.25})));
}

TEST_F(DivisionInPlace, RefusesALeafBeforeAnythingIsCounted) {
  Tensor leaf = at::tensor({0.0, -1.0}).requires_grad_();
  const Tensor divisor = at::zeros({2}, at::kDouble);
  for (const auto& call : {std::function<void()>([&] { safeops::log_(leaf); }),
                           std::function<void()>([&] { safeops::div_(leaf, 0); }),
                           std::function<void()>([&] { safeops::div_(leaf, divisor); })}) {
    EXPECT_THAT(message_of<c10::Error>(call), HasSubstr("a leaf Variable that requires grad"));
  }
  EXPECT_TRUE(diagnostics::snapshot().empty());
}

TEST_F(DivisionInPlace, IsSeenByWhatSavedItsInput) {
  const Tensor leaf = at::tensor({4.0}).requires_grad_();
  Tensor x = at::tensor({3.0});
  const Tensor product = leaf * x;
  safeops::sqrt_(x);
  EXPECT_THAT(message_of<c10::Error>([&] { product.backward(); }),
              HasSubstr("modified by an inplace operation"));
}

TEST_F(DivisionInPlace, RefusesWhatItsInputCannotHold) {
  Tensor row = at::ones({2}), integers = at::ones({2}, at::kInt);
  EXPECT_THAT(message_of<c10::Error>([&] {
                safeops::div_(row, at::ones({3, 2}));
              }),
              HasSubstr("other must be expandable to the shape of input, [2], got [3, 2]"));
  EXPECT_THAT(message_of<c10::Error>([&] { safeops::div_(integers, 2); }),
              HasSubstr("the result, float32, can be cast to, got int32"));
  EXPECT_THAT(message_of<c10::Error>([&] { safeops::sqrt_(integers); }),
              HasSubstr("safeops::sqrt_: input"));
  EXPECT_NO_THROW(safeops::div_(integers, 2, "trunc"));
}

TEST_F(DivisionRefuses, AnEpsThatIsNoThreshold) {
  const Tensor x = at::ones({2});
  for (const double eps : {-1.0, kNan, kInfinity}) {
    EXPECT_THAT(message_of<c10::ValueError>([&] { safeops::div(x, x, {}, eps); }),
                HasSubstr("safeops::div: eps must be finite and not negative, got "));
    EXPECT_THAT(message_of<c10::ValueError>([&] { safeops::log(x, eps); }),
                HasSubstr("safeops::log: eps must be finite and not negative, got "));
  }
  EXPECT_EQ(
      message_of<c10::ValueError>([&] { safeops::div(x, x, {}, 0.0, Policy::epsilon); }),
      "safeops::div: eps must be at least 2.94e-39 under policy 'epsilon' for float32, because "
      "1/eps must be finite there, got 0; raise eps or use policy 'zero'");
  EXPECT_THAT(
      message_of<c10::ValueError>([&] { safeops::rsqrt(x.to(at::kHalf), 1e-10, Policy::epsilon); }),
      HasSubstr("because 1/sqrt(eps) must be finite there, got 1e-10"));
  EXPECT_THAT(message_of<c10::ValueError>([&] { safeops::sqrt(x, 0.0, Policy::epsilon); }),
              HasSubstr("because sqrt(eps)"));
  EXPECT_NO_THROW(safeops::rsqrt(x, 1e-60, Policy::epsilon));
  EXPECT_NO_THROW(safeops::log(x, 5e-324, Policy::epsilon));
}

TEST_F(DivisionRefuses, AnotherRoundingMode) {
  EXPECT_EQ(message_of<c10::Error>([] { safeops::div(at::ones({2}), 2, "up"); }),
            "safeops::div: rounding_mode must be None, 'trunc' or 'floor', got 'up'; use one of "
            "these");
}

TEST_F(DivisionRefuses, DtypesOfWhichItHasNoKernel) {
  const Tensor truth = at::ones({2}, at::kBool), complex = at::ones({2}, at::kComplexFloat);
  for (const Tensor& x : {truth, complex, at::ones({2}, at::kUInt16)}) {
    EXPECT_THAT(message_of<c10::NotImplementedError>([&] { safeops::div(x, x, "trunc"); }),
                HasSubstr("cannot be rounded"));
    EXPECT_NO_THROW(safeops::div(x, x));
  }
  const Tensor eighth = at::ones({2}).to(at::kFloat8_e4m3fn);
  EXPECT_THAT(message_of<c10::NotImplementedError>([&] { safeops::sqrt(eighth); }),
              HasSubstr("safeops::sqrt: input must be float16,"));
  const Tensor sparse = at::ones({2}).to_sparse();
  EXPECT_THAT(message_of<c10::NotImplementedError>([&] { safeops::rsqrt(sparse); }),
              HasSubstr("safeops::rsqrt: self must be a dense tensor"));
  EXPECT_THAT(message_of<c10::NotImplementedError>([&] { safeops::div(sparse, 2); }),
              HasSubstr("safeops::div: self must be a dense tensor"));
}

TEST_F(DivisionRefuses, ShapesThatDoNotBroadcast) {
  EXPECT_THAT(message_of<c10::Error>([] { safeops::div(at::ones({2}), at::ones({3})); }),
              HasSubstr("must match the size of tensor b"));
}

}  // namespace
}  // namespace safeops
