// What must change nothing: a policy at a regular row, the order of elements, a constant added.
#include <gtest/gtest.h>

#include <numeric>

#include "cases/softmax_check.h"
#include "cases/softmax_rows.h"

namespace safeops::cases {
namespace {

SoftmaxTrial random_trial(std::size_t rows, Random& random) {
  SoftmaxTrial trial;
  trial.kind = random.pick(kSoftmaxKinds);
  if (random.below(2) == 0) set_kind(trial, RowLayout::Kind::side_by_side);
  if (rows % 4 == 0) set_kept(trial, {rows / 4, 4});
  for (Arrangement* arrangement : {&trial.input, &trial.second, &trial.output}) {
    arrangement->gap = random.below(3);
    arrangement->shift = random.below(8);
  }
  return trial;
}

TEST(SoftmaxInvariance, AHundredThousandRowsThatAreNotEmptyAgreeUnderEveryPolicy) {
  Random random(170);
  std::size_t compared = 0, skipped = 0;
  for (int call = 0; compared < 100000; ++call) {
    ASSERT_LT(call, 20000) << "too few regular rows";
    const Element element = random.pick(kElements);
    const std::size_t length =
        random.below(16) == 0 ? 1 + random.below(1000) : 1 + random.below(40);
    const std::size_t rows = 8 + random.below(40);
    SoftmaxTrial trial = random_trial(rows, random);
    const Rows x = eventful_logits(element, rows, length, random);
    const Rows g = random_rows(element, rows, length, Fill::uniform, 1.0, random);
    const Mask mask = random_mask(rows, length, random);
    if (random.below(3) == 0) trial.mask = &mask;
    const SoftmaxBoth stock = both(x, g, trial);
    std::size_t rows_compared = 0;
    for (const Policy policy : {Policy::nan, Policy::epsilon, Policy::zero, Policy::raise}) {
      trial.policy = policy;
      const SoftmaxBoth other = both(x, g, trial);
      rows_compared = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        ASSERT_TRUE(same_number(stock.forward.saved[r], other.forward.saved[r]));
        if (stock.forward.saved[r] == -kInfinity) continue;
        ASSERT_TRUE(stock.forward.values.same_row(r, other.forward.values, r)) << spelled(trial);
        ASSERT_TRUE(stock.backward.values.same_row(r, other.backward.values, r)) << spelled(trial);
        ++rows_compared;
      }
      ASSERT_EQ(std::memcmp(&stock.forward.hits, &other.forward.hits, sizeof(Hits)), 0);
      ASSERT_EQ(std::memcmp(&stock.backward.hits, &other.backward.hits, sizeof(Hits)), 0);
    }
    compared += rows_compared;
    skipped += rows - rows_compared;
  }
  EXPECT_GT(skipped, 5000u) << "regular rows must have had empty neighbours";
}

TEST(SoftmaxInvariance, EpsIsOnlyForLogSoftmaxUnderEpsilon) {
  Random random(171);
  for (const SoftmaxKind kind : kSoftmaxKinds) {
    for (const Policy policy : kAllPolicies) {
      const Rows x = eventful_logits(Element::float32, 40, 30, random);
      SoftmaxTrial trial;
      trial.kind = kind;
      trial.policy = policy;
      trial.eps = 1e-3;
      const SoftmaxBoth small = both(x, x, trial);
      trial.eps = 0.5;
      const bool same = difference(both(x, x, trial), small).empty();
      EXPECT_EQ(same, kind != SoftmaxKind::log_softmax || policy != Policy::epsilon)
          << spelled(trial);
    }
  }
}

/// Both values and the saved number agree within `bounds` times the bound of one result.
void expect_close(const Rows& a, std::size_t row, const Rows& b,
                  const std::vector<std::size_t>& order, SoftmaxKind kind, double bounds) {
  for (std::size_t i = 0; i < a.length; ++i) {
    const long double exact = a.at(row, order[i]);
    const long double unit = kind == SoftmaxKind::softmax || std::isinf(exact)
                                 ? ulp(a.element, std::isinf(exact) ? 1.0L : exact)
                                 : unit_of_logarithm(kind, a.element, exact);
    ASSERT_LE(error_in(unit, a.element, b.at(row, i), exact),
              bounds * softmax_bound(kind, a.element));
  }
}

TEST(SoftmaxMetamorphic, ThePermutedRowHasThePermutedResult) {
  Random random(172);
  for (const Element element : kElements) {
    for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::log_softmax}) {
      for (const std::size_t length : kSoftmaxLengths) {
        Rows x = eventful_logits(element, 4, length, random), permuted = x;
        std::vector<std::size_t> order(length);
        std::iota(order.begin(), order.end(), 0);
        for (std::size_t i = length; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
        for (std::size_t r = 0; r < 4; ++r) {
          for (std::size_t i = 0; i < length; ++i) permuted.set(r, i, x.at(r, order[i]));
        }
        SoftmaxTrial trial;
        trial.kind = kind;
        const Outcome out = forward(x, trial), there = forward(permuted, trial);
        ASSERT_EQ(std::memcmp(&out.hits, &there.hits, sizeof(Hits)), 0);
        for (std::size_t r = 0; r < 4; ++r) {
          ASSERT_TRUE(same_number(out.saved[r], there.saved[r]));
          expect_close(out.values, r, there.values, order, kind, 2);
        }
        ASSERT_FALSE(HasFailure()) << name(element) << ' ' << length;
      }
    }
  }
}

TEST(SoftmaxMetamorphic, AConstantAddedToEveryElementChangesNothing) {
  Random random(173);
  for (const Element element : {Element::float32, Element::float64}) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      for (const std::size_t length : kSoftmaxLengths) {
        // Whole multiples of 2^-4, so that x + constant is exact in float32.
        Rows x(element, 2, length);
        for (std::size_t i = 0; i < x.bits.size(); ++i)
          x.bits[i] = encode(element, std::floor(random.symmetric() * 400) / 16);
        std::vector<std::size_t> order(length);
        std::iota(order.begin(), order.end(), 0);
        SoftmaxTrial trial;
        trial.kind = kind;
        const Outcome out = forward(x, trial);
        for (const double constant : {1.0, -64.0, 512.0, 1024.0, -4096.0, 65536.0}) {
          Rows shifted = x;
          for (std::size_t i = 0; i < x.bits.size(); ++i)
            shifted.bits[i] = encode(element, decode(element, x.bits[i]) + constant);
          const Outcome there = forward(shifted, trial);
          for (std::size_t r = 0; r < 2; ++r) {
            if (kind == SoftmaxKind::logsumexp) {
              const double error = there.saved[r] - (out.saved[r] + constant);
              ASSERT_LE(std::fabs(error), std::fabs(constant) * 0x1p-50 + 0x1p-20) << constant;
            } else {
              expect_close(out.values, r, there.values, order, kind, 2);
            }
          }
          ASSERT_FALSE(HasFailure()) << name(element) << ' ' << length << " + " << constant;
        }
      }
    }
  }
}

}  // namespace
}  // namespace safeops::cases
