// A check that passes wrong answers is worse than none: here right outcomes of the division family
// are broken in each way that matters.
#include <gtest/gtest.h>

#include "cases/division_complex.h"
#include "cases/division_numbers.h"

namespace safeops::cases {
namespace {

TEST(DivisionOracle, KnowsTheAnswersThatAreKnownExactly) {
  const Element e = Element::float64;
  const auto value = [&](DivisionKind kind, double a, double b) {
    return to_double(forward_formula<Wide>(kind, e, a, b, false).value);
  };
  EXPECT_EQ(value(DivisionKind::quotient, 1, 4), 0.25);
  EXPECT_EQ(value(DivisionKind::truncated, -7, 2), -3);
  EXPECT_EQ(value(DivisionKind::floored, -7, 2), -4);
  EXPECT_EQ(value(DivisionKind::floored, 0x1p60 + 0x1p10, 0x1p60), 1);
  EXPECT_EQ(value(DivisionKind::rsqrt, 0, 0x1p-1074), 0x1p537);
  EXPECT_EQ(value(DivisionKind::sqrt, 0, 0x1p-1074), 0x1p-537);
  EXPECT_EQ(value(DivisionKind::log, 0, 1), 0);
  const auto first = [&](DivisionKind kind, double g, double x) {
    return to_double(gradient_formula<Wide>(kind, e, g, 1, x).of[0].value);
  };
  EXPECT_EQ(first(DivisionKind::quotient, 3, 4), 0.75);
  EXPECT_EQ(first(DivisionKind::rsqrt, 16, 4), -1);
  EXPECT_EQ(first(DivisionKind::sqrt, 8, 4), 2);
  EXPECT_EQ(first(DivisionKind::log, 8, 4), 2);
  EXPECT_EQ(to_double(gradient_formula<Wide>(DivisionKind::quotient, e, 2, 3, 0.5).of[1].value),
            -24);
}

TEST(DivisionOracle, KnowsComplexAnswersThatAreKnownExactly) {
  using Z = ComplexNumber<Wide>;
  const auto expect = [](const Z& z, double re, double im) {
    EXPECT_EQ(to_double(z.re), re);
    EXPECT_EQ(to_double(z.im), im);
  };
  expect(Z(Wide(3), Wide(4)) / Z(Wide(1), Wide(2)), 2.2, -0.4);
  expect(root(Z(Wide(3), Wide(-4))), 2, -1);
  expect(root(Z(Wide(-3), Wide(4))), 1, 2);
  expect(root(Z(Wide(-4), Wide(-0.0))), 0, -2);
  expect(logarithm(Z(Wide(1), Wide(0x1p-300))), 0x1p-601, 0x1p-300);
  expect(logarithm(Z(Wide(0.0), Wide(-1.0))), 0, -std::acos(0.0));
  expect(on_circle(Z(Wide(-3), Wide(4)), 10), -6, 8);
}

TEST(DivisionOracle, BothNumbersItComputesInAgree) {
  Random random(290);
  const Operands operands(Element::float32, 2000, 1, 0, 10, random);
  for (const DivisionKind kind : kDivisionKinds) {
    for (const bool backward : {false, true}) {
      DivisionTrial trial;
      trial.kind = kind;
      trial.backward = backward;
      const Inputs inputs = operands.inputs(trial);
      const DivisionOutcome outcome = divide(inputs, trial);
      const Report narrow = detail::check_division<long double>(inputs, outcome, trial);
      const Report wide = detail::check_division<Wide>(inputs, outcome, trial);
      EXPECT_EQ(narrow.failure, wide.failure);
      EXPECT_EQ(narrow.elements, wide.elements);
      EXPECT_NEAR(narrow.worst, wide.worst, 1e-5) << spelled(trial);
    }
  }
}

/// A call of eight elements: regular, zero and below eps. What the kernels give is right; the test
/// below it is that the check says so and rejects everything else.
struct Right {
  Rows g = Rows(Element::float32, 8, 1), a = g, b = g;
  DivisionTrial trial;
  DivisionOutcome outcome;

  Right(DivisionKind kind, bool backward, Policy policy) {
    const double divisors[] = {3, 7, 0.0, 0.01, -0.0, 5, 11, 13};
    for (std::size_t i = 0; i < 8; ++i) {
      g.set(i, 0, i == 4 ? 0 : 1.7);
      a.set(i, 0, 1.1 + static_cast<double>(i));
      b.set(i, 0, divisors[i]);
    }
    trial.kind = kind;
    trial.backward = backward;
    trial.policy = policy;
    trial.eps = 0.1;
    outcome = divide(inputs(), trial);
  }

  Inputs inputs() const {
    const bool divides = has_divisor(trial.kind);
    if (!trial.backward) return divides ? Inputs{&a, &b, nullptr} : Inputs{&b, nullptr, nullptr};
    return {&g, &b, divides ? &a : nullptr};
  }
  bool good(const DivisionOutcome& result) const {
    return check_division(inputs(), result, trial).good();
  }
  template <class Breakage>
  bool rejects(const Breakage& breakage) const {
    DivisionOutcome wrong = outcome;
    breakage(wrong);
    return !good(wrong);
  }
};

template <class Body>
void for_right_calls(const Body& body) {
  for (const DivisionKind kind : kDivisionKinds) {
    for (const bool backward : {false, true}) {
      for (const Policy policy : kAllPolicies) {
        const Right right(kind, backward, policy);
        ASSERT_TRUE(right.good(right.outcome)) << spelled(right.trial);
        body(right);
        ASSERT_FALSE(::testing::Test::HasFailure()) << spelled(right.trial);
      }
    }
  }
}

TEST(DivisionOracle, RejectsWrongNumbers) {
  for_right_calls([](const Right& right) {
    for (std::size_t k = 0; k < outputs_of(right.trial); ++k) {
      EXPECT_TRUE(right.rejects([k](DivisionOutcome& o) { o.output[k].bits[1] += 3; }));
      EXPECT_TRUE(right.rejects([k](DivisionOutcome& o) { o.output[k].bits[0] = 0x7FC00000; }));
      EXPECT_TRUE(right.rejects([k](DivisionOutcome& o) { o.output[k].set(0, 0, 123); }));
      if (right.trial.policy == Policy::raise) continue;
      for (const std::size_t singular : {2, 3, 4}) {
        EXPECT_TRUE(
            right.rejects([&](DivisionOutcome& o) { o.output[k].set(singular, 0, 1234567); }));
      }
    }
  });
}

TEST(DivisionOracle, RejectsOneUnitInTheLastPlaceOfWhatIsRoundedOnce) {
  for (const DivisionKind kind : {DivisionKind::quotient, DivisionKind::sqrt}) {
    const Right right(kind, false, Policy::zero);
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { o.output[0].bits[1] += 1; }));
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { o.output[0].bits[1] -= 1; }));
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { o.output[0].bits[2] = 0x80000000u; }));
  }
}

TEST(DivisionOracle, RejectsWrongHits) {
  for_right_calls([](const Right& right) {
    for (const Condition condition :
         {Condition::zero_denominator, Condition::zero_argument, Condition::below_eps,
          Condition::negative_argument, Condition::nonfinite_input}) {
      EXPECT_TRUE(right.rejects([&](DivisionOutcome& o) { ++o.hits[condition].count; }));
      EXPECT_TRUE(right.rejects([&](DivisionOutcome& o) { o.hits[condition].first = 0; }));
    }
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { ++o.hits.raising.count; }));
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { o.hits.raising.first = 1; }));
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { ++o.hits.latent.count; }));
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { o.hits.latent.first = 1; }));
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { o.hits = {}; }));
    EXPECT_TRUE(right.rejects([](DivisionOutcome& o) { o.disturbed = 1; }));
  });
}

TEST(DivisionOracle, RejectsWrongComplexOutcomes) {
  Random random(291);
  for (const DivisionKind kind : kComplexKinds) {
    for (const bool backward : {false, true}) {
      DivisionTrial trial;
      trial.kind = kind;
      trial.backward = backward;
      trial.policy = Policy::zero;
      Operands operands(Element::float32, 4, 2, 0, 1000, random);
      for (Rows* rows : {&operands.g, &operands.a, &operands.b}) {
        for (std::size_t i = 0; i < 8; ++i) rows->set(i / 2, i % 2, 1 + random.symmetric() / 2);
      }
      for (std::size_t part = 0; part < 2; ++part) operands.b.set(3, part, 0);
      const Inputs inputs = operands.inputs(trial);
      const DivisionOutcome right = divide(inputs, trial);
      ASSERT_EQ(check_complex(inputs, right, trial).failure, "");
      const auto rejects = [&](auto breakage) {
        DivisionOutcome wrong = right;
        breakage(wrong);
        return !check_complex(inputs, wrong, trial).good();
      };
      for (std::size_t k = 0; k < outputs_of(trial); ++k) {
        EXPECT_TRUE(rejects([k](DivisionOutcome& o) { o.output[k].set(0, 0, 77); }));
        EXPECT_TRUE(rejects([k](DivisionOutcome& o) { o.output[k].set(2, 1, 77); }));
        EXPECT_TRUE(rejects([k](DivisionOutcome& o) { o.output[k].set(3, 1, 77); }));
      }
      EXPECT_TRUE(rejects([](DivisionOutcome& o) { o.hits = {}; }));
    }
  }
}

// The memory of operands has to notice what it promises to notice.
TEST(DivisionOracle, MemorySeesWhatIsWrittenBesideTheElements) {
  Placement placement;
  placement.step = 2;
  const std::vector<std::uint64_t> bits = {1, 2, 3};
  ElementMemory memory(bits, 2, 1, {3}, placement);
  EXPECT_EQ(memory.gather(), bits);
  EXPECT_EQ(memory.disturbed(), 0u);
  auto* const bytes = static_cast<unsigned char*>(memory.data());
  bytes[8] = 7;
  EXPECT_EQ(memory.disturbed(), 0u);
  EXPECT_EQ(memory.gather()[2], 7u);
  for (const std::ptrdiff_t outside : {-1, 2, 3, 10}) {
    bytes[outside] = 0;
    EXPECT_EQ(memory.disturbed(), 1u) << outside;
    bytes[outside] = 0xFF;
  }
}

}  // namespace
}  // namespace safeops::cases
