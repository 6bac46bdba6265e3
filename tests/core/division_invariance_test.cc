// A policy changes no bit of a regular element, forward or backward, and neither does an input that
// comes as a number.
#include <gtest/gtest.h>

#include "cases/division_everywhere.h"
#include "cases/division_numbers.h"

namespace safeops::cases {
namespace {

class DivisionInvariance : public EveryTarget {};

/// Whether an element is regular under the policy and eps of a call, its value being judged where
/// backward finds more.
bool is_regular(const DivisionTrial& trial, Element element, double a, double b) {
  const double threshold = threshold_of(trial, element);
  return has_divisor(trial.kind) ? !condition_of_quotient(a, b, threshold)
                                 : !condition_of_argument(b, threshold);
}

TEST_F(DivisionInvariance, APolicyChangesNoBitOfARegularElement) {
  Random random(240);
  std::size_t compared = 0;
  for (const std::int64_t target : supported_targets()) {
    use_target(target);
    for (const Element element : kElements) {
      for (const DivisionKind kind : kDivisionKinds) {
        const Operands operands(element, 1500, 1, 1e-3, 5, random);
        for (const bool backward : {false, true}) {
          DivisionTrial stock;
          stock.kind = kind;
          stock.backward = backward;
          const Inputs inputs = operands.inputs(stock);
          const DivisionOutcome reference = divide(inputs, stock);
          for (const Policy policy : kAllPolicies) {
            for (const std::optional<double> eps : {std::optional<double>(), {1e-3}}) {
              DivisionTrial trial = stock;
              trial.policy = policy;
              trial.eps = eps;
              const DivisionOutcome outcome = divide(inputs, trial);
              for (std::size_t i = 0; i < 1500; ++i) {
                if (!is_regular(trial, element, operands.a.at(i, 0), operands.b.at(i, 0))) continue;
                for (std::size_t k = 0; k < outputs_of(trial); ++k) {
                  ASSERT_TRUE(outcome.output[k].same_row(i, reference.output[k], i))
                      << target_name(target) << ' ' << name(element) << ' ' << spelled(trial)
                      << ": " << spelled(inputs, i);
                  ++compared;
                }
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 500000u);
}

// Under stock an eps only says what is counted.
TEST_F(DivisionInvariance, AnEpsChangesNoBitUnderStock) {
  Random random(241);
  for (const Element element : kElements) {
    for (const DivisionKind kind : kDivisionKinds) {
      const Operands operands(element, 1000, 1, 0.125, 5, random);
      for (const bool backward : {false, true}) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.backward = backward;
        const DivisionOutcome plain = divide(operands.inputs(trial), trial);
        trial.eps = 0.125;
        const DivisionOutcome counted = divide(operands.inputs(trial), trial);
        for (std::size_t k = 0; k < outputs_of(trial); ++k)
          EXPECT_EQ(counted.output[k].bits, plain.output[k].bits) << spelled(trial);
        EXPECT_GT(counted.hits[Condition::below_eps].count, 0u);
        EXPECT_EQ(plain.hits[Condition::below_eps].count, 0u);
      }
    }
  }
}

TEST_F(DivisionInvariance, ANumberEqualsAnInputFullOfIt) {
  Random random(242);
  for (const Element element : kElements) {
    for (const DivisionKind kind :
         {DivisionKind::quotient, DivisionKind::truncated, DivisionKind::floored}) {
      for (const double number : {3.0, -0.375, 0.0, -0.0, 0x1p-14, kInfinity, kNaN}) {
        for (const std::size_t which : {0, 1, 2}) {
          for (const bool backward : {false, true}) {
            if (!backward && which == 2) continue;
            DivisionTrial trial;
            trial.kind = kind;
            trial.backward = backward;
            trial.policy = random.pick(kAllPolicies);
            const Operands operands(element, 333, 1, 0, 5, random);
            Inputs inputs = operands.inputs(trial);
            Rows full(element, 333, 1);
            for (std::size_t i = 0; i < 333; ++i) full.set(i, 0, number);
            inputs[which] = &full;
            const DivisionOutcome tensor = divide(inputs, trial);
            inputs[which] = nullptr;
            trial.number[which] = number;
            const DivisionOutcome by_number = divide(inputs, trial);
            if (kind == DivisionKind::truncated && format(element).bytes == 2) {
              EXPECT_EQ(check_everywhere(inputs, trial).failure, "");
              EXPECT_EQ(difference(by_number.hits, tensor.hits), "");
            } else {
              EXPECT_EQ(difference(by_number, tensor), "")
                  << name(element) << ' ' << spelled(trial) << ' ' << number << " is input "
                  << which;
            }
          }
        }
      }
    }
  }
}

TEST_F(DivisionInvariance, ANumberWorksInEveryLayout) {
  Random random(243);
  for (const Element element : kElements) {
    DivisionTrial trial;
    trial.number[1] = 0.1;
    trial.sizes = Dims{5, 7, 11};
    const Operands operands(element, 5 * 7 * 11, 1, 0, 8, random);
    const Inputs inputs = {&operands.a, nullptr, nullptr};
    const DivisionOutcome plain = divide(inputs, trial);
    trial.output[0].order = {2, 0, 1};
    trial.input[0].step = 2;
    EXPECT_EQ(difference(divide(inputs, trial), plain), "") << name(element);
    trial.sizes = Dims();
    const Rows one = operands.a.row(3);
    EXPECT_TRUE(divide({&one, nullptr, nullptr}, trial).output[0].same_row(0, plain.output[0], 3));
  }
}

}  // namespace
}  // namespace safeops::cases
