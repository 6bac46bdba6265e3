// The kernel for every p, real and complex, against the definition of the p-norm.
#include <gtest/gtest.h>

#include "cases/executors.h"
#include "cases/normalize_check.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

constexpr double kOrders[] = {0, 0.5, 1, 1.5, 2, 3, 7.5, 100, kInfinity, -1, -2.5, -kInfinity};

Trial trial_of(double p, bool complex) {
  Trial trial;
  trial.p = p;
  trial.road = Road::any;
  trial.complex = complex;
  return trial;
}

/// Calls body(element, trial) for every p over real and complex numbers.
template <class Body>
void everywhere(const Body& body) {
  std::size_t calls = 0;
  for (const double p : kOrders) {
    for (const Element element : kElements) {
      for (const bool complex : {false, true}) {
        if (complex && format(element).bytes == 2) continue;
        body(element, trial_of(p, complex));
        ASSERT_FALSE(::testing::Test::HasFailure())
            << name(element) << " p " << p << (complex ? " complex" : "");
        ++calls;
      }
    }
  }
  EXPECT_EQ(calls, std::size(kOrders) * 6);
}

/// `length` counts elements; complex ones have two parts each.
Rows rows_of(Element element, const Trial& trial, std::size_t rows, std::size_t length, Fill fill,
             double scale, Random& random) {
  return random_rows(element, rows, trial.complex ? 2 * length : length, fill, scale, random);
}

void check_both(const Rows& x, const Rows& g, Trial trial, Policy policy, double eps) {
  trial.policy = resolve(policy, eps, false);
  const Outcome out = forward(x, trial);
  EXPECT_EQ(check_forward(x, out, trial).failure, "") << name(policy);
  trial.policy = resolve(policy, eps, true);
  EXPECT_EQ(check_backward(g, x, backward(g, x, out.saved, trial), trial).failure, "")
      << name(policy);
}

TEST(NormalizeAny, RegularRowsAreAccurate) {
  Random random(70);
  everywhere([&](Element element, const Trial& trial) {
    for (const std::size_t length : {1, 2, 3, 8, 17, 65}) {
      const Rows x =
          rows_of(element, trial, 3, static_cast<std::size_t>(length), Fill::uniform, 1.0, random);
      const Rows g =
          rows_of(element, trial, 3, static_cast<std::size_t>(length), Fill::uniform, 1.0, random);
      check_both(x, g, trial, Policy::zero, 0);
    }
  });
}

TEST(NormalizeAny, TiesShareTheSlopeOfAnExtremeNorm) {
  Random random(71);
  for (const double p : {kInfinity, -kInfinity}) {
    for (const Element element : kElements) {
      const Rows x = random_rows(element, 6, 9, Fill::equal, 3.0, random);
      const Rows g = random_rows(element, 6, 9, Fill::uniform, 1.0, random);
      check_both(x, g, trial_of(p, false), Policy::zero, 0);
    }
  }
}

TEST(NormalizeAny, ZeroElementsOfARegularRowHaveNoSlope) {
  Random random(72);
  everywhere([&](Element element, const Trial& trial) {
    const Rows x = rows_of(element, trial, 4, 13, Fill::sparse, 1.0, random);
    const Rows g = rows_of(element, trial, 4, 13, Fill::uniform, 1.0, random);
    // For p < 0 a zero element makes the norm 0, and the row follows the policy.
    for (const Policy policy : kAllPolicies)
      check_both(x, g, trial, policy, policy == Policy::epsilon ? 0.01 : 0);
  });
}

TEST(NormalizeAny, SingularRowsFollowThePolicy) {
  Random random(73);
  everywhere([&](Element element, const Trial& trial) {
    Rows x = rows_of(element, trial, 9, 6, Fill::uniform, 1.0, random);
    Rows g = rows_of(element, trial, 9, 6, Fill::uniform, 1.0, random);
    for (const std::size_t r : {0, 4, 8}) {
      for (std::size_t i = 0; i < x.length; ++i) x.set(r, i, i % 2 == 0 ? 0.0 : -0.0);
    }
    for (const std::size_t r : {2, 4}) {
      for (std::size_t i = 0; i < g.length; ++i) g.set(r, i, i % 2 == 0 ? 0.0 : -0.0);
    }
    fill_row(x, 2, Fill::uniform, 1e-3, random);
    fill_row(x, 6, Fill::uniform, 1e-3, random);
    for (const Policy policy : kAllPolicies) {
      for (const double eps : {0.003, 0.25}) check_both(x, g, trial, policy, eps);
    }
  });
}

TEST(NormalizeAny, NaNFillsItsRowAndIsNoticed) {
  Random random(74);
  everywhere([&](Element element, const Trial& trial) {
    for (const std::size_t at : {0, 2, 5}) {
      Rows x = rows_of(element, trial, 3, 6, Fill::uniform, 1.0, random);
      x.set(1, static_cast<std::size_t>(at), kNaN);
      const Rows g = rows_of(element, trial, 3, 6, Fill::uniform, 1.0, random);
      for (const Policy policy : kAllPolicies) check_both(x, g, trial, policy, 0.5);
    }
  });
}

TEST(NormalizeAny, InfinityIsNoticedAndNoPolicyApplies) {
  Random random(75);
  everywhere([&](Element element, const Trial& trial) {
    for (const double value : {kInfinity, -kInfinity}) {
      Rows x = rows_of(element, trial, 3, 6, Fill::uniform, 1.0, random);
      x.set(1, 3, value);
      const Rows g = rows_of(element, trial, 3, 6, Fill::uniform, 1.0, random);
      for (const Policy policy : kAllPolicies) check_both(x, g, trial, policy, 1e-6);
    }
  });
}

TEST(NormalizeAny, ExtremeScalesAreRegular) {
  Random random(76);
  everywhere([&](Element element, const Trial& trial) {
    for (const double scale : scales(element)) {
      // n itself has to be a number of the accumulation type for the row to be representable.
      const Rows x = rows_of(element, trial, 2, 3, Fill::uniform, scale, random);
      check_both(x, x, trial, Policy::zero, 0);
    }
  });
}

TEST(NormalizeAny, ExecutorsAndLayoutsDoNotShow) {
  Random random(77);
  everywhere([&](Element element, Trial trial) {
    trial.policy = resolve(Policy::nan, 0.01, true);
    Rows x = rows_of(element, trial, 60, 7, Fill::uniform, 1.0, random);
    for (std::size_t r = 3; r < 60; r += 10) fill_row(x, r, Fill::uniform, 0.0, random);
    const Rows g = rows_of(element, trial, 60, 7, Fill::uniform, 1.0, random);
    const Outcome out = forward(x, trial), grad = backward(g, x, out.saved, trial);
    ThreadExecutor threads(3, 1);
    for (const std::vector<std::size_t>& kept :
         {std::vector<std::size_t>{60}, {3, 20}, {3, 4, 5}}) {
      for (const bool in_place : {false, true}) {
        Trial other = trial;
        other.executor = &threads;
        other.in_place = in_place;
        other.input.kept = other.second.kept = other.output.kept = kept;
        other.input.gap = 3;
        other.output.shift = 1;
        other.output.reversed = true;
        const Outcome there = forward(x, other), grad_there = backward(g, x, out.saved, other);
        EXPECT_EQ(there.values, out.values);
        EXPECT_EQ(grad_there.values, grad.values);
        EXPECT_EQ(std::memcmp(&there.hits, &out.hits, sizeof(Hits)), 0);
        EXPECT_EQ(std::memcmp(&grad_there.hits, &grad.hits, sizeof(Hits)), 0);
        EXPECT_EQ(there.disturbed + grad_there.disturbed, 0u);
      }
    }
  });
}

TEST(NormalizeAny, InspectingCountsTheSameAndWritesNothing) {
  Random random(78);
  everywhere([&](Element element, Trial trial) {
    Rows x = rows_of(element, trial, 7, 5, Fill::uniform, 1.0, random);
    fill_row(x, 3, Fill::uniform, 0.0, random);
    trial.inspect = true;
    check_both(x, x, trial, Policy::raise, 0);
  });
}

}  // namespace
}  // namespace safeops::cases
