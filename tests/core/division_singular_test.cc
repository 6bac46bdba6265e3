// The tables of policies of the division family: values, gradients and hits at singular elements.
#include <gtest/gtest.h>

#include "cases/division_everywhere.h"
#include "cases/division_numbers.h"

namespace safeops::cases {
namespace {

class DivisionSingular : public EveryTarget {};

Rows one(Element element, double value) {
  Rows rows(element, 1, 1);
  rows.set(0, 0, value);
  return rows;
}

TEST_F(DivisionSingular, EveryPairOfLandmarksUnderEveryPolicyAndEps) {
  Random random(201);
  std::size_t compared = 0;
  for (const Element element : kElements) {
    for_every_call(element, [&](const DivisionTrial& trial) {
      const Pairs pairs(element, eps_of(trial, element), random);
      Rows g = pairs.a;
      for (std::uint64_t& bits : g.bits) bits = pairs.b.bits[random.below(g.rows)];
      const bool divides = has_divisor(trial.kind);
      const Inputs backward = {divides ? &g : &pairs.a, &pairs.b, divides ? &pairs.a : nullptr};
      const Inputs forward = {divides ? &pairs.a : &pairs.b, divides ? &pairs.b : nullptr, nullptr};
      const Report report = check_everywhere(trial.backward ? backward : forward, trial);
      ASSERT_EQ(report.failure, "") << name(element);
      compared += report.elements;
    });
  }
  EXPECT_GT(compared, 1000000u);
}

/// What a call says of one element.
struct Cell {
  double b, value, first, second;  ///< gradients with g = 2, a = 3
  Condition condition;
};

void expect_number(double got, double want) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << got;
  } else {
    EXPECT_EQ(got, want);
  }
}

void expect_one_hit(const Hits& hits, Condition condition, bool raising) {
  Hits want;
  want[condition].add(1, 0);
  if (raising) want.raising.add(1, 0);
  EXPECT_EQ(difference(hits, want), "");
}

void expect_cell(DivisionTrial trial, const Cell& cell, Element element) {
  const Rows a = one(element, 3), b = one(element, cell.b), g = one(element, 2);
  const bool divides = has_divisor(trial.kind);
  const DivisionOutcome out =
      divide(divides ? Inputs{&a, &b, nullptr} : Inputs{&b, nullptr, nullptr}, trial);
  trial.backward = true;
  const DivisionOutcome grad =
      divide(divides ? Inputs{&g, &b, &a} : Inputs{&g, &b, nullptr}, trial);
  if (trial.policy != Policy::raise) {
    expect_number(out.output[0].at(0, 0), cell.value);
    expect_number(grad.output[0].at(0, 0), cell.first);
    if (divides) expect_number(grad.output[1].at(0, 0), cell.second);
  }
  expect_one_hit(out.hits, cell.condition, true);
  expect_one_hit(grad.hits, cell.condition, true);
}

// Spelled out once more: the oracle and the kernels could be wrong alike.
TEST_F(DivisionSingular, QuotientsFollowTheTable) {
  constexpr Condition kZero = Condition::zero_denominator, kBelow = Condition::below_eps;
  for (const Element element : kElements) {
    DivisionTrial trial;
    const auto expect = [&](Policy policy, const Cell& cell) {
      trial.policy = policy;
      trial.eps = 0.5;
      expect_cell(trial, cell, element);
      ASSERT_FALSE(HasFailure()) << name(element) << ' ' << spelled(trial) << ' ' << cell.b;
    };
    expect(Policy::stock, {0.0, kInfinity, kInfinity, -kInfinity, kZero});
    expect(Policy::stock, {-0.0, -kInfinity, -kInfinity, -kInfinity, kZero});
    expect(Policy::stock, {0.25, 12, 8, -96, kBelow});
    expect(Policy::nan, {0.0, kNaN, kNaN, kNaN, kZero});
    expect(Policy::nan, {0.25, kNaN, kNaN, kNaN, kBelow});
    expect(Policy::epsilon, {0.0, 6, 4, 0, kZero});
    expect(Policy::epsilon, {-0.0, -6, -4, 0, kZero});
    expect(Policy::epsilon, {0.25, 6, 4, 0, kBelow});
    expect(Policy::epsilon, {-0.25, -6, -4, 0, kBelow});
    expect(Policy::zero, {-0.0, 0, 0, 0, kZero});
    expect(Policy::zero, {-0.25, 0, 0, 0, kBelow});
    expect(Policy::raise, {0.0, 0, 0, 0, kZero});
    expect(Policy::raise, {0.25, 0, 0, 0, kBelow});
  }
}

TEST_F(DivisionSingular, RoundedQuotientsFollowTheTable) {
  constexpr Condition kZero = Condition::zero_denominator, kBelow = Condition::below_eps;
  for (const Element element : kElements) {
    for (const DivisionKind kind : {DivisionKind::truncated, DivisionKind::floored}) {
      const bool down = kind == DivisionKind::floored;
      DivisionTrial trial;
      trial.kind = kind;
      const auto expect = [&](Policy policy, const Cell& cell) {
        trial.policy = policy;
        trial.eps = 0.7;
        expect_cell(trial, cell, element);
        ASSERT_FALSE(HasFailure()) << name(element) << ' ' << spelled(trial) << ' ' << cell.b;
      };
      expect(Policy::stock, {0.0, kInfinity, 0, 0, kZero});
      expect(Policy::stock, {-0.0, -kInfinity, 0, 0, kZero});
      expect(Policy::stock, {-0.625, down ? -5.0 : -4.0, 0, 0, kBelow});
      expect(Policy::nan, {0.0, kNaN, kNaN, kNaN, kZero});
      expect(Policy::nan, {-0.625, kNaN, kNaN, kNaN, kBelow});
      expect(Policy::epsilon, {0.0, 4, 0, 0, kZero});
      expect(Policy::epsilon, {-0.625, down ? -5.0 : -4.0, 0, 0, kBelow});
      expect(Policy::zero, {0.0, 0, 0, 0, kZero});
      expect(Policy::zero, {-0.625, 0, 0, 0, kBelow});
      expect(Policy::raise, {0.0, 0, 0, 0, kZero});
    }
  }
}

TEST_F(DivisionSingular, ArgumentsFollowTheTable) {
  constexpr Condition kZero = Condition::zero_argument, kBelow = Condition::below_eps,
                      kNegative = Condition::negative_argument;
  for (const Element element : kElements) {
    DivisionTrial trial;
    const auto expect = [&](DivisionKind kind, Policy policy, const Cell& cell) {
      trial.kind = kind;
      trial.policy = policy;
      trial.eps = 0.25;
      expect_cell(trial, cell, element);
      ASSERT_FALSE(HasFailure()) << name(element) << ' ' << spelled(trial) << ' ' << cell.b;
    };
    expect(DivisionKind::rsqrt, Policy::stock, {0.0, kInfinity, -kInfinity, 0, kZero});
    expect(DivisionKind::rsqrt, Policy::stock, {-0.0, -kInfinity, kInfinity, 0, kZero});
    expect(DivisionKind::rsqrt, Policy::stock, {-4.0, kNaN, kNaN, 0, kNegative});
    expect(DivisionKind::rsqrt, Policy::stock, {0.0625, 4, -64, 0, kBelow});
    expect(DivisionKind::log, Policy::stock, {0.0, -kInfinity, kInfinity, 0, kZero});
    expect(DivisionKind::log, Policy::stock, {-0.0, -kInfinity, -kInfinity, 0, kZero});
    expect(DivisionKind::log, Policy::stock, {-4.0, kNaN, -0.5, 0, kNegative});
    expect(DivisionKind::sqrt, Policy::stock, {-4.0, kNaN, kNaN, 0, kNegative});
    expect(DivisionKind::sqrt, Policy::stock, {0.0625, 0.25, 4, 0, kBelow});
    for (const DivisionKind kind : {DivisionKind::rsqrt, DivisionKind::sqrt, DivisionKind::log}) {
      const double at_eps = kind == DivisionKind::rsqrt  ? 2
                            : kind == DivisionKind::sqrt ? 0.5
                                                         : rounded(element, std::log(0.25));
      for (const auto& [x, condition] :
           {std::pair{-kInfinity, kNegative}, {-4.0, kNegative}, {0.0625, kBelow}}) {
        expect(kind, Policy::nan, {x, kNaN, kNaN, 0, condition});
        expect(kind, Policy::epsilon, {x, at_eps, 0, 0, condition});
        expect(kind, Policy::zero, {x, 0, 0, 0, condition});
        expect(kind, Policy::raise, {x, 0, 0, 0, condition});
      }
      for (const double x : {0.0, -0.0}) {
        expect(kind, Policy::epsilon, {x, at_eps, 0, 0, kZero});
        if (kind == DivisionKind::sqrt) continue;
        expect(kind, Policy::nan, {x, kNaN, kNaN, 0, kZero});
        expect(kind, Policy::zero, {x, 0, 0, 0, kZero});
        expect(kind, Policy::raise, {x, 0, 0, 0, kZero});
      }
    }
  }
}

TEST_F(DivisionSingular, ASquareRootAtZeroIsLatentInForwardAndCountedInBackward) {
  for (const Element element : kElements) {
    for (const double zero : {0.0, -0.0}) {
      for (const Policy policy : {Policy::stock, Policy::nan, Policy::zero, Policy::raise}) {
        DivisionTrial trial;
        trial.kind = DivisionKind::sqrt;
        trial.policy = policy;
        trial.eps = 0.25;
        const Rows x = one(element, zero), g = one(element, 2);
        const DivisionOutcome out = divide({&x, nullptr, nullptr}, trial);
        EXPECT_EQ(out.output[0].bits, x.bits);
        Hits latent;
        latent.latent.add(1, 0);
        EXPECT_EQ(difference(out.hits, latent), "");
        trial.backward = true;
        const DivisionOutcome grad = divide({&g, &x, nullptr}, trial);
        expect_one_hit(grad.hits, Condition::zero_argument, true);
        const double slope = grad.output[0].at(0, 0);
        if (policy == Policy::raise) continue;
        expect_number(slope, policy == Policy::stock ? std::copysign(kInfinity, zero)
                             : policy == Policy::nan ? kNaN
                                                     : 0);
      }
    }
  }
}

TEST_F(DivisionSingular, AZeroGradientIsZeroAndDoesNotRaise) {
  for (const Element element : kElements) {
    for_every_call(element, [&](const DivisionTrial& trial) {
      if (!trial.backward || trial.policy == Policy::stock || trial.policy == Policy::nan) return;
      const bool divides = has_divisor(trial.kind);
      for (const double zero : {0.0, -0.0}) {
        for (const double b : {0.0, -0.0}) {
          const Rows g = one(element, zero), at = one(element, b), a = one(element, 5);
          const DivisionOutcome grad = divide({&g, &at, divides ? &a : nullptr}, trial);
          expect_one_hit(grad.hits,
                         divides ? Condition::zero_denominator : Condition::zero_argument, false);
          for (std::size_t k = 0; k < outputs_of(trial); ++k) EXPECT_EQ(grad.output[k].at(0, 0), 0);
        }
      }
      const Rows g = one(element, kNaN), at = one(element, 0.0), a = one(element, 5);
      const DivisionOutcome grad = divide({&g, &at, divides ? &a : nullptr}, trial);
      EXPECT_EQ(grad.hits.raising.count, 1u) << "a NaN gradient is not 0";
    });
  }
}

TEST_F(DivisionSingular, ANaNDividendIsRegularWhereItIsKnown) {
  for (const Element element : kElements) {
    for (const DivisionKind kind :
         {DivisionKind::quotient, DivisionKind::truncated, DivisionKind::floored}) {
      for (const Policy policy : kAllPolicies) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.policy = policy;
        const Rows a = one(element, kNaN), b = one(element, 0.0), g = one(element, 2);
        const DivisionOutcome out = divide({&a, &b, nullptr}, trial);
        EXPECT_TRUE(std::isnan(out.output[0].at(0, 0)));
        EXPECT_FALSE(out.hits.any());
        trial.backward = true;
        const DivisionOutcome known = divide({&g, &b, &a}, trial);
        EXPECT_FALSE(known.hits.any());
        EXPECT_EQ(known.output[0].at(0, 0), rounds(kind) ? 0 : kInfinity);
        trial.wanted[1] = false;
        const DivisionOutcome absent = divide({&g, &b, nullptr}, trial);
        expect_one_hit(absent.hits, Condition::zero_denominator, true);
      }
    }
  }
}

// An element that was set to eps is not below it.
TEST_F(DivisionSingular, EqualToEpsIsRegular) {
  for (const Element element : kElements) {
    for (const double eps : {0.125, 1.0, 1e-3, 0.1, 3e4, smallest_normal(element) / 5}) {
      for (const DivisionKind kind : kDivisionKinds) {
        // The nearest number of the format, and two on both sides of it.
        Rows b(element, 5, 1);
        const std::uint64_t at = encode(element, eps);
        const Element computed = element == Element::float64 ? element : Element::float32;
        std::size_t below = 0;
        for (std::size_t i = 0; i < 5; ++i) {
          b.bits[i] = at + i - 2;
          below += b.at(i, 0) < rounded(computed, eps) ? 1 : 0;
        }
        EXPECT_TRUE(computed != element || below == 2u);
        DivisionTrial trial;
        trial.kind = kind;
        trial.policy = Policy::zero;
        trial.eps = eps;
        const Inputs inputs =
            has_divisor(kind) ? Inputs{&b, &b, nullptr} : Inputs{&b, nullptr, nullptr};
        EXPECT_EQ(divide(inputs, trial).hits[Condition::below_eps].count, below)
            << name(element) << ' ' << spelled(trial);
      }
    }
  }
}

// Not even where the format computed in has no number as small as eps.
TEST_F(DivisionSingular, AnEpsIsNeverZero) {
  for (const DivisionKind kind : kDivisionKinds) {
    Rows b(Element::float32, 2, 1);
    b.bits = {0, 1};
    DivisionTrial trial;
    trial.kind = kind;
    trial.policy = Policy::zero;
    trial.eps = 1e-60;
    EXPECT_EQ(check_everywhere({&b, has_divisor(kind) ? &b : nullptr, nullptr}, trial).failure, "");
  }
}

TEST_F(DivisionSingular, AThresholdAboveEveryNumberLeavesInfinityRegular) {
  for (const Element element : {Element::float16, Element::bfloat16, Element::float32}) {
    for (const DivisionKind kind : kDivisionKinds) {
      Rows b(element, 3, 1);
      b.set(0, 0, largest(element));
      b.set(1, 0, kInfinity);
      b.set(2, 0, kNaN);
      DivisionTrial trial;
      trial.kind = kind;
      trial.policy = Policy::zero;
      trial.eps = 1e300;
      trial.number[0] = 2;
      const Inputs inputs =
          has_divisor(kind) ? Inputs{nullptr, &b, nullptr} : Inputs{&b, nullptr, nullptr};
      EXPECT_EQ(check_everywhere(inputs, trial).failure, "");
      EXPECT_EQ(divide(inputs, trial).hits[Condition::below_eps].count, 1u);
    }
  }
}

}  // namespace
}  // namespace safeops::cases
