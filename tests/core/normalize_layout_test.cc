// Where rows lie must not show in what becomes of them, and memory between them belongs to somebody
// else.
#include <gtest/gtest.h>

#include "cases/normalize_check.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

using Kind = RowLayout::Kind;

constexpr double kOrders[] = {2, 1, kInfinity};
constexpr std::size_t kRows = 60;

/// Regular rows with a zero row, a NaN row and an infinite one among them.
Rows mixed_rows(Element element, std::size_t rows, std::size_t length, Random& random) {
  Rows x = random_rows(element, rows, length, Fill::uniform, 1.0, random);
  for (std::size_t r = 5; r < rows; r += 11) {
    for (std::size_t i = 0; i < length; ++i) x.set(r, i, 0.0);
  }
  for (std::size_t r = 7; r < rows; r += 23) x.set(r, random.below(length), kNaN);
  for (std::size_t r = 9; r < rows; r += 29) x.set(r, random.below(length), kInfinity);
  return x;
}

std::vector<Arrangement> arrangements(Kind kind) {
  const std::vector<std::vector<std::size_t>> shapes = {
      {}, {kRows}, {3, 20}, {3, 4, 5}, {2, 3, 2, 5}, {kRows, 1}, {1, kRows}};
  std::vector<Arrangement> result;
  for (const auto& kept : shapes) {
    for (const std::size_t gap : {0, 1, 5}) {
      for (const bool reversed : {false, true}) {
        for (const bool outermost : {false, true}) {
          if (outermost && kind == Kind::contiguous) continue;
          Arrangement arrangement;
          arrangement.kind = kind;
          arrangement.kept = kept;
          arrangement.gap = gap;
          arrangement.shift = result.size() % 17;
          arrangement.reversed = reversed;
          arrangement.step_outermost = outermost;
          result.push_back(arrangement);
        }
      }
    }
  }
  return result;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(std::memcmp(a.saved.data(), b.saved.data(), a.saved.size() * sizeof(double)), 0)
      << "saved norms";
  for (int i = 0; i < kConditions; ++i) {
    EXPECT_EQ(a.hits.of[i].count, b.hits.of[i].count) << name(static_cast<Condition>(i));
    EXPECT_EQ(a.hits.of[i].first, b.hits.of[i].first) << name(static_cast<Condition>(i));
  }
  EXPECT_EQ(a.hits.raising.count, b.hits.raising.count);
  EXPECT_EQ(a.hits.raising.first, b.hits.raising.first);
  EXPECT_EQ(a.disturbed, 0u);
  EXPECT_EQ(b.disturbed, 0u);
}

/// Runs body(x, g, trial) for every element and order at lengths that reach every walk.
template <class Body>
void for_all_walks(Kind kind, const Body& body) {
  Random random(40);
  std::size_t calls = 0;
  for (const Element element : kElements) {
    for (const std::size_t length : {1, 2, 3, 4, 7, 16, 17, 33, 100, 257, 400}) {
      Trial trial;
      trial.p = kOrders[calls++ % 3];
      trial.policy = resolve(Policy::stock, kStockEps, false);
      trial.input.kind = trial.second.kind = trial.output.kind = kind;
      const Rows x = mixed_rows(element, kRows, static_cast<std::size_t>(length), random);
      body(x, mixed_rows(element, kRows, static_cast<std::size_t>(length), random), trial);
      ASSERT_FALSE(::testing::Test::HasFailure())
          << name(element) << " length " << length << " p " << trial.p;
    }
  }
  EXPECT_EQ(calls, 44u);
}

class NormalizeLayout : public ::testing::TestWithParam<Kind> {};

TEST_P(NormalizeLayout, EveryArrangementGivesTheBitsOfTheDenseOne) {
  std::size_t arranged = 0;
  for_all_walks(GetParam(), [&](const Rows& x, const Rows& g, const Trial& dense) {
    const Outcome out = forward(x, dense);
    ASSERT_EQ(check_forward(x, out, dense).failure, "");
    const Outcome grad = backward(g, x, out.saved, dense);
    const std::vector<Arrangement> all = arrangements(GetParam());
    for (std::size_t a = 0; a < all.size(); ++a) {
      Trial trial = dense;
      trial.input = all[a];
      trial.second = all[a];
      trial.output = all[a];
      // Operands share the kept sizes, nothing else.
      trial.second.gap = (trial.input.gap + 3) % 7;
      trial.output.gap = (trial.input.gap + 1) % 7;
      trial.second.shift = (trial.input.shift + 5) % 16;
      trial.output.shift = (trial.input.shift + 9) % 16;
      trial.output.reversed = !trial.input.reversed;
      trial.second.step_outermost = !trial.input.step_outermost;
      expect_same(forward(x, trial), out);
      expect_same(backward(g, x, out.saved, trial), grad);
      ASSERT_FALSE(HasFailure()) << "arrangement " << a;
      ++arranged;
    }
  });
  EXPECT_GE(arranged, 44u * 42);
}

TEST_P(NormalizeLayout, EveryMisalignmentGivesTheSameBits) {
  for_all_walks(GetParam(), [](const Rows& x, const Rows& g, const Trial& aligned) {
    const Outcome out = forward(x, aligned);
    const Outcome grad = backward(g, x, out.saved, aligned);
    for (std::size_t shift = 1; shift < 34; ++shift) {
      Trial trial = aligned;
      trial.input.shift = shift;
      trial.second.shift = 33 - shift;
      trial.output.shift = shift * 7 % 33;
      expect_same(forward(x, trial), out);
      expect_same(backward(g, x, out.saved, trial), grad);
    }
  });
}

TEST_P(NormalizeLayout, OutputMayBeTheInput) {
  for_all_walks(GetParam(), [](const Rows& x, const Rows& g, Trial trial) {
    const Outcome out = forward(x, trial);
    const Outcome grad = backward(g, x, out.saved, trial);
    trial.in_place = true;
    expect_same(forward(x, trial), out);
    expect_same(backward(g, x, out.saved, trial), grad);
  });
}

TEST_P(NormalizeLayout, InspectingCountsTheSameAndWritesNothing) {
  for_all_walks(GetParam(), [](const Rows& x, const Rows& g, Trial trial) {
    for (const Policy policy : kAllPolicies) {
      trial.inspect = false;
      trial.policy = resolved(policy, std::nullopt, x.element, false);
      Outcome out = forward(x, trial);
      Outcome grad = backward(g, x, out.saved, trial);
      trial.inspect = true;
      const Outcome inspected = forward(x, trial),
                    inspected_grad = backward(g, x, out.saved, trial);
      EXPECT_EQ(inspected.values, untouched(x));
      EXPECT_EQ(inspected_grad.values, untouched(x));
      out.values = grad.values = untouched(x);
      expect_same(inspected, out);
      expect_same(inspected_grad, grad);
    }
  });
}

TEST_P(NormalizeLayout, SavingIsOptional) {
  for_all_walks(GetParam(), [](const Rows& x, const Rows&, Trial trial) {
    const Outcome out = forward(x, trial);
    trial.save = false;
    const Outcome unsaved = forward(x, trial);
    EXPECT_EQ(unsaved.values, out.values);
    EXPECT_EQ(unsaved.saved, std::vector<double>(x.rows, kNeverSaved));
  });
}

TEST_P(NormalizeLayout, NoRowsAreNoWork) {
  Rows none(Element::float32, 0, 5);
  Trial trial;
  trial.input.kind = trial.second.kind = trial.output.kind = GetParam();
  EXPECT_FALSE(forward(none, trial).hits.any());
  EXPECT_FALSE(backward(none, none, {}, trial).hits.any());
}

INSTANTIATE_TEST_SUITE_P(, NormalizeLayout, ::testing::Values(Kind::contiguous, Kind::side_by_side),
                         [](const auto& instance) {
                           return instance.param == Kind::contiguous ? "Contiguous" : "SideBySide";
                         });

// An expanded gradient: one run of rows that stands for all of them.
TEST(NormalizeLayouts, InputsMayRepeatWithStrideZero) {
  Random random(41);
  for (const Element element : kElements) {
    for (const Kind kind : {Kind::contiguous, Kind::side_by_side}) {
      for (const std::size_t length : {3, 40, 300}) {
        Trial dense;
        dense.policy = resolve(Policy::zero, 0, true);
        for (Arrangement* arrangement : {&dense.input, &dense.second, &dense.output}) {
          arrangement->kind = kind;
          arrangement->kept = {4, 5};
        }
        const Rows x = mixed_rows(element, 20, static_cast<std::size_t>(length), random);
        Rows g = mixed_rows(element, 20, static_cast<std::size_t>(length), random);
        for (std::size_t i = 5 * g.length; i < g.bits.size(); ++i)
          g.bits[i] = g.bits[i % (5 * g.length)];
        const Outcome out = forward(x, dense);
        Trial repeated = dense;
        repeated.input.repeated = true;
        expect_same(backward(g, x, out.saved, repeated), backward(g, x, out.saved, dense));
        expect_same(forward(g, repeated), forward(g, dense));
      }
    }
  }
}

// Two layouts may add in different orders, but must agree on what is singular.
TEST(NormalizeLayouts, BothKindsCountTheSameHits) {
  for_all_walks(Kind::contiguous, [](const Rows& x, const Rows& g, Trial trial) {
    const Outcome out = forward(x, trial), grad = backward(g, x, out.saved, trial);
    trial.input.kind = trial.second.kind = trial.output.kind = Kind::side_by_side;
    const Outcome beside = forward(x, trial), beside_grad = backward(g, x, beside.saved, trial);
    ASSERT_EQ(check_forward(x, beside, trial).failure, "");
    for (int i = 0; i < kConditions; ++i) {
      EXPECT_EQ(out.hits.of[i].count, beside.hits.of[i].count);
      EXPECT_EQ(out.hits.of[i].first, beside.hits.of[i].first);
      EXPECT_EQ(grad.hits.of[i].count, beside_grad.hits.of[i].count);
      EXPECT_EQ(grad.hits.of[i].first, beside_grad.hits.of[i].first);
    }
  });
}

}  // namespace
}  // namespace safeops::cases
