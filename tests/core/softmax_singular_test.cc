// The table of policies: values, gradients and hits at empty rows, and what is noticed beside them.
#include <gtest/gtest.h>

#include "cases/softmax_check.h"
#include "cases/softmax_everywhere.h"
#include "cases/softmax_rows.h"
#include "core/simd_target.h"

namespace safeops::cases {
namespace {

/// Tiny, short, one slice, several slices.
constexpr std::size_t kWalks[] = {1, 3, 4, 5, 16, 40, 256, 257, 1000, 8193, 20000};

Rows filled(Element element, std::size_t rows, std::size_t length, double value) {
  Rows result(element, rows, length);
  std::fill(result.bits.begin(), result.bits.end(), encode(element, value));
  return result;
}

struct Table {
  double value;     ///< of every element (logsumexp: of the row)
  double gradient;  ///< where the incoming gradient is not 0
};

/// Section 5 of the contract, spelled out again.
Table table(SoftmaxKind kind, Policy policy, double eps) {
  const bool marks = policy == Policy::stock || policy == Policy::nan;
  const double gradient = marks ? kNaN : 0.0;
  if (kind == SoftmaxKind::logsumexp) return {-kInfinity, gradient};
  if (marks) return {kNaN, gradient};
  if (policy == Policy::epsilon)
    return {kind == SoftmaxKind::softmax ? 0.0 : std::log(eps), gradient};
  return {kind == SoftmaxKind::softmax ? 0.0 : -kInfinity, gradient};
}

void expect_value(double got, double want, Element element) {
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got)) << got;
  } else {
    ASSERT_EQ(got, rounded(element, want));
  }
}

TEST(SoftmaxSingular, EmptyRowsFollowThePolicyTable) {
  everywhere([](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : kWalks) {
      if (trial.input.kind == RowLayout::Kind::side_by_side && length > 300) continue;
      const std::size_t rows = length > 1000 ? 2 : 21;
      const Rows x = filled(element, rows, length, -kInfinity);
      Rows g(element, rows, length);
      for (std::size_t i = 0; i < g.bits.size(); ++i)
        g.bits[i] = encode(element, i % 2 == 0 ? 1.0 : -0.5);
      for (const Policy policy : kAllPolicies) {
        trial.policy = policy;
        trial.eps = 0.125;
        const Table want = table(trial.kind, policy, 0.125);
        const SoftmaxBoth outcome = both(x, g, trial);
        for (std::size_t i = 0; i < x.bits.size() && policy != Policy::raise; ++i) {
          if (trial.kind != SoftmaxKind::logsumexp)
            expect_value(decode(element, outcome.forward.values.bits[i]), want.value, element);
          expect_value(decode(element, outcome.backward.values.bits[i]), want.gradient, element);
        }
        for (std::size_t r = 0; r < rows; ++r) ASSERT_EQ(outcome.forward.saved[r], -kInfinity);
        for (const Outcome* one : {&outcome.forward, &outcome.backward}) {
          ASSERT_EQ(one->hits[Condition::empty_row].count, rows);
          ASSERT_EQ(one->hits[Condition::empty_row].first, 0u);
          ASSERT_EQ(one->hits.raising.count, rows);
          ASSERT_EQ(one->hits[Condition::nonfinite_input].count, 0u);
          ASSERT_EQ(one->hits[Condition::finite_min_row].count, 0u);
        }
      }
    }
  });
}

TEST(SoftmaxSingular, TheDefaultEpsIsThatOfTheContract) {
  for (const Element element : kElements) {
    SoftmaxTrial trial;
    trial.kind = SoftmaxKind::log_softmax;
    trial.policy = Policy::epsilon;
    const Outcome out = forward(filled(element, 1, 5, -kInfinity), trial);
    const double eps = element == Element::float16 ? 0x1p-14 : 1e-12;
    EXPECT_EQ(out.values.at(0, 2), rounded(element, std::log(eps))) << name(element);
  }
}

TEST(SoftmaxSingular, OneElementThatTakesPartMakesARowRegular) {
  everywhere([](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : {2, 4, 5, 16, 31, 100, 257, 9000}) {
      if (trial.input.kind == RowLayout::Kind::side_by_side && length > 300) continue;
      for (const std::size_t at : positions(static_cast<std::size_t>(length))) {
        Rows x = filled(element, 1, static_cast<std::size_t>(length), -kInfinity);
        x.set(0, at, -3.0);
        for (const Policy policy : kAllPolicies) {
          trial.policy = policy;
          const Outcome out = forward(x, trial);
          ASSERT_FALSE(out.hits.any());
          ASSERT_EQ(out.hits.raising.count, 0u);
          ASSERT_EQ(out.saved[0], -3.0);
          if (trial.kind == SoftmaxKind::softmax) {
            ASSERT_EQ(out.values.at(0, at), 1.0);
            ASSERT_EQ(out.values.at(0, at == 0 ? 1 : 0), 0.0);
          } else if (trial.kind == SoftmaxKind::log_softmax) {
            ASSERT_EQ(out.values.at(0, at), 0.0);
            ASSERT_EQ(out.values.at(0, at == 0 ? 1 : 0), -kInfinity);
          }
        }
      }
    }
  });
}

TEST(SoftmaxSingular, MixedRowsAreCountedAndFilledOneByOne) {
  Random random(130);
  std::size_t checked = 0;
  everywhere([&](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : {1, 2, 4, 7, 16, 30, 150, 260}) {
      const std::size_t rows = length < 100 ? 43 : 24;
      const auto each = static_cast<std::size_t>(length);
      const Rows x = eventful_logits(element, rows, each, random);
      Rows g = random_rows(element, rows, each, Fill::uniform, 1.0, random);
      for (std::size_t r = 0; r < rows; ++r) {
        if (random.below(3) != 0) continue;
        for (std::size_t i = 0; i < each; ++i) g.set(r, i, std::copysign(0.0, g.at(r, i)));
      }
      const std::size_t first = random.below(5);
      for (std::size_t p = 0; p < (element == Element::float64 ? 2 : 5); ++p) {
        trial.policy = kAllPolicies[(first + p) % 5];
        ASSERT_EQ(check_both(x, g, both(x, g, trial), trial).failure, "");
        ++checked;
      }
    }
  });
  EXPECT_EQ(checked, 12u * 8 * (3 * 5 + 2));
}

TEST(SoftmaxSingular, AnIncomingGradientOfZeroGivesZeroUnlessThePolicyMarks) {
  everywhere([](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : {4, 20, 300, 9000}) {
      if (trial.input.kind == RowLayout::Kind::side_by_side && length > 300) continue;
      const auto each = static_cast<std::size_t>(length);
      const Rows x = filled(element, 4, each, -kInfinity);
      Rows g(element, 4, each);
      for (std::size_t i = 0; i < each; ++i) g.set(1, i, -0.0);
      g.set(2, trial.kind == SoftmaxKind::logsumexp ? 0 : each - 1, smallest_subnormal(element));
      g.set(3, 0, kNaN);
      for (const Policy policy : kAllPolicies) {
        trial.policy = policy;
        const Outcome grad = both(x, g, trial).backward;
        ASSERT_EQ(grad.hits[Condition::empty_row].count, 4u) << "counted whatever the gradient is";
        ASSERT_EQ(grad.hits.raising.count, 2u) << name(policy);
        ASSERT_EQ(grad.hits.raising.first, 2u) << name(policy);
        const bool marks = policy == Policy::stock || policy == Policy::nan;
        for (std::size_t r = 0; r < 2; ++r) {
          for (std::size_t i = 0; i < each; ++i) {
            const double value = grad.values.at(r, i);
            ASSERT_TRUE(marks ? std::isnan(value) : value == 0) << name(policy);
          }
        }
      }
    }
  });
}

/// Rows of length `length`: NaN, +inf, both, -inf with NaN, and an ordinary one.
void check_specials_at(std::size_t at, Element element, std::size_t length,
                       const SoftmaxTrial& trial, Random& random) {
  Rows x = random_logits(element, 5, length, Logits::uniform, 3.0, random);
  x.set(0, at, kNaN);
  x.set(1, at, kInfinity);
  x.set(2, at, kInfinity);
  x.set(2, length - 1 - at, kNaN);
  for (std::size_t i = 0; i < length; ++i) x.set(3, i, i == at ? kNaN : -kInfinity);
  const Rows g = random_rows(element, 5, length, Fill::uniform, 1.0, random);
  const SoftmaxBoth outcome = both(x, g, trial);
  EXPECT_EQ(check_both(x, g, outcome, trial).failure, "") << "special at " << at;
  EXPECT_EQ(outcome.forward.hits[Condition::nonfinite_input].count, 4u);
  EXPECT_EQ(outcome.forward.hits[Condition::nonfinite_input].first, 0u);
  EXPECT_EQ(outcome.backward.hits[Condition::nonfinite_input].count, 4u);
  EXPECT_EQ(outcome.forward.hits[Condition::empty_row].count, 0u);
}

TEST(SoftmaxNonfinite, NaNAndInfinityAreNoticedAtEveryPositionAndNeverHits) {
  Random random(131);
  std::size_t checked = 0;
  everywhere([&](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : {1, 2, 4, 5, 16, 17, 31, 65, 255, 257, 600, 8193, 17000}) {
      const auto each = static_cast<std::size_t>(length);
      if (length > 600 &&
          (trial.input.kind == RowLayout::Kind::side_by_side || element == Element::float64)) {
        continue;
      }
      for (const std::size_t at : positions(each)) {
        trial.policy = kAllPolicies[checked++ % 5];
        check_specials_at(at, element, each, trial, random);
        ASSERT_FALSE(::testing::Test::HasFailure()) << length;
      }
    }
  });
  EXPECT_GT(checked, 1000u);
}

/// Puts the best target back whatever a test does.
class SoftmaxTargets : public ::testing::Test {
 protected:
  void TearDown() override { use_target(0); }
};

TEST_F(SoftmaxTargets, OneNaNAmongSixtyFourFillsItsRowOnEveryTarget) {
  std::size_t rows = 0;
  for (const std::int64_t target : supported_targets()) {
    use_target(target);
    for (const Road road : kRoads) {
      for (const SoftmaxKind kind : kSoftmaxKinds) {
        for (const Element element : kElements) {
          for (const std::uint64_t sign : {0, 1}) {
            Random random(132);
            Rows x = random_logits(element, 64, 64, Logits::uniform, 5.0, random);
            for (std::size_t r = 0; r < 64; ++r)
              x.bits[r * 64 + r] = encode(element, kNaN) | sign << (8 * format(element).bytes - 1);
            SoftmaxTrial trial;
            trial.kind = kind;
            trial.road = road;
            trial.policy = Policy::zero;
            const Outcome out = forward(x, trial);
            ASSERT_EQ(out.hits[Condition::nonfinite_input].count, 64u) << target_name(target);
            for (std::size_t r = 0; r < 64; ++r) {
              ASSERT_TRUE(std::isnan(out.saved[r])) << target_name(target) << " row " << r;
              if (kind == SoftmaxKind::logsumexp) continue;
              for (std::size_t i = 0; i < 64; ++i)
                ASSERT_TRUE(std::isnan(out.values.at(r, i))) << target_name(target) << ' ' << r;
              ++rows;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(rows, supported_targets().size() * 2 * 2 * 4 * 2 * 64);
}

TEST(SoftmaxNotices, ARowOfFiniteMinimaIsUniformAndNoticed) {
  everywhere([](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : {1, 4, 16, 32, 256, 512, 16384}) {
      if (trial.input.kind == RowLayout::Kind::side_by_side && length > 300) continue;
      if (element != Element::float32 && length > 600) continue;
      const auto each = static_cast<std::size_t>(length);
      Rows x = filled(element, 3, each, -largest(element));
      if (length > 1) x.set(1, each / 2, -1.0);
      const Rows g = filled(element, 3, each, 0.5);
      for (const Policy policy : kAllPolicies) {
        trial.policy = policy;
        const SoftmaxBoth outcome = both(x, g, trial);
        ASSERT_EQ(outcome.forward.hits[Condition::finite_min_row].count, length > 1 ? 2u : 3u);
        ASSERT_EQ(outcome.forward.hits[Condition::finite_min_row].first, 0u);
        ASSERT_EQ(outcome.forward.hits.raising.count, 0u);
        if (trial.kind == SoftmaxKind::softmax) {
          ASSERT_EQ(outcome.forward.values.at(2, each - 1), 1.0 / static_cast<double>(length));
        }
        ASSERT_EQ(check_both(x, g, outcome, trial).failure, "") << length;
      }
    }
  });
}

// The lowest number of the dtype that is stored, not of the one that is computed in.
TEST(SoftmaxNotices, FiniteMinimaAreThoseOfTheInputDtype) {
  for (const Element element : {Element::float16, Element::bfloat16}) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      SoftmaxTrial trial;
      trial.kind = kind;
      trial.result = Element::float32;
      const Rows minima = filled(element, 2, 40, -largest(element));
      EXPECT_EQ(forward(minima, trial).hits[Condition::finite_min_row].count, 2u) << name(kind);
    }
  }
  const Rows half_minima = filled(Element::float32, 2, 40, -largest(Element::float16));
  EXPECT_EQ(forward(half_minima, SoftmaxTrial{}).hits[Condition::finite_min_row].count, 0u);
}

// +inf where torch's own logsumexp has it, and its gradient.
TEST(SoftmaxNonfinite, LogsumexpOfInfinityIsInfinityWithTorchsGradient) {
  for (const Element element : kElements) {
    for (const std::size_t length : {3, 20, 300, 9000}) {
      const auto each = static_cast<std::size_t>(length);
      Rows x = filled(element, 1, each, 1.0);
      x.set(0, 1, kInfinity);
      x.set(0, 2, -kInfinity);
      SoftmaxTrial trial;
      trial.kind = SoftmaxKind::logsumexp;
      for (const Policy policy : kAllPolicies) {
        trial.policy = policy;
        const SoftmaxBoth outcome = both(x, filled(element, 1, each, 2.0), trial);
        EXPECT_EQ(outcome.forward.saved[0], kInfinity);
        EXPECT_TRUE(std::isnan(outcome.backward.values.at(0, 1)));
        EXPECT_EQ(outcome.backward.values.at(0, 0), 0.0);
        EXPECT_EQ(outcome.backward.values.at(0, 2), 0.0);
      }
    }
  }
}

// NaN only where the formula has it: infinity minus itself, or 0 times infinity.
TEST(SoftmaxNonfinite, InfiniteGradientsGiveWhatTheFormulaGives) {
  everywhere([](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : {3, 20, 300, 9000}) {
      if (trial.input.kind == RowLayout::Kind::side_by_side && length > 300) continue;
      if (element == Element::float64 && length > 300) continue;
      const auto each = static_cast<std::size_t>(length);
      Rows x(element, 4, each), g = filled(element, 4, each, 0.5);
      for (std::size_t i = 0; i < x.bits.size(); ++i)
        x.bits[i] = encode(element, 0.25 * static_cast<double>(i % 7));
      x.set(1, 1, -kInfinity);
      const std::size_t at = trial.kind == SoftmaxKind::logsumexp ? 0 : each - 1;
      g.set(0, at, kInfinity);
      g.set(1, at, -kInfinity);
      g.set(2, at, kNaN);
      ASSERT_EQ(check_both(x, g, both(x, g, trial), trial).failure, "") << length;
    }
  });
}

}  // namespace
}  // namespace safeops::cases
