#include "core/resolution.h"

#include <gtest/gtest.h>

#include "cases/normalize_case.h"

namespace safeops::cases {
namespace {

using Refusal = ResolvedEps::Refusal;

TEST(ResolveEps, DefaultDependsOnPolicyAndDtype) {
  for (const Element element : kElements) {
    for (const Policy policy : kAllPolicies) {
      const double floor = element == Element::float16 ? 0x1p-14 : 1e-12;
      const double expected = policy == Policy::stock     ? kStockEps
                              : policy == Policy::epsilon ? floor
                                                          : 0.0;
      const ResolvedEps eps = resolve_eps(policy, std::nullopt, kStockEps, element);
      EXPECT_EQ(eps.refusal, Refusal::none) << name(policy) << ' ' << name(element);
      EXPECT_EQ(eps.value, expected) << name(policy) << ' ' << name(element);
    }
  }
}

TEST(ResolveEps, StockTakesTheConstantOfItsOperator) {
  EXPECT_EQ(resolve_eps(Policy::stock, std::nullopt, 0.0, Element::float32).value, 0.0);
  EXPECT_EQ(resolve_eps(Policy::stock, std::nullopt, 1e-8, Element::float32).value, 1e-8);
  EXPECT_EQ(resolve_eps(Policy::zero, std::nullopt, 1e-8, Element::float32).value, 0.0);
}

TEST(ResolveEps, ExplicitEpsHoldsUnderEveryPolicyUnrounded) {
  for (const Element element : kElements) {
    for (const Policy policy : kAllPolicies) {
      for (const double given : {1e-3, 0.1, 1.0, 1e10}) {
        const ResolvedEps eps = resolve_eps(policy, given, kStockEps, element);
        EXPECT_EQ(eps.refusal, Refusal::none)
            << name(policy) << ' ' << name(element) << ' ' << given;
        EXPECT_EQ(eps.value, given) << name(policy) << ' ' << name(element);
      }
    }
  }
}

TEST(ResolveEps, NegativeAndNonFiniteAreRefusedUnderEveryPolicy) {
  for (const Element element : kElements) {
    for (const Policy policy : kAllPolicies) {
      for (const double given : {-1.0, -1e-12, -5e-324, kInfinity, -kInfinity, kNaN}) {
        EXPECT_EQ(resolve_eps(policy, given, kStockEps, element).refusal,
                  Refusal::not_finite_or_negative)
            << name(policy) << ' ' << name(element) << ' ' << given;
      }
    }
  }
}

TEST(ResolveEps, ZeroIsRefusedUnderEpsilonOnly) {
  for (const Element element : kElements) {
    for (const Policy policy : kAllPolicies) {
      const ResolvedEps eps = resolve_eps(policy, 0.0, kStockEps, element);
      if (policy == Policy::epsilon) {
        EXPECT_EQ(eps.refusal, Refusal::too_small) << name(element);
      } else {
        EXPECT_EQ(eps.refusal, Refusal::none) << name(policy) << ' ' << name(element);
        EXPECT_EQ(eps.value, 0.0);
      }
    }
  }
}

// A floor of -0.0 would turn the sign of g / 0.
TEST(ResolveEps, MinusZeroIsZero) {
  const ResolvedEps eps = resolve_eps(Policy::stock, -0.0, kStockEps, Element::float64);
  EXPECT_EQ(eps.refusal, Refusal::none);
  EXPECT_EQ(eps.value, 0.0);
  EXPECT_FALSE(std::signbit(eps.value));
}

double at_floor(AtFloor what, double eps) {
  switch (what) {
    case AtFloor::reciprocal:
      return 1 / eps;
    case AtFloor::reciprocal_root:
      return 1 / std::sqrt(eps);
    case AtFloor::finite:
      break;
  }
  return std::sqrt(eps);
}

constexpr AtFloor kAllAtFloor[] = {AtFloor::reciprocal, AtFloor::reciprocal_root, AtFloor::finite};

TEST(ResolveEps, RefusalNamesTheSmallestUsableEps) {
  for (const Element element : kElements) {
    for (const AtFloor what : kAllAtFloor) {
      const auto under_epsilon = [&](double eps) {
        return resolve_eps(Policy::epsilon, eps, kStockEps, element, what);
      };
      const double smallest = under_epsilon(0).smallest_usable;
      EXPECT_EQ(under_epsilon(smallest).refusal, Refusal::none) << name(element) << ' ' << smallest;
      EXPECT_EQ(under_epsilon(smallest).value, smallest) << name(element);
      EXPECT_TRUE(std::isfinite(rounded(element, at_floor(what, smallest))))
          << name(element) << ' ' << smallest;
      const double below = std::nextafter(smallest, 0);
      EXPECT_EQ(under_epsilon(below).refusal, Refusal::too_small) << name(element) << ' ' << below;
      EXPECT_EQ(under_epsilon(below).smallest_usable, smallest) << name(element);
    }
  }
}

TEST(ResolveEps, NoEpsIsTooSmallWhereNothingIsFloored) {
  for (const Element element : kElements) {
    const double tiny = 0.5 / largest(element);
    for (const Policy policy : {Policy::stock, Policy::nan, Policy::zero, Policy::raise}) {
      for (const AtFloor what : kAllAtFloor) {
        EXPECT_EQ(resolve_eps(policy, tiny, kStockEps, element, what).value, tiny)
            << name(policy) << ' ' << name(element);
      }
    }
  }
}

TEST(ResolveEps, EveryPositiveEpsHasALogarithm) {
  for (const Element element : kElements) {
    const double tiniest = std::numeric_limits<double>::denorm_min();
    EXPECT_EQ(resolve_eps(Policy::epsilon, tiniest, 0, element, AtFloor::finite).value, tiniest)
        << name(element);
  }
}

TEST(Resolve, StockAndEpsilonFloorTheDenominator) {
  for (const Policy policy : {Policy::stock, Policy::epsilon}) {
    for (const bool backward : {false, true}) {
      const Resolution resolution = resolve(policy, 1e-3, backward);
      EXPECT_EQ(resolution.threshold, 1e-3);
      EXPECT_EQ(resolution.floor, 1e-3);
      EXPECT_FALSE(resolution.fills);
    }
  }
}

TEST(Resolve, TheOthersFillAndKeepTheThreshold) {
  for (const bool backward : {false, true}) {
    for (const Policy policy : {Policy::nan, Policy::zero, Policy::raise}) {
      const Resolution resolution = resolve(policy, 1e-3, backward);
      EXPECT_EQ(resolution.threshold, 1e-3) << name(policy);
      EXPECT_TRUE(resolution.fills) << name(policy);
    }
    EXPECT_TRUE(std::isnan(resolve(Policy::nan, 0, backward).fill));
    EXPECT_EQ(resolve(Policy::zero, 0, backward).fill, 0);
    EXPECT_FALSE(std::signbit(resolve(Policy::zero, 0, backward).fill));
  }
  EXPECT_EQ(resolve(Policy::raise, 0, true).fill, 0)
      << "masking after the op must stay safe in backward";
}

}  // namespace
}  // namespace safeops::cases
