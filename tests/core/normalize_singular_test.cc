// The table of policies: values, gradients and hits at singular rows.
#include <gtest/gtest.h>

#include "cases/normalize_check.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

constexpr double kOrders[] = {2, 1, kInfinity};
constexpr RowLayout::Kind kKinds[] = {RowLayout::Kind::contiguous, RowLayout::Kind::side_by_side};
constexpr Road kFastRoads[] = {Road::dispatched, Road::plain};

Trial trial_of(double p, Road road, RowLayout::Kind kind) {
  Trial trial;
  trial.p = p;
  trial.road = road;
  trial.input.kind = trial.second.kind = trial.output.kind = kind;
  return trial;
}

/// Calls body(element, trial) for every element, order, kernel and layout.
template <class Body>
void everywhere(const Body& body) {
  std::size_t calls = 0;
  for (const Element element : kElements) {
    for (const double p : kOrders) {
      for (const Road road : kFastRoads) {
        for (const RowLayout::Kind kind : kKinds) {
          body(element, trial_of(p, road, kind));
          ++calls;
        }
      }
    }
  }
  EXPECT_EQ(calls, 4u * 3 * 2 * 2);
}

Rows zero_rows(Element element, std::size_t rows, std::size_t length) {
  return Rows(element, rows, length);
}

TEST(NormalizeSingular, ZeroRowsFollowThePolicyTable) {
  everywhere([](Element element, Trial trial) {
    for (const std::size_t length : {1, 3, 16, 17, 40, 256, 257, 9000}) {
      const std::size_t rows = length > 1000 ? 2 : 21;
      const Rows x = zero_rows(element, rows, static_cast<std::size_t>(length));
      Rows g(element, rows, x.length);
      for (std::size_t i = 0; i < g.bits.size(); ++i)
        g.bits[i] = encode(element, i % 2 == 0 ? 1.0 : -0.5);
      for (const Policy policy : kAllPolicies) {
        const double eps = 0.125;
        trial.policy = resolve(policy, eps, false);
        const Outcome out = forward(x, trial);
        trial.policy = resolve(policy, eps, true);
        const Outcome grad = backward(g, x, out.saved, trial);
        for (std::size_t i = 0; i < x.bits.size(); ++i) {
          const double y = decode(element, out.values.bits[i]);
          const double dx = decode(element, grad.values.bits[i]);
          switch (policy) {
            case Policy::stock:
            case Policy::epsilon:
              ASSERT_EQ(out.values.bits[i], 0u);
              ASSERT_EQ(dx, i % 2 == 0 ? 8.0 : -4.0);
              break;
            case Policy::nan:
              ASSERT_TRUE(std::isnan(y) && std::isnan(dx));
              break;
            case Policy::zero:
              ASSERT_EQ(out.values.bits[i], 0u);
              ASSERT_EQ(dx, 0.0);
              break;
            case Policy::raise:
              ASSERT_EQ(dx, 0.0);
              break;
          }
        }
        for (const Outcome* outcome : {&out, &grad}) {
          ASSERT_EQ(outcome->hits[Condition::zero_norm].count, rows);
          ASSERT_EQ(outcome->hits[Condition::zero_norm].first, 0u);
          ASSERT_EQ(outcome->hits[Condition::below_eps].count, 0u);
          ASSERT_EQ(outcome->hits.raising.count, rows);
        }
      }
    }
  });
}

// pytorch#184575, as the contract states it.
TEST(NormalizeSingular, ThreeZerosHaveTheDocumentedGradientUnderEveryPolicy) {
  const Rows x = zero_rows(Element::float32, 1, 3);
  Rows g = untouched(x);
  for (std::size_t i = 0; i < 3; ++i) g.set(0, i, 1.0);
  const auto gradient_at_zero = [&](Policy policy, std::optional<double> eps) {
    Trial trial;
    trial.policy = resolved(policy, eps, Element::float32, false);
    const Outcome out = forward(x, trial);
    trial.policy = resolved(policy, eps, Element::float32, true);
    return backward(g, x, out.saved, trial).values.at(0, 1);
  };
  EXPECT_EQ(gradient_at_zero(Policy::stock, std::nullopt), static_cast<double>(1e12f));
  EXPECT_EQ(gradient_at_zero(Policy::epsilon, 1e-3), 1e3);
  EXPECT_EQ(gradient_at_zero(Policy::zero, std::nullopt), 0.0);
  EXPECT_TRUE(std::isnan(gradient_at_zero(Policy::nan, std::nullopt)));
}

TEST(NormalizeSingular, OneZeroElementIsNotASingularRow) {
  everywhere([](Element element, Trial trial) {
    Rows x(element, 1, 3);
    x.set(0, 0, 1.0);
    Rows g(element, 1, 3);
    for (std::size_t i = 0; i < 3; ++i) g.set(0, i, 1.0);
    for (const Policy policy : kAllPolicies) {
      trial.policy = resolved(policy, std::nullopt, element, false);
      const Outcome out = forward(x, trial);
      EXPECT_EQ(out.values, x);
      EXPECT_FALSE(out.hits.any());
      trial.policy = resolved(policy, std::nullopt, element, true);
      const Outcome grad = backward(g, x, out.saved, trial);
      EXPECT_EQ(grad.values.at(0, 0), 0.0);
      EXPECT_EQ(grad.values.at(0, 1), 1.0);
      EXPECT_EQ(grad.values.at(0, 2), 1.0);
      EXPECT_FALSE(grad.hits.any());
    }
  });
}

TEST(NormalizeSingular, MinusZeroIsZeroAndKeepsItsSign) {
  everywhere([](Element element, Trial trial) {
    Rows x(element, 2, 5);
    for (std::size_t i = 0; i < 5; ++i) x.set(0, i, i % 2 == 0 ? -0.0 : 0.0);
    for (std::size_t i = 0; i < 5; ++i) x.set(1, i, i == 3 ? 2.0 : i % 2 == 0 ? -0.0 : 0.0);
    trial.policy = resolve(Policy::stock, kStockEps, false);
    const Outcome out = forward(x, trial);
    EXPECT_EQ(check_forward(x, out, trial).failure, "");
    EXPECT_EQ(out.hits[Condition::zero_norm].count, 1u);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(out.values.bits[i], x.bits[i]) << i;
    EXPECT_TRUE(std::signbit(out.values.at(1, 2)));
  });
}

TEST(NormalizeSingular, SmallestSubnormalIsNotZero) {
  everywhere([](Element element, Trial trial) {
    for (const std::size_t length : {1, 5, 33, 300}) {
      for (const std::size_t at : positions(static_cast<std::size_t>(length))) {
        Rows x(element, 1, static_cast<std::size_t>(length));
        x.set(0, at, -smallest_subnormal(element));
        trial.policy = resolve(Policy::zero, 0, false);
        const Outcome out = forward(x, trial);
        ASSERT_EQ(out.values.at(0, at), -1.0) << name(element) << ' ' << length << ' ' << at;
        ASSERT_EQ(out.hits[Condition::zero_norm].count, 0u);
        ASSERT_EQ(out.hits.raising.count, 0u);
        ASSERT_EQ(out.hits[Condition::rescued].count, 1u);
      }
    }
  });
}

TEST(NormalizeSingular, EqualityWithEpsIsRegular) {
  everywhere([](Element element, Trial trial) {
    const double eps = 0.25;
    const double step = std::ldexp(eps, 1 - format(element).precision);
    Rows x(element, 3, 1);
    x.set(0, 0, eps - step / 2);
    x.set(1, 0, eps);
    x.set(2, 0, -(eps + step));
    for (const Policy policy : kAllPolicies) {
      trial.policy = resolve(policy, eps, false);
      const Outcome out = forward(x, trial);
      EXPECT_EQ(out.hits[Condition::below_eps].count, 1u) << name(policy);
      EXPECT_EQ(out.hits[Condition::below_eps].first, 0u);
      EXPECT_EQ(out.hits.raising.count, 1u);
      EXPECT_EQ(out.values.at(1, 0), 1.0);
      EXPECT_EQ(out.values.at(2, 0), -1.0);
      EXPECT_EQ(check_forward(x, out, trial).failure, "");
      trial.policy = resolve(policy, eps, true);
      Rows g(element, 3, 1);
      for (std::size_t r = 0; r < 3; ++r) g.set(r, 0, 1.0);
      const Outcome grad = backward(g, x, out.saved, trial);
      EXPECT_EQ(grad.hits[Condition::below_eps].count, 1u) << name(policy);
      EXPECT_EQ(check_backward(g, x, grad, trial).failure, "");
    }
  });
}

TEST(NormalizeSingular, MixedRowsAreCountedAndFilledOneByOne) {
  Random random(20);
  std::size_t checked = 0;
  everywhere([&](Element element, Trial trial) {
    for (const std::size_t length : {2, 7, 16, 30, 150, 260}) {
      const std::size_t rows = length < 100 ? 43 : 11;
      Rows x =
          random_rows(element, rows, static_cast<std::size_t>(length), Fill::uniform, 1.0, random);
      Rows g =
          random_rows(element, rows, static_cast<std::size_t>(length), Fill::uniform, 1.0, random);
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t kind = random.below(5);
        for (std::size_t i = 0; i < x.length; ++i) {
          if (kind == 1) x.set(r, i, std::copysign(0.0, x.at(r, i)));
          if (kind == 2) x.set(r, i, x.at(r, i) * 1e-4);
        }
        if (kind == 3) x.set(r, random.below(x.length), kNaN);
        if (kind == 4)
          x.set(r, random.below(x.length), random.below(2) == 0 ? kInfinity : -kInfinity);
        if (random.below(3) == 0) {
          for (std::size_t i = 0; i < g.length; ++i) g.set(r, i, std::copysign(0.0, g.at(r, i)));
        }
      }
      for (const Policy policy : kAllPolicies) {
        for (const double eps : {0.03, policy == Policy::epsilon ? 0.01 : 0.0}) {
          trial.policy = resolve(policy, eps, false);
          const Outcome out = forward(x, trial);
          ASSERT_EQ(check_forward(x, out, trial).failure, "") << name(policy);
          trial.policy = resolve(policy, eps, true);
          const Outcome grad = backward(g, x, out.saved, trial);
          ASSERT_EQ(check_backward(g, x, grad, trial).failure, "") << name(policy);
          ++checked;
        }
      }
    }
  });
  EXPECT_EQ(checked, 48u * 6 * 5 * 2);
}

TEST(NormalizeSingular, AnIncomingGradientOfZeroGivesZeroUnlessThePolicyMarks) {
  everywhere([](Element element, Trial trial) {
    const Rows x = zero_rows(element, 3, 20);
    Rows g(element, 3, 20);
    for (std::size_t i = 0; i < 20; ++i) g.set(1, i, -0.0);
    g.set(2, 19, smallest_subnormal(element));
    for (const Policy policy : kAllPolicies) {
      trial.policy = resolved(policy, std::nullopt, element, false);
      const Outcome out = forward(x, trial);
      trial.policy = resolved(policy, std::nullopt, element, true);
      const Outcome grad = backward(g, x, out.saved, trial);
      EXPECT_EQ(grad.hits[Condition::zero_norm].count, 3u) << "counted whatever the gradient is";
      EXPECT_EQ(grad.hits.raising.count, 1u) << name(policy);
      EXPECT_EQ(grad.hits.raising.first, 2u) << name(policy);
      for (std::size_t r = 0; r < 2; ++r) {
        for (std::size_t i = 0; i < 20; ++i) {
          const double value = grad.values.at(r, i);
          EXPECT_TRUE(policy == Policy::nan ? std::isnan(value) : value == 0) << name(policy);
        }
      }
    }
  });
}

// g / eps element by element: neither a neighbour that is not finite nor one of another size shows.
TEST(NormalizeSingular, AFlooredRowDividesEachGradientByItself) {
  everywhere([](Element element, Trial trial) {
    const double least = smallest_subnormal(element), most = largest(element);
    for (const double tiny : {0.0, least}) {
      Rows x(element, 5, 3), g(element, 5, 3);
      const double gradients[5][3] = {{3 * least, kNaN, 1.0},
                                      {3 * least, kInfinity, -1.0},
                                      {3 * least, most, -most},
                                      {3 * least, -5 * least, 0.0},
                                      {3 * least, 0.125, -0.0}};
      for (std::size_t r = 0; r < 5; ++r) {
        x.set(r, 1, tiny);
        for (std::size_t i = 0; i < 3; ++i) g.set(r, i, gradients[r][i]);
      }
      for (const double eps : {1e-3, 4.0}) {
        trial.policy = resolve(Policy::stock, eps, false);
        const Outcome out = forward(x, trial);
        trial.policy = resolve(Policy::stock, eps, true);
        const Outcome grad = backward(g, x, out.saved, trial);
        EXPECT_EQ(check_backward(g, x, grad, trial).failure, "") << name(element);
      }
    }
  });
}

// 1 / eps is infinite here, but eps is not 0.
TEST(NormalizeSingular, ASubnormalEpsIsAFloorAsAnyOther) {
  everywhere([](Element element, Trial trial) {
    const Rows x(element, 2, 3);
    Rows g(element, 2, 3);
    g.set(1, 1, 1.0);
    trial.policy = resolve(Policy::stock, 1e-310, false);
    const Outcome out = forward(x, trial);
    EXPECT_EQ(check_forward(x, out, trial).failure, "");
    trial.policy = resolve(Policy::stock, 1e-310, true);
    EXPECT_EQ(check_backward(g, x, backward(g, x, out.saved, trial), trial).failure, "");
  });
}

TEST(NormalizeSingular, ANaNGradientAtASingularRowRaises) {
  everywhere([](Element element, Trial trial) {
    const Rows x = zero_rows(element, 1, 20);
    Rows g(element, 1, 20);
    g.set(0, 7, kNaN);
    trial.policy = resolve(Policy::raise, 0, false);
    const Outcome out = forward(x, trial);
    trial.policy = resolve(Policy::raise, 0, true);
    EXPECT_EQ(backward(g, x, out.saved, trial).hits.raising.count, 1u);
  });
}

/// A NaN row, an infinite one, one with both, and an ordinary one.
void check_specials_at(std::size_t at, Element element, std::size_t length, Policy policy,
                       Trial trial, Random& random) {
  Rows x = random_rows(element, 4, length, Fill::uniform, 1.0, random);
  x.set(0, at, kNaN);
  x.set(1, at, -kInfinity);
  x.set(2, at, kInfinity);
  x.set(2, length - 1 - at, kNaN);
  const Rows g = random_rows(element, 4, length, Fill::uniform, 1.0, random);
  const double eps = policy == Policy::stock ? 1e10 : 0.1;
  trial.policy = resolve(policy, eps, false);
  const Outcome out = forward(x, trial);
  EXPECT_EQ(check_forward(x, out, trial).failure, "") << name(policy) << " special at " << at;
  EXPECT_EQ(out.hits[Condition::nonfinite_input].count, 3u);
  trial.policy = resolve(policy, eps, true);
  const Outcome grad = backward(g, x, out.saved, trial);
  EXPECT_EQ(check_backward(g, x, grad, trial).failure, "") << name(policy) << " special at " << at;
}

TEST(NormalizeNonfinite, NaNAndInfinityAreNoticedAtEveryPositionAndNeverHits) {
  Random random(21);
  std::size_t checked = 0;
  everywhere([&](Element element, const Trial& trial) {
    for (const std::size_t length : {1, 2, 5, 16, 17, 31, 64, 65, 255, 257, 600}) {
      for (const std::size_t at : positions(static_cast<std::size_t>(length))) {
        check_specials_at(at, element, static_cast<std::size_t>(length),
                          kAllPolicies[checked++ % 5], trial, random);
        ASSERT_FALSE(::testing::Test::HasFailure()) << length;
      }
    }
  });
  EXPECT_EQ(checked, 48u * (1 + 2 + 9 * 3));
}

TEST(NormalizeNonfinite, RowsOfSeveralSlicesToo) {
  Random random(22);
  std::size_t checked = 0;
  for (const double p : kOrders) {
    for (const std::size_t at : positions(8193)) {
      const Element element = kElements[checked % 4];
      const Trial trial = trial_of(p, Road::dispatched, RowLayout::Kind::contiguous);
      check_specials_at(at, element, 8193, kAllPolicies[checked++ % 5], trial, random);
    }
  }
  EXPECT_EQ(checked, 9u);
}

TEST(NormalizeRescued, IsNoticedWhereTheSquareLeavesTheNormalRange) {
  everywhere([](Element element, Trial trial) {
    const double low = std::sqrt(smallest_normal(element)), high = std::sqrt(largest(element));
    Rows x(element, 4, 2);
    x.set(0, 0, low * 0.9);
    x.set(1, 1, low * 1.1);
    x.set(2, 0, high * 0.9);
    x.set(3, 1, high * 1.1);
    for (const Policy policy : kAllPolicies) {
      trial.policy = resolved(policy, std::nullopt, element, false);
      const Outcome out = forward(x, trial);
      EXPECT_EQ(out.hits[Condition::rescued].count, 2u) << name(element) << ' ' << name(policy);
      EXPECT_EQ(out.hits[Condition::rescued].first, 0u);
      EXPECT_EQ(check_forward(x, out, trial).failure, "");
    }
  });
}

}  // namespace
}  // namespace safeops::cases
