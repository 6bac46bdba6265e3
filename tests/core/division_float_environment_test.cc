// The caller's floating-point modes change nothing in a division, and a division changes nothing in
// them.
#include <gtest/gtest.h>

#if defined(__x86_64__)

#include "cases/control_word.h"
#include "cases/division_check.h"
#include "cases/division_numbers.h"

namespace safeops::cases {
namespace {

/// Calls body(inputs, trial) for every kernel with numbers that every mode would spoil, among them
/// subnormal divisors, arguments and thresholds.
template <class Body>
void for_delicate_calls(const Body& body) {
  Random random(250);
  std::size_t calls = 0;
  for (const Element element : kElements) {
    for (const std::size_t parts : {1, 2}) {
      if (parts == 2 && format(element).bytes == 2) continue;
      for (const DivisionKind kind : kDivisionKinds) {
        if (parts == 2 && rounds(kind)) continue;
        for (const bool backward : {false, true}) {
          for (const double eps : {0.0, smallest_normal(element) / 3}) {
            DivisionTrial trial;
            trial.kind = kind;
            trial.backward = backward;
            trial.policy = eps == 0 ? Policy::zero : Policy::nan;
            trial.eps = eps;
            // Roots and logarithms take a floor below the normal range.
            if (eps != 0 && (kind == DivisionKind::sqrt || kind == DivisionKind::log))
              trial.policy = Policy::epsilon;
            const Operands operands(element, 700, parts, smallest_normal(element) / 3, 2, random);
            body(operands.inputs(trial), trial);
            ASSERT_FALSE(::testing::Test::HasFailure()) << name(element) << ' ' << spelled(trial);
            ++calls;
          }
        }
      }
    }
  }
  EXPECT_EQ(calls, (4u * 6 + 2 * 4) * 2 * 2);
}

TEST(DivisionFloatEnvironment, ModesOfTheCallerDoNotShowAndSurvive) {
  for_delicate_calls([](const Inputs& inputs, const DivisionTrial& trial) {
    const DivisionOutcome outcome = divide(inputs, trial);
    for (const Mode& mode : kModes) {
      unsigned after;
      DivisionOutcome there;
      {
        const ControlWord word(mode.control);
        there = divide(inputs, trial);
        after = _mm_getcsr();
      }
      EXPECT_EQ(after & ~kStatus, mode.control) << mode.name;
      EXPECT_EQ(difference(there, outcome), "") << mode.name;
    }
  });
}

TEST(DivisionFloatEnvironment, ModesOfWorkersDoNotShowAndSurvive) {
  Random random(251);
  for (const Element element : kElements) {
    for (const DivisionKind kind : kDivisionKinds) {
      for (const bool backward : {false, true}) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.backward = backward;
        trial.policy = Policy::nan;
        trial.eps = smallest_normal(element) / 3;
        const Operands operands(element, 40000, 1, *trial.eps, 20, random);
        const DivisionOutcome outcome = divide(operands.inputs(trial), trial);
        FlushingExecutor flushing;
        trial.executor = &flushing;
        EXPECT_EQ(difference(divide(operands.inputs(trial), trial), outcome), "");
        EXPECT_TRUE(flushing.kept_);
        EXPECT_GT(flushing.chunks_, 1u);
      }
    }
  }
}

}  // namespace
}  // namespace safeops::cases

#endif
