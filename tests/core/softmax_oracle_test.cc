// A check that passes wrong answers is worse than none: here right outcomes of the softmax family
// are broken in each way that matters.
#include <gtest/gtest.h>

#include "cases/softmax_check.h"
#include "cases/softmax_rows.h"

namespace safeops::cases {
namespace {

TEST(SoftmaxOracle, KnowsTheAnswersThatAreKnownExactly) {
  Rows x(Element::float64, 1, 4);
  for (std::size_t i = 0; i < 4; ++i) x.set(0, i, 1e300);
  const SoftmaxRow<Wide> equal(x, 0, nullptr);
  EXPECT_EQ(equal.probability(1e300).to_double(), 0.25);
  EXPECT_EQ(equal.rest, Wide(3.0));
  x.set(0, 0, 2.0);
  x.set(0, 1, -kInfinity);
  x.set(0, 2, -kInfinity);
  x.set(0, 3, kNaN);
  Mask mask(1, 4, true);
  mask.set(0, 3, false);
  const SoftmaxRow<Wide> one(x, 0, &mask);
  EXPECT_EQ(one.state, RowState::regular);
  EXPECT_EQ(one.logsumexp(), Wide(2.0));
  EXPECT_EQ(one.probability(-kInfinity).to_double(), 0.0);
  EXPECT_TRUE(SoftmaxRow<Wide>(x, 0, nullptr).has_nan);
  mask.set_row(0, false);
  EXPECT_EQ(SoftmaxRow<Wide>(x, 0, &mask).state, RowState::empty);
}

TEST(SoftmaxOracle, BothNumbersItComputesInAgree) {
  Random random(190);
  for (const double range : {1.0, 87.0, 1e4}) {
    const Rows x = random_logits(Element::float32, 1, 60, Logits::cluster, range, random);
    const SoftmaxRow<Wide> wide(x, 0, nullptr);
    const SoftmaxRow<long double> narrow(x, 0, nullptr);
    for (std::size_t i = 0; i < 60; ++i) {
      const double a = to_double(wide.probability(x.at(0, i)));
      EXPECT_NEAR(a, to_double(narrow.probability(x.at(0, i))), a * 0x1p-50);
      const double b = to_double(wide.log_probability(x.at(0, i)));
      EXPECT_NEAR(b, to_double(narrow.log_probability(x.at(0, i))), std::fabs(b) * 0x1p-50);
    }
  }
}

/// Four rows of nine elements, row 2 empty, row 3 not finite, element 4 of row 1 masked.
struct Right {
  Rows x = Rows(Element::float32, 4, 9), g = x;
  Mask mask = Mask(4, 9, true);
  SoftmaxTrial trial;
  Outcome out, grad;

  explicit Right(SoftmaxKind kind) {
    Random random(191);
    for (std::size_t r = 0; r < 4; ++r) {
      fill_logits(x, r, Logits::uniform, 3.0, random);
      fill_row(g, r, Fill::uniform, 1.0, random);
    }
    for (std::size_t i = 0; i < 9; ++i) x.set(2, i, -kInfinity);
    x.set(3, 5, kNaN);
    mask.set(1, 4, false);
    trial.kind = kind;
    trial.policy = Policy::zero;
    trial.mask = &mask;
    out.values = untouched(x);
    grad.values = untouched(x);
    for (std::size_t r = 0; r < 4; ++r) fill_outcomes(r);
    out.hits[Condition::empty_row].add(1, 2);
    out.hits[Condition::nonfinite_input].add(1, 3);
    out.hits.raising.add(1, 2);
    grad.hits = out.hits;
  }

  void fill_outcomes(std::size_t r) {
    const SoftmaxRow<Wide> row(x, r, &mask);
    out.saved.push_back(row.largest);
    const bool logarithm = trial.kind == SoftmaxKind::log_softmax;
    for (std::size_t i = 0; i < 9; ++i) {
      const bool absent = !mask.at(r, i) || row.state == RowState::empty;
      const double none = logarithm ? -kInfinity : 0.0;
      out.values.set(
          r, i,
          absent ? none : forward_value(row, trial.kind, x.element, x.at(r, i)).value.to_double());
    }
    const GradientSum<Wide> sum(g, out.values, r, trial.kind, &mask);
    for (std::size_t i = 0; i < 9; ++i) {
      const bool absent = !mask.at(r, i) || row.state == RowState::empty;
      grad.values.set(
          r, i,
          absent ? 0.0
                 : gradient_value(sum, trial.kind, x.element, g.at(r, i), out.values.at(r, i))
                       .value.to_double());
    }
  }
};

TEST(SoftmaxOracle, RejectsWrongOutcomes) {
  for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::log_softmax}) {
    const Right right(kind);
    ASSERT_EQ(check_forward(right.x, right.out, right.trial).failure, "");
    const auto rejects = [&](auto breakage) {
      Outcome wrong = right.out;
      breakage(wrong);
      return !check_forward(right.x, wrong, right.trial).good();
    };
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.bits[3] += 6; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.bits[3] ^= 0x80000000u; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.set(1, 4, kNaN); })) << "masked";
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.set(2, 4, kNaN); })) << "empty";
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.set(3, 4, 0.0); })) << "NaN row";
    EXPECT_TRUE(rejects([](Outcome& o) { o.saved[1] += 1; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.saved[2] = kNaN; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.hits[Condition::empty_row].first = 1; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.hits[Condition::nonfinite_input] = {}; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.hits[Condition::finite_min_row].add(1, 0); }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.hits.raising = {}; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.disturbed = 1; }));
  }
}

TEST(SoftmaxOracle, RejectsWrongGradients) {
  for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::log_softmax}) {
    const Right right(kind);
    const auto good = [&](const Outcome& outcome) {
      return check_backward(right.g, right.x, right.out.values, outcome, right.trial).good();
    };
    ASSERT_TRUE(good(right.grad));
    const auto rejects = [&](auto breakage) {
      Outcome wrong = right.grad;
      breakage(wrong);
      return !good(wrong);
    };
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.set(0, 3, o.values.at(0, 3) + 0x1p-17); }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.set(1, 4, 0x1p-149); })) << "masked";
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.set(2, 4, kNaN); })) << "empty";
    EXPECT_TRUE(rejects([](Outcome& o) { o.values.set(3, 4, 0.0); })) << "NaN row";
    EXPECT_TRUE(rejects([](Outcome& o) { o.hits.raising.first = 0; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.hits[Condition::empty_row].count = 2; }));
    EXPECT_TRUE(rejects([](Outcome& o) { o.disturbed = 1; }));
  }
}

}  // namespace
}  // namespace safeops::cases
