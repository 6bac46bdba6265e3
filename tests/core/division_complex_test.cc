// Complex quotients, roots and logarithms: values and gradients normwise, singular at 0 alone.
#include <gtest/gtest.h>

#include "cases/division_complex.h"
#include "cases/division_everywhere.h"
#include "cases/division_numbers.h"
#include "cases/executors.h"

namespace safeops::cases {
namespace {

constexpr Element kParts[] = {Element::float32, Element::float64};

Rows number(Element element, double re, double im) {
  Rows rows(element, 1, 2);
  rows.set(0, 0, re);
  rows.set(0, 1, im);
  return rows;
}

class ComplexDivision : public ::testing::TestWithParam<Element> {
 protected:
  /// Calls body(trial) for every kind, direction and policy.
  template <class Body>
  void for_every_call(const Body& body) {
    for (const DivisionKind kind : kComplexKinds) {
      for (const bool backward : {false, true}) {
        for (const Policy policy : kAllPolicies) {
          DivisionTrial trial;
          trial.kind = kind;
          trial.backward = backward;
          trial.policy = policy;
          body(trial);
          ASSERT_FALSE(HasFailure()) << spelled(trial);
        }
      }
    }
  }
};

TEST_P(ComplexDivision, NumbersOfEveryMagnitudeUnderEveryPolicyAndEps) {
  Random random(280);
  Report report[2];
  for_every_call([&](DivisionTrial trial) {
    for (const std::optional<double>& eps :
         {std::optional<double>(), std::optional<double>(1e-3), std::optional<double>(3e4)}) {
      for (const std::size_t rarity : {3, 100}) {
        trial.eps = eps;
        const Operands operands(GetParam(), 700, 2, eps_of(trial, GetParam()), rarity, random);
        const Inputs inputs = operands.inputs(trial);
        const Report found = check_complex(inputs, divide(inputs, trial), trial);
        ASSERT_EQ(found.failure, "");
        report[trial.backward ? 1 : 0].merge(found);
      }
    }
  });
  for (const Report& one : report) {
    EXPECT_GT(one.elements, 100000u);
    RecordProperty(&one == report ? "forward_worst_ulp" : "backward_worst_ulp",
                   std::to_string(one.worst));
    RecordProperty(&one == report ? "forward_witness" : "backward_witness", one.witness);
  }
}

TEST_P(ComplexDivision, NumbersThatStayInRange) {
  Random random(281);
  for_every_call([&](const DivisionTrial& trial) {
    if (trial.policy != Policy::stock) return;
    Operands operands(GetParam(), 4000, 2, 0, 100, random);
    for (Rows* rows : {&operands.g, &operands.a, &operands.b}) {
      for (std::uint64_t& bits : rows->bits)
        bits = encode(GetParam(), std::ldexp(random.symmetric(), random.between(-3, 3)));
    }
    const Inputs inputs = operands.inputs(trial);
    const Report report = check_complex(inputs, divide(inputs, trial), trial);
    ASSERT_EQ(report.failure, "");
    ASSERT_GE(report.elements, 8000u);
  });
}

TEST_P(ComplexDivision, LogarithmsNearTheUnitCircle) {
  Random random(282);
  Rows z(GetParam(), 3000, 2);
  for (std::size_t i = 0; i < z.rows; ++i) {
    const double angle = random.symmetric() * 3.2;
    const double size = 1 + std::ldexp(random.symmetric(), -random.between(1, 60));
    const bool on_axis = i % 3 == 0;
    z.set(i, 0, size * (on_axis ? 1 : std::cos(angle)));
    z.set(i, 1,
          on_axis ? std::ldexp(random.symmetric(), -random.between(10, 300))
                  : size * std::sin(angle));
  }
  DivisionTrial trial;
  trial.kind = DivisionKind::log;
  const Inputs inputs = {&z, nullptr, nullptr};
  EXPECT_EQ(check_complex(inputs, divide(inputs, trial), trial).failure, "");
}

TEST_P(ComplexDivision, QuotientsAreScaled) {
  const auto expect = [](const Rows& a, const Rows& b, double re, double im) {
    const Rows value = divide({&a, &b, nullptr}, DivisionTrial{}).output[0];
    EXPECT_EQ(value.at(0, 0), re) << describe(a, 0) << " / " << describe(b, 0);
    EXPECT_EQ(value.at(0, 1), im) << describe(a, 0) << " / " << describe(b, 0);
  };
  const Element e = GetParam();
  const double tiny = smallest_subnormal(e), huge = largest(e);
  expect(number(e, 0, 0), number(e, 1e-36, 0), 0, 0);
  expect(number(e, 1, 0), number(e, kInfinity, 0), 0, 0);
  expect(number(e, 1, -2), number(e, kInfinity, -kInfinity), 0, 0);
  expect(number(e, huge, huge), number(e, huge, huge), 1, 0);
  expect(number(e, tiny, tiny), number(e, tiny, tiny), 1, 0);
  expect(number(e, tiny, 0), number(e, 0, tiny), 0, -1);
  expect(number(e, huge, huge), number(e, huge, -huge), 0, 1);
}

TEST_P(ComplexDivision, ZeroDivisorsFollowTheTable) {
  const Element e = GetParam();
  const Rows a = number(e, 3, -4), g = number(e, 1, -2), zero = number(e, 0, -0.0);
  for (const Policy policy : kAllPolicies) {
    DivisionTrial trial;
    trial.policy = policy;
    if (policy == Policy::epsilon) trial.eps = 0.5;
    const DivisionOutcome out = divide({&a, &zero, nullptr}, trial);
    trial.backward = true;
    const DivisionOutcome grad = divide({&g, &zero, &a}, trial);
    for (const DivisionOutcome* one : {&out, &grad}) {
      Hits want;
      want[Condition::zero_denominator].add(1, 0);
      want.raising.add(1, 0);
      EXPECT_EQ(difference(one->hits, want), "");
    }
    if (policy == Policy::raise) continue;
    const double signs[] = {1, -1};
    for (std::size_t part = 0; part < 2; ++part) {
      const double value = policy == Policy::stock     ? signs[part] * kInfinity
                           : policy == Policy::nan     ? kNaN
                           : policy == Policy::epsilon ? 2 * a.at(0, part)
                                                       : 0;
      EXPECT_TRUE(same_number(out.output[0].at(0, part), value)) << name(policy) << ' ' << part;
      if (policy == Policy::stock) continue;
      const double first = policy == Policy::nan       ? kNaN
                           : policy == Policy::epsilon ? 2 * g.at(0, part)
                                                       : 0;
      EXPECT_TRUE(same_number(grad.output[0].at(0, part), first)) << name(policy) << ' ' << part;
      const double second = policy == Policy::nan ? kNaN : 0;
      EXPECT_TRUE(same_number(grad.output[1].at(0, part), second)) << name(policy) << ' ' << part;
    }
  }
}

TEST_P(ComplexDivision, NegativeArgumentsAreRegularAndZeroIsNot) {
  const Element e = GetParam();
  const Rows negative = number(e, -4, 0), below = number(e, -4, -0.0), zero = number(e, 0, 0);
  for (const DivisionKind kind : {DivisionKind::rsqrt, DivisionKind::sqrt, DivisionKind::log}) {
    for (const Policy policy : kAllPolicies) {
      DivisionTrial trial;
      trial.kind = kind;
      trial.policy = policy;
      for (const Rows* z : {&negative, &below})
        EXPECT_FALSE(divide({z, nullptr, nullptr}, trial).hits.any());
      const Hits hits = divide({&zero, nullptr, nullptr}, trial).hits;
      const bool latent = kind == DivisionKind::sqrt && policy != Policy::epsilon;
      EXPECT_EQ(hits[Condition::zero_argument].count, latent ? 0u : 1u) << spelled(trial);
      EXPECT_EQ(hits.latent.count, latent ? 1u : 0u) << spelled(trial);
    }
  }
  // The cut lies on the negative axis, and a negative zero below it.
  DivisionTrial trial;
  trial.kind = DivisionKind::sqrt;
  EXPECT_EQ(divide({&negative, nullptr, nullptr}, trial).output[0].at(0, 1), 2);
  EXPECT_EQ(divide({&below, nullptr, nullptr}, trial).output[0].at(0, 1), -2);
}

TEST_P(ComplexDivision, ANaNInEitherPartOfADividendIsRegular) {
  const Element e = GetParam();
  const Rows zero = number(e, 0, 0), g = number(e, 1, 1);
  for (const Rows& a : {number(e, kNaN, 1), number(e, 1, kNaN)}) {
    for (const Policy policy : kAllPolicies) {
      DivisionTrial trial;
      trial.policy = policy;
      EXPECT_FALSE(divide({&a, &zero, nullptr}, trial).hits.any());
      trial.backward = true;
      EXPECT_FALSE(divide({&g, &zero, &a}, trial).hits.any());
    }
  }
}

TEST_P(ComplexDivision, AGradientIsZeroWhereBothPartsAre) {
  const Element e = GetParam();
  const Rows zero = number(e, 0, 0), a = number(e, 1, 1);
  for_every_call([&](const DivisionTrial& trial) {
    if (!trial.backward) return;
    const bool divides = has_divisor(trial.kind);
    for (const Rows& g : {number(e, 0, -0.0), number(e, 0, 1), number(e, kNaN, 0)}) {
      const DivisionOutcome grad = divide({&g, &zero, divides ? &a : nullptr}, trial);
      const bool is_zero = g.at(0, 0) == 0 && g.at(0, 1) == 0;
      EXPECT_EQ(grad.hits.raising.count, is_zero ? 0u : 1u);
      if (!is_zero || trial.policy == Policy::stock || trial.policy == Policy::nan) continue;
      for (std::size_t k = 0; k < outputs_of(trial); ++k) {
        EXPECT_EQ(grad.output[k].at(0, 0), 0);
        EXPECT_EQ(grad.output[k].at(0, 1), 0);
      }
    }
  });
}

TEST_P(ComplexDivision, LayoutsThreadsAndNumbersDoNotShow) {
  Random random(283);
  for_every_call([&](DivisionTrial trial) {
    const Dims sizes = {13, 31, 47};
    Operands operands(GetParam(), product(sizes), 2, 0, 50, random);
    repeat(operands.b.bits, 2, sizes, {1});
    const Inputs inputs = operands.inputs(trial);
    const DivisionOutcome plain = divide(inputs, trial);
    trial.sizes = sizes;
    trial.input[trial.backward || has_divisor(trial.kind) ? 1 : 0].repeated = {1};
    trial.output[0].order = {1, 2, 0};
    trial.output[0].gap = 3;
    trial.output[1].step = 2;
    trial.walk = {1, 2, 0};
    ThreadExecutor threads(4, 1);
    trial.executor = &threads;
    EXPECT_EQ(difference(divide(inputs, trial), plain), "");
  });
}

TEST_P(ComplexDivision, APolicyChangesNoBitOfARegularElement) {
  Random random(284);
  for_every_call([&](const DivisionTrial& trial) {
    const Operands operands(GetParam(), 500, 2, 0, 4, random);
    const Inputs inputs = operands.inputs(trial);
    DivisionTrial stock = trial;
    stock.policy = Policy::stock;
    const DivisionOutcome outcome = divide(inputs, trial), reference = divide(inputs, stock);
    for (std::size_t i = 0; i < 500; ++i) {
      const ComplexNumber<Wide> a(operands.a, i), b(operands.b, i);
      if (complex_condition(trial.kind, a, b, threshold_of(trial, GetParam()))) continue;
      for (std::size_t k = 0; k < outputs_of(trial); ++k)
        EXPECT_TRUE(outcome.output[k].same_row(i, reference.output[k], i)) << spelled(inputs, i);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, ComplexDivision, ::testing::ValuesIn(kParts),
                         [](const auto& instance) { return name(instance.param); });

}  // namespace
}  // namespace safeops::cases
