// A policy never changes a bit of a regular row, forward or backward, whatever its neighbours are.
#include <gtest/gtest.h>

#include "cases/normalize_check.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

constexpr double kOrders[] = {2, 1, kInfinity};

/// Both directions of one call under one policy.
struct Both {
  Outcome forward, backward;
};

Both call(const Rows& x, const Rows& g, Policy policy, std::optional<double> eps, Trial trial) {
  Both both;
  trial.policy = resolved(policy, eps, x.element, false);
  both.forward = forward(x, trial);
  trial.policy = resolved(policy, eps, x.element, true);
  both.backward = backward(g, x, both.forward.saved, trial);
  return both;
}

/// Compares the rows for which chosen(row) says so; returns how many those were.
template <class Chosen>
std::size_t expect_same_rows(const Both& a, const Both& b, const Chosen& chosen) {
  std::size_t compared = 0;
  for (std::size_t r = 0; r < a.forward.values.rows; ++r) {
    if (!chosen(r)) continue;
    EXPECT_TRUE(a.forward.values.same_row(r, b.forward.values, r)) << "forward, row " << r;
    EXPECT_TRUE(a.backward.values.same_row(r, b.backward.values, r)) << "backward, row " << r;
    EXPECT_EQ(std::memcmp(&a.forward.saved[r], &b.forward.saved[r], sizeof(double)), 0)
        << "saved norm, row " << r;
    ++compared;
  }
  return compared;
}

Trial random_trial(std::size_t rows, Random& random) {
  Trial trial;
  trial.p = random.pick(kOrders);
  if (random.below(2) == 0) {
    trial.input.kind = trial.second.kind = trial.output.kind = RowLayout::Kind::side_by_side;
  }
  for (Arrangement* arrangement : {&trial.input, &trial.second, &trial.output}) {
    if (rows % 4 == 0) arrangement->kept = {rows / 4, 4};
    arrangement->gap = random.below(3);
    arrangement->shift = random.below(8);
  }
  return trial;
}

/// Mostly rows whose norm is at least 1e-4, which every policy calls regular; about one in eight is
/// zero instead.
Rows mostly_regular(Element element, std::size_t rows, std::size_t length, Random& random) {
  Rows x(element, rows, length);
  const double top = element == Element::float16 ? 16 : element == Element::float64 ? 1000 : 120;
  for (std::size_t r = 0; r < rows; ++r) {
    if (random.below(8) == 0) continue;
    const double scale = std::ldexp(1.0, random.between(-10, static_cast<int>(top) - 1));
    fill_row(x, r, random.below(3) == 0 ? Fill::sparse : Fill::uniform, scale, random);
    x.set(r, random.below(length), random.below(2) == 0 ? -scale : scale);
  }
  return x;
}

TEST(NormalizeInvariance, HundredThousandRegularRowsAgreeUnderEveryPolicy) {
  Random random(30);
  std::size_t compared = 0, skipped = 0;
  for (int call_number = 0; compared < 100000; ++call_number) {
    ASSERT_LT(call_number, 20000) << "too few regular rows";
    const Element element = random.pick(kElements);
    const std::size_t length =
        random.below(16) == 0 ? 1 + random.below(1000) : 1 + random.below(40);
    const std::size_t rows = 8 + random.below(40);
    const Trial trial = random_trial(rows, random);
    const Rows x = mostly_regular(element, rows, length, random);
    const Rows g = random_rows(element, rows, length, Fill::uniform, 1.0, random);
    const std::optional<double> eps = random.below(2) == 0 ? std::optional<double>() : 1e-4;
    const auto regular = [&](std::size_t r) { return !x.row_is_zero(r); };
    const Both stock = call(x, g, Policy::stock, eps, trial);
    for (const Policy policy : {Policy::nan, Policy::epsilon, Policy::zero, Policy::raise}) {
      const Both other = call(x, g, policy, eps, trial);
      const std::size_t same = expect_same_rows(stock, other, regular);
      EXPECT_EQ(other.forward.hits[Condition::zero_norm].count, rows - same);
      EXPECT_EQ(other.forward.hits[Condition::below_eps].count, 0u);
      EXPECT_EQ(other.forward.hits[Condition::rescued].count,
                stock.forward.hits[Condition::rescued].count);
      if (policy == Policy::nan) {
        compared += same;
        skipped += rows - same;
      }
    }
    ASSERT_FALSE(HasFailure()) << name(element) << " rows " << rows << " length " << length << " p "
                               << trial.p;
  }
  EXPECT_GT(skipped, 5000u) << "regular rows must have had singular neighbours";
}

// Below stock's eps a row is singular under stock and epsilon, and regular under the policies whose
// eps is 0.
TEST(NormalizeInvariance, RowsBelowTheDefaultEpsDifferExactlyAsDocumented) {
  Random random(31);
  std::size_t rows_checked = 0;
  for (int repeat = 0; repeat < 120; ++repeat) {
    const Element element = repeat % 3 == 0   ? Element::bfloat16
                            : repeat % 3 == 1 ? Element::float32
                                              : Element::float64;
    const std::size_t rows = 8 + random.below(20), length = 1 + random.below(60);
    const Trial trial = random_trial(rows, random);
    const Rows x = random_rows(element, rows, length, Fill::uniform,
                               element == Element::float64 ? 1e-200 : 1e-30, random);
    const Rows g = random_rows(element, rows, length, Fill::uniform, 1e-30, random);
    const auto all = [](std::size_t) { return true; };
    const Both zero = call(x, g, Policy::zero, std::nullopt, trial);
    expect_same_rows(zero, call(x, g, Policy::nan, std::nullopt, trial), all);
    expect_same_rows(zero, call(x, g, Policy::raise, std::nullopt, trial), all);
    EXPECT_EQ(zero.forward.hits.raising.count, 0u);
    const Both stock = call(x, g, Policy::stock, std::nullopt, trial);
    expect_same_rows(stock, call(x, g, Policy::epsilon, std::nullopt, trial), all);
    EXPECT_EQ(stock.forward.hits[Condition::below_eps].count, rows);
    for (const Policy policy : {Policy::stock, Policy::zero}) {
      const Both& both = policy == Policy::stock ? stock : zero;
      Trial checked = trial;
      checked.policy = resolved(policy, std::nullopt, element, false);
      EXPECT_EQ(check_forward(x, both.forward, checked).failure, "");
      checked.policy = resolved(policy, std::nullopt, element, true);
      EXPECT_EQ(check_backward(g, x, both.backward, checked).failure, "");
    }
    ASSERT_FALSE(HasFailure()) << name(element) << " rows " << rows << " length " << length << " p "
                               << trial.p;
    rows_checked += rows;
  }
  EXPECT_GT(rows_checked, 1000u);
}

TEST(NormalizeInvariance, OneExplicitEpsDrawsTheSameLineUnderEveryPolicy) {
  Random random(32);
  std::size_t regular = 0, singular = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Element element = kElements[repeat % 4];
    const double eps = 0.25;
    const std::size_t rows = 8 + random.below(20), length = 1 + random.below(300);
    Trial trial = random_trial(rows, random);
    Rows x(element, rows, length);
    std::vector<bool> above(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      above[r] = random.below(2) == 0;
      // One element carries the norm, so that it stays clear of eps whatever p is.
      fill_row(x, r, Fill::uniform, 1e-6, random);
      x.set(r, random.below(length), above[r] ? 0.5 : 0.125);
    }
    const Rows g = random_rows(element, rows, length, Fill::uniform, 1.0, random);
    const Both stock = call(x, g, Policy::stock, eps, trial);
    for (const Policy policy : {Policy::nan, Policy::epsilon, Policy::zero, Policy::raise}) {
      const Both other = call(x, g, policy, eps, trial);
      const std::size_t same =
          expect_same_rows(stock, other, [&](std::size_t r) { return above[r]; });
      EXPECT_EQ(other.forward.hits[Condition::below_eps].count, rows - same);
      EXPECT_EQ(other.backward.hits[Condition::below_eps].count, rows - same);
      regular += same;
      singular += rows - same;
      trial.policy = resolved(policy, eps, element, true);
      EXPECT_EQ(check_backward(g, x, other.backward, trial).failure, "");
      trial.policy = resolved(policy, eps, element, false);
      EXPECT_EQ(check_forward(x, other.forward, trial).failure, "");
    }
    ASSERT_FALSE(HasFailure()) << name(element) << " rows " << rows << " length " << length << " p "
                               << trial.p;
  }
  EXPECT_GT(regular, 1000u);
  EXPECT_GT(singular, 1000u);
}

}  // namespace
}  // namespace safeops::cases
