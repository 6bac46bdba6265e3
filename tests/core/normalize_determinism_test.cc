// The bits of a row are a function of the row: not of threads, chunks, neighbours or vector width.
#include <gtest/gtest.h>

#include <set>

#include "cases/executors.h"
#include "cases/normalize_check.h"
#include "cases/random_rows.h"
#include "core/simd_target.h"

namespace safeops::cases {
namespace {

using Kind = RowLayout::Kind;

constexpr double kOrders[] = {2, 1, kInfinity};

struct Shape {
  std::size_t rows, length;
  Kind kind = Kind::contiguous;
};

/// Regular rows of very different scales, among them rows that hit, the last one included.
Rows eventful_rows(Element element, const Shape& shape, Random& random) {
  Rows x(element, shape.rows, shape.length);
  for (std::size_t r = 0; r < shape.rows; ++r) {
    fill_row(x, r, Fill::uniform, random.pick({1.0, 1e-4, 100.0}), random);
    if (r % 13 == 11 || (r + 1 == shape.rows && r > 3)) {
      for (std::size_t i = 0; i < shape.length; ++i) x.set(r, i, -0.0);
    } else if (r % 17 == 15) {
      x.set(r, shape.length / 2, kNaN);
    }
  }
  return x;
}

Trial trial_of(Kind kind, double p) {
  Trial trial;
  trial.p = p;
  trial.policy = resolve(Policy::zero, 0, true);
  trial.input.kind = trial.second.kind = trial.output.kind = kind;
  return trial;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(std::memcmp(a.saved.data(), b.saved.data(), a.saved.size() * sizeof(double)), 0)
      << "saved norms";
  EXPECT_EQ(std::memcmp(&a.hits, &b.hits, sizeof(Hits)), 0) << "hits";
}

TEST(NormalizeDeterminism, ThreadsAndChunksDoNotShow) {
  Random random(50);
  std::size_t compared = 0;
  const Shape shapes[] = {{1, std::size_t{1} << 20},
                          {3, 300000},
                          {4000, 3},
                          {1500, 40},
                          {500, 300},
                          {17, 9000},
                          {16, 70000},
                          {15, 65536},
                          {3000, 7, Kind::side_by_side}};
  for (const Shape& shape : shapes) {
    const bool huge = shape.rows * shape.length > 200000;
    for (const Element element : kElements) {
      for (const double p : kOrders) {
        if (huge && element != Element::float32 && (element != Element::float64 || p != 2))
          continue;
        Trial trial = trial_of(shape.kind, p);
        const Rows x = eventful_rows(element, shape, random);
        const Rows g = eventful_rows(element, shape, random);
        const Outcome out = forward(x, trial);
        const Outcome grad = backward(g, x, out.saved, trial);
        ThreadExecutor one(1, 1), two(2, 1), three(3, 3), eight(8, 1);
        ReversedExecutor reversed(3);
        for (Executor* executor :
             std::initializer_list<Executor*>{&one, &two, &three, &eight, &reversed}) {
          trial.executor = executor;
          expect_same(forward(x, trial), out);
          if (!huge || executor != &one) expect_same(backward(g, x, out.saved, trial), grad);
          ++compared;
        }
        ASSERT_FALSE(HasFailure())
            << name(element) << " p " << p << ' ' << shape.rows << " x " << shape.length;
      }
    }
  }
  EXPECT_EQ(compared, 5u * (5 * 12 + 4 * 4));
}

TEST(NormalizeDeterminism, HugeRowsAreRight) {
  Random random(51);
  ThreadExecutor threads(3, 1);
  for (const Element element : {Element::float32, Element::float64}) {
    for (const double p : kOrders) {
      Trial trial = trial_of(Kind::contiguous, p);
      trial.executor = &threads;
      const Rows x = eventful_rows(element, {2, 70001}, random);
      const Rows g = random_rows(element, 2, 70001, Fill::uniform, 1.0, random);
      const Outcome out = forward(x, trial);
      EXPECT_EQ(check_forward(x, out, trial).failure, "");
      EXPECT_EQ(check_backward(g, x, backward(g, x, out.saved, trial), trial).failure, "");
    }
  }
}

// Splitting must also find what is singular in a row of many slices, wherever in it the reason
// lies.
TEST(NormalizeDeterminism, HugeSingularRowsHitOnce) {
  ThreadExecutor threads(2, 1);
  const std::size_t length = 70001;
  std::size_t calls = 0;
  for (const double p : kOrders) {
    for (const Policy policy : kAllPolicies) {
      const Element element = calls++ % 2 == 0 ? Element::float32 : Element::float64;
      Rows x(element, 4, length), g(element, 4, length);
      x.set(1, 69999, smallest_subnormal(element));
      x.set(2, 8192, kNaN);
      x.set(3, 65535, kInfinity);
      for (std::uint64_t& bits : g.bits) bits = encode(element, 1.0);
      Trial trial = trial_of(Kind::contiguous, p);
      trial.executor = &threads;
      trial.policy = resolved(policy, std::nullopt, element, false);
      const Outcome out = forward(x, trial);
      EXPECT_EQ(check_forward(x, out, trial).failure, "") << name(policy);
      EXPECT_EQ(out.hits[Condition::zero_norm].count, 1u);
      EXPECT_EQ(out.hits[Condition::nonfinite_input].count, 2u);
      trial.policy = resolved(policy, std::nullopt, element, true);
      const Outcome grad = backward(g, x, out.saved, trial);
      EXPECT_EQ(check_backward(g, x, grad, trial).failure, "") << name(policy);
    }
  }
  EXPECT_EQ(calls, 15u);
}

TEST(NormalizeDeterminism, ARowAloneEqualsTheRowInItsBatch) {
  Random random(52);
  std::size_t compared = 0;
  for (const Kind kind : {Kind::contiguous, Kind::side_by_side}) {
    for (const Element element : kElements) {
      for (const std::size_t length :
           {1, 2, 3, 5, 8, 15, 16, 17, 33, 255, 256, 257, 1000, 65536, 70000}) {
        if (length > 1000 && (kind == Kind::side_by_side || element == Element::bfloat16)) continue;
        const Trial trial = trial_of(kind, kOrders[length % 3]);
        const Rows x = eventful_rows(
            element, {length > 1000 ? 17u : 41u, static_cast<std::size_t>(length), kind}, random);
        const Rows g = random_rows(element, x.rows, x.length, Fill::uniform, 1.0, random);
        const Outcome batch = forward(x, trial);
        const Outcome batch_grad = backward(g, x, batch.saved, trial);
        for (std::size_t r = 0; r<x.rows; r += length> 1000 ? 8 : 1) {
          const Outcome alone = forward(x.row(r), trial);
          ASSERT_TRUE(alone.values.same_row(0, batch.values, r))
              << name(element) << ' ' << length << " row " << r;
          ASSERT_EQ(std::memcmp(&alone.saved[0], &batch.saved[r], sizeof(double)), 0);
          const Outcome alone_grad = backward(g.row(r), x.row(r), alone.saved, trial);
          ASSERT_TRUE(alone_grad.values.same_row(0, batch_grad.values, r))
              << name(element) << ' ' << length << ' ' << r;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 3000u);
}

/// Puts the best target back whatever a test does.
class SimdTargets : public ::testing::Test {
 protected:
  void TearDown() override { use_target(0); }

  static bool has_fused_multiply_add(std::int64_t target) {
    return std::string(target_name(target)).rfind("AVX", 0) == 0;
  }
};

TEST_F(SimdTargets, AreListedOnceAndNamed) {
  const std::vector<std::int64_t> targets = supported_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(std::set<std::int64_t>(targets.begin(), targets.end()).size(), targets.size());
  std::set<std::string> names;
  for (const std::int64_t target : targets) names.insert(target_name(target));
  EXPECT_EQ(names.size(), targets.size());
}

TEST_F(SimdTargets, EveryTargetIsAccurateAndThoseWithFusedMultiplyAddAgreeToTheBit) {
  Random random(53);
  std::size_t compared = 0, checked = 0;
  for (const Kind kind : {Kind::contiguous, Kind::side_by_side}) {
    for (const Element element : kElements) {
      for (const std::size_t length : {1, 3, 8, 16, 17, 31, 64, 100, 256, 257, 1000, 8193, 20000}) {
        if (kind == Kind::side_by_side && length > 1000) continue;
        for (const double p : kOrders) {
          const Trial trial = trial_of(kind, p);
          const Rows x = eventful_rows(
              element, {length > 1000 ? 2u : 19u, static_cast<std::size_t>(length)}, random);
          const Rows g = random_rows(element, x.rows, x.length, Fill::uniform, 1.0, random);
          std::optional<std::pair<Outcome, Outcome>> fused;
          for (const std::int64_t target : supported_targets()) {
            use_target(target);
            const Outcome out = forward(x, trial);
            const Outcome grad = backward(g, x, out.saved, trial);
            if (has_fused_multiply_add(target) && fused) {
              expect_same(out, fused->first);
              expect_same(grad, fused->second);
              ++compared;
            } else {
              EXPECT_EQ(check_forward(x, out, trial).failure, "") << target_name(target);
              EXPECT_EQ(check_backward(g, x, grad, trial).failure, "") << target_name(target);
              if (has_fused_multiply_add(target)) fused.emplace(out, grad);
              ++checked;
            }
            ASSERT_FALSE(HasFailure())
                << target_name(target) << ' ' << name(element) << ' ' << length << " p " << p;
          }
        }
      }
    }
  }
  const std::vector<std::int64_t> targets = supported_targets();
  const auto with_fma = std::count_if(targets.begin(), targets.end(), has_fused_multiply_add);
  EXPECT_GT(checked, 0u);
  EXPECT_EQ(compared > 0, with_fma > 1);
}

TEST_F(SimdTargets, TheScalarProgramIsAsAccurateAndHitsTheSame) {
  Random random(54);
  std::size_t checked = 0;
  for (const Kind kind : {Kind::contiguous, Kind::side_by_side}) {
    for (const Element element : kElements) {
      for (const std::size_t length : {1, 3, 8, 16, 17, 31, 64, 100, 257, 1000, 8193}) {
        for (const double p : kOrders) {
          Trial trial = trial_of(kind, p);
          const Rows x = eventful_rows(
              element, {length > 1000 ? 2u : 19u, static_cast<std::size_t>(length)}, random);
          const Rows g = eventful_rows(element, {x.rows, x.length}, random);
          const Outcome out = forward(x, trial);
          const Outcome grad = backward(g, x, out.saved, trial);
          trial.road = Road::plain;
          const Outcome plain = forward(x, trial);
          const Outcome plain_grad = backward(g, x, plain.saved, trial);
          ASSERT_EQ(check_forward(x, plain, trial).failure, "");
          ASSERT_EQ(check_backward(g, x, plain_grad, trial).failure, "");
          ASSERT_EQ(std::memcmp(&plain.hits, &out.hits, sizeof(Hits)), 0);
          ASSERT_EQ(std::memcmp(&plain_grad.hits, &grad.hits, sizeof(Hits)), 0);
          ++checked;
        }
      }
    }
  }
  EXPECT_EQ(checked, 2u * 4 * 11 * 3);
}

}  // namespace
}  // namespace safeops::cases
