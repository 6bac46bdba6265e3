// Where rows lie must not show in what becomes of them, and memory between them belongs to somebody
// else.
#include <gtest/gtest.h>

#include "cases/softmax_check.h"
#include "cases/softmax_rows.h"

namespace safeops::cases {
namespace {

using Kind = RowLayout::Kind;

constexpr std::size_t kRows = 60;

std::vector<Arrangement> arrangements(Kind kind) {
  const std::vector<std::vector<std::size_t>> shapes = {
      {}, {3, 20}, {3, 4, 5}, {2, 3, 2, 5}, {kRows, 1}, {1, 2, 1, 3, 2, 5}};
  std::vector<Arrangement> result;
  for (const auto& kept : shapes) {
    for (const std::size_t gap : {0, 1, 5}) {
      for (const bool reversed : {false, true}) {
        Arrangement arrangement;
        arrangement.kind = kind;
        arrangement.kept = kept;
        arrangement.gap = gap;
        arrangement.shift = result.size() % 17;
        arrangement.reversed = reversed;
        arrangement.step_outermost = kind == Kind::side_by_side && result.size() % 3 == 0;
        result.push_back(arrangement);
      }
    }
  }
  return result;
}

/// Runs body(x, g, trial) for every element and operator at lengths that reach every walk.
template <class Body>
void for_all_walks(Kind kind, const Body& body) {
  Random random(150);
  std::size_t calls = 0;
  for (const Element element : kElements) {
    for (const SoftmaxKind operation : kSoftmaxKinds) {
      for (const std::size_t length : {1, 2, 3, 4, 5, 7, 16, 33, 100, 256, 257, 400}) {
        SoftmaxTrial trial;
        trial.kind = operation;
        trial.policy = kAllPolicies[calls++ % 5];
        set_kind(trial, kind);
        const auto each = static_cast<std::size_t>(length);
        const Rows x = eventful_logits(element, kRows, each, random);
        body(x, random_rows(element, kRows, each, Fill::uniform, 1.0, random), trial);
        ASSERT_FALSE(::testing::Test::HasFailure())
            << name(element) << " length " << length << ' ' << spelled(trial);
      }
    }
  }
  EXPECT_EQ(calls, 4u * 3 * 12);
}

class SoftmaxLayout : public ::testing::TestWithParam<Kind> {};

TEST_P(SoftmaxLayout, EveryArrangementGivesTheBitsOfTheDenseOne) {
  Random random(151);
  std::size_t arranged = 0;
  for_all_walks(GetParam(), [&](const Rows& x, const Rows& g, const SoftmaxTrial& dense) {
    const SoftmaxBoth outcome = both(x, g, dense);
    const Mask mask = random_mask(x.rows, x.length, random);
    SoftmaxTrial masked = dense;
    masked.mask = &mask;
    const SoftmaxBoth masked_outcome = both(x, g, masked);
    const std::vector<Arrangement> all = arrangements(GetParam());
    for (std::size_t a = arranged % 3; a < all.size(); a += 3) {
      SoftmaxTrial trial = a % 2 == 0 ? dense : masked;
      trial.input = trial.second = trial.output = all[a];
      // Operands share the kept sizes, nothing else.
      trial.second.gap = (trial.input.gap + 3) % 7;
      trial.output.gap = (trial.input.gap + 1) % 7;
      trial.second.shift = (trial.input.shift + 5) % 16;
      trial.output.shift = (trial.input.shift + 9) % 16;
      trial.output.reversed = !trial.input.reversed;
      trial.second.step_outermost = !trial.input.step_outermost;
      trial.streams = a % 5 == 0;
      ASSERT_EQ(difference(both(x, g, trial), a % 2 == 0 ? outcome : masked_outcome), "")
          << "arrangement " << a;
      ++arranged;
    }
  });
  EXPECT_EQ(arranged, 144u * 12);
}

TEST_P(SoftmaxLayout, EveryMisalignmentGivesTheSameBits) {
  for_all_walks(GetParam(), [](const Rows& x, const Rows& g, const SoftmaxTrial& aligned) {
    const SoftmaxBoth outcome = both(x, g, aligned);
    for (std::size_t shift = 1; shift<34; shift += x.length> 5 ? 4 : 1) {
      SoftmaxTrial trial = aligned;
      trial.input.shift = shift;
      trial.second.shift = 33 - shift;
      trial.output.shift = shift * 7 % 33;
      trial.streams = shift % 2 == 0;
      ASSERT_EQ(difference(both(x, g, trial), outcome), "") << shift;
    }
  });
}

TEST_P(SoftmaxLayout, OutputMayBeTheInput) {
  Random random(152);
  for_all_walks(GetParam(), [&](const Rows& x, const Rows& g, SoftmaxTrial trial) {
    if (trial.kind == SoftmaxKind::logsumexp) return;
    const Mask mask = random_mask(x.rows, x.length, random);
    for (const Mask* with : {static_cast<const Mask*>(nullptr), &mask}) {
      trial.mask = with;
      trial.in_place = false;
      const SoftmaxBoth outcome = both(x, g, trial);
      trial.in_place = true;
      ASSERT_EQ(difference(both(x, g, trial), outcome), "");
    }
  });
}

TEST_P(SoftmaxLayout, InspectingCountsTheSameAndWritesNothing) {
  for_all_walks(GetParam(), [](const Rows& x, const Rows& g, SoftmaxTrial trial) {
    const bool per_row = trial.kind == SoftmaxKind::logsumexp;
    const SoftmaxBoth outcome = both(x, g, trial);
    trial.inspect = true;
    Outcome out = forward(x, trial);
    Outcome grad = backward(gradient_for(g, trial.kind), per_row ? x : outcome.forward.values,
                            outcome.forward.saved, trial);
    ASSERT_EQ(out.values, untouched(x));
    ASSERT_EQ(grad.values, untouched(x));
    out.values = outcome.forward.values;
    grad.values = outcome.backward.values;
    ASSERT_EQ(difference(out, outcome.forward), "");
    ASSERT_EQ(difference(grad, outcome.backward), "");
  });
}

TEST_P(SoftmaxLayout, SavingIsOptional) {
  for_all_walks(GetParam(), [](const Rows& x, const Rows&, SoftmaxTrial trial) {
    if (trial.kind == SoftmaxKind::logsumexp) return;
    const Outcome out = forward(x, trial);
    trial.save = false;
    const Outcome unsaved = forward(x, trial);
    ASSERT_EQ(unsaved.values, out.values);
    ASSERT_EQ(unsaved.saved, std::vector<double>(x.rows, kNeverSaved));
  });
}

TEST_P(SoftmaxLayout, NoRowsAreNoWork) {
  const Rows none(Element::float32, 0, 5);
  for (const SoftmaxKind kind : kSoftmaxKinds) {
    SoftmaxTrial trial;
    trial.kind = kind;
    set_kind(trial, GetParam());
    const SoftmaxBoth outcome = both(none, none, trial);
    EXPECT_FALSE(outcome.forward.hits.any());
    EXPECT_FALSE(outcome.backward.hits.any());
  }
}

INSTANTIATE_TEST_SUITE_P(, SoftmaxLayout, ::testing::Values(Kind::contiguous, Kind::side_by_side),
                         [](const auto& instance) {
                           return instance.param == Kind::contiguous ? "Contiguous" : "SideBySide";
                         });

// Tiles of neighbouring rows have up to 512 columns; widths about that, and odd ones.
TEST(SoftmaxLayouts, TilesOfAnyWidthAreRightAndAgree) {
  Random random(153);
  std::size_t checked = 0;
  for (const Element element : kElements) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      for (const std::size_t width : {1, 3, 15, 17, 31, 63, 65, 127, 511, 512, 513, 777, 1025}) {
        for (const std::size_t length : {3, 6, 19, 40}) {
          const auto rows = static_cast<std::size_t>(width);
          const Rows x = eventful_logits(element, rows, static_cast<std::size_t>(length), random);
          const Rows g = random_rows(element, rows, x.length, Fill::uniform, 1.0, random);
          const Mask mask = random_mask(rows, x.length, random);
          SoftmaxTrial trial;
          trial.kind = kind;
          trial.policy = Policy::zero;
          if (checked % 2 == 1) trial.mask = &mask;
          set_kind(trial, Kind::side_by_side);
          const SoftmaxBoth outcome = both(x, g, trial);
          if (element != Element::float64 || rows < 100) {
            ASSERT_EQ(check_both(x, g, outcome, trial).failure, "") << width << ' ' << length;
          }
          trial.output.gap = trial.second.gap = 3;
          ASSERT_EQ(difference(both(x, g, trial), outcome), "") << width << ' ' << length;
          ++checked;
        }
      }
    }
  }
  EXPECT_EQ(checked, 4u * 3 * 13 * 4);
}

// A long dim that is not last has more elements a column than a tile has rows.
TEST(SoftmaxLayouts, LongColumnsAreRight) {
  Random random(154);
  for (const Element element : {Element::float32, Element::bfloat16, Element::float64}) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      for (const std::size_t length : {1000, 8193, 20000}) {
        if (element == Element::float64 && length > 1000) continue;
        const Rows x = eventful_logits(element, 5, static_cast<std::size_t>(length), random);
        const Rows g = random_rows(element, 5, x.length, Fill::uniform, 1.0, random);
        SoftmaxTrial trial;
        trial.kind = kind;
        set_kind(trial, Kind::side_by_side);
        EXPECT_EQ(check_both(x, g, both(x, g, trial), trial).failure, "") << length;
      }
    }
  }
}

// An expanded gradient: one run of rows that stands for all of them.
TEST(SoftmaxLayouts, InputsMayRepeatWithStrideZero) {
  Random random(155);
  for (const Element element : kElements) {
    for (const Kind layout : {Kind::contiguous, Kind::side_by_side}) {
      for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::log_softmax}) {
        for (const std::size_t length : {3, 40, 300}) {
          SoftmaxTrial dense;
          dense.kind = kind;
          set_kind(dense, layout);
          set_kept(dense, {4, 5});
          const Rows x = eventful_logits(element, 20, static_cast<std::size_t>(length), random);
          Rows g = random_rows(element, 20, x.length, Fill::uniform, 1.0, random);
          for (std::size_t i = 5 * g.length; i < g.bits.size(); ++i)
            g.bits[i] = g.bits[i % (5 * g.length)];
          const Outcome out = forward(x, dense);
          SoftmaxTrial repeated = dense;
          repeated.input.repeated = true;
          EXPECT_EQ(difference(backward(g, out.values, out.saved, repeated),
                               backward(g, out.values, out.saved, dense)),
                    "");
        }
      }
    }
  }
}

// Conversion happens on the way in and out and nowhere else: the bits are those of float32 rows.
TEST(SoftmaxStaging, AStagedRowHasTheBitsOfTheDirectOne) {
  Random random(156);
  std::size_t compared = 0;
  for (const Element half : {Element::float16, Element::bfloat16}) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      for (const Kind layout : {Kind::contiguous, Kind::side_by_side}) {
        for (const std::size_t length : kSoftmaxLengths) {
          if (layout == Kind::side_by_side && length > 300) continue;
          const Rows x = random_logits(half, 5, length, random.pick(kLogits), 60.0, random);
          Rows exact(Element::float32, 5, length);
          for (std::size_t i = 0; i < x.bits.size(); ++i)
            exact.bits[i] = encode(Element::float32, decode(half, x.bits[i]));
          SoftmaxTrial trial;
          trial.kind = kind;
          set_kind(trial, layout);
          const Outcome direct = forward(exact, trial);
          const Outcome halves = forward(x, trial);
          trial.result = Element::float32;
          const Outcome staged = forward(x, trial);
          ASSERT_EQ(difference(staged, direct), "") << length << ' ' << spelled(trial);
          for (std::size_t i = 0; i < x.bits.size() && kind != SoftmaxKind::logsumexp; ++i) {
            ASSERT_EQ(halves.values.bits[i],
                      encode(half, decode(Element::float32, direct.values.bits[i])));
          }
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 200u);
}

}  // namespace
}  // namespace safeops::cases
