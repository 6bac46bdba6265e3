// Quotients rounded towards zero and down: bits of PyTorch's definitions, which are Python's.
#include <gtest/gtest.h>

#include "cases/division_everywhere.h"
#include "cases/division_numbers.h"

namespace safeops::cases {
namespace {

class DivisionRounding : public EveryTarget {};

/// Python's floor division: what the remainder leaves is divided, and snapped to an integer,
/// because neither step is exact.
template <class Scalar>
Scalar floor_division(Scalar a, Scalar b) {
  const Scalar quotient = a / b;
  if (b == 0) return quotient;
  const Scalar remainder = std::fmod(a, b);
  Scalar whole = (a - remainder) / b;
  if (remainder != 0 && std::signbit(remainder) != std::signbit(b)) whole -= 1;
  if (whole == 0) return std::copysign(Scalar(0), quotient);
  const Scalar down = std::floor(whole);
  return whole - down > Scalar(0.5) ? down + 1 : down;
}

/// In the format computed in, rounded once.
double by_definition(DivisionKind kind, Element element, double a, double b) {
  const bool down = kind == DivisionKind::floored;
  if (element == Element::float64) return down ? floor_division(a, b) : std::trunc(a / b);
  const float narrow_a = static_cast<float>(a), narrow_b = static_cast<float>(b);
  if (down) return rounded(element, floor_division(narrow_a, narrow_b));
  return std::trunc(rounded(element, narrow_a / narrow_b));
}

Report check_bits(const Inputs& inputs, const DivisionOutcome& outcome,
                  const DivisionTrial& trial) {
  Report report = check_division(inputs, outcome, trial);
  for (std::size_t i = 0; i < inputs[0]->rows; ++i) {
    const double a = inputs[0]->at(i, 0), b = inputs[1]->at(i, 0);
    const double want = by_definition(trial.kind, inputs[0]->element, a, b);
    if (!same_number(outcome.output[0].at(i, 0), want)) {
      report.fail("got " + text(outcome.output[0].at(i, 0)) + ", defined as " + text(want) + "; " +
                  spelled(trial) + " of " + spelled(inputs, i));
    }
  }
  return report;
}

void expect_bits(const Rows& a, const Rows& b) {
  for (const DivisionKind kind : {DivisionKind::truncated, DivisionKind::floored}) {
    DivisionTrial trial;
    trial.kind = kind;
    EXPECT_EQ(on_every_target({&a, &b, nullptr}, trial, check_bits).failure, "");
  }
}

TEST_F(DivisionRounding, AnyNumbers) {
  Random random(260);
  for (const Element element : kElements) {
    const std::size_t count = element == Element::float64 ? 15000 : 100000;
    const Operands operands(element, count, 1, 0, 10, random);
    expect_bits(operands.a, operands.b);
    const Pairs pairs(element, 0, random);
    expect_bits(pairs.a, pairs.b);
  }
}

// There the rounded quotient may have reached the next integer.
TEST_F(DivisionRounding, QuotientsBesideIntegers) {
  Random random(261);
  for (const Element element : kElements) {
    const std::size_t count = element == Element::float64 ? 20000 : 100000;
    const int bits = format(element).precision + 2;
    Rows a(element, count, 1), b(element, count, 1);
    for (std::size_t i = 0; i < count; ++i) {
      const double divisor = std::ldexp(random.symmetric() * 0.5 + 1.5, random.between(-9, 9));
      b.set(i, 0, random.below(2) == 0 ? divisor : -divisor);
      const double whole =
          std::floor(std::ldexp(std::fabs(random.symmetric()), 1 + random.between(0, bits)));
      a.set(i, 0, whole * b.at(i, 0));
      if (a.at(i, 0) != 0) a.bits[i] += random.below(3) - 1;
    }
    expect_bits(a, b);
  }
}

// Up to where lanes can check themselves, and past it.
TEST_F(DivisionRounding, QuotientsAroundTheEndOfExactIntegers) {
  Random random(262);
  for (const Element element : {Element::float32, Element::float64}) {
    const std::size_t count = element == Element::float64 ? 20000 : 100000;
    const int bits = format(element).precision;
    Rows a(element, count, 1), b(element, count, 1);
    for (std::size_t i = 0; i < count; ++i) {
      b.set(i, 0, std::ldexp(random.symmetric() * 0.5 + 1.5, random.between(-3, 3)));
      a.set(i, 0, std::ldexp(random.symmetric(), random.between(bits - 6, bits + 4)));
    }
    expect_bits(a, b);
  }
}

TEST_F(DivisionRounding, SpecialCasesAreThoseOfPython) {
  struct Case {
    double a, b, truncated, floored;
  };
  const Case cases[] = {{7, 2, 3, 3},
                        {-7, 2, -3, -4},
                        {7, -2, -3, -4},
                        {-7, -2, 3, 3},
                        {6, 3, 2, 2},
                        {-6, 3, -2, -2},
                        {0.0, 3, 0.0, 0.0},
                        {-0.0, 3, -0.0, -0.0},
                        {0.0, -3, -0.0, -0.0},
                        {1, 4, 0.0, 0.0},
                        {-1, 4, -0.0, -1},
                        {1, kInfinity, 0.0, 0.0},
                        {-1, kInfinity, -0.0, -1},
                        {1, -kInfinity, -0.0, -1},
                        {kInfinity, 2, kInfinity, kNaN},
                        {kInfinity, kInfinity, kNaN, kNaN},
                        {1, 0.0, kInfinity, kInfinity},
                        {1, -0.0, -kInfinity, -kInfinity},
                        {0.0, 0.0, kNaN, kNaN},
                        {kNaN, 2, kNaN, kNaN},
                        {2, kNaN, kNaN, kNaN}};
  for (const Element element : kElements) {
    for (const Case& one : cases) {
      Rows a(element, 1, 1), b(element, 1, 1);
      a.set(0, 0, one.a);
      b.set(0, 0, one.b);
      for (const std::int64_t target : supported_targets()) {
        use_target(target);
        DivisionTrial trial;
        trial.kind = DivisionKind::truncated;
        EXPECT_TRUE(same_number(divide({&a, &b, nullptr}, trial).output[0].at(0, 0), one.truncated))
            << name(element) << ' ' << one.a << " / " << one.b;
        trial.kind = DivisionKind::floored;
        EXPECT_TRUE(same_number(divide({&a, &b, nullptr}, trial).output[0].at(0, 0), one.floored))
            << name(element) << ' ' << one.a << " // " << one.b;
      }
    }
  }
}

TEST_F(DivisionRounding, TheFloorOfHalvesIsThatOfTheirQuotient) {
  Rows a(Element::float16, 1, 1), b(Element::float16, 1, 1);
  a.set(0, 0, 3.048828125);
  b.set(0, 0, 0.0014963150024414062);
  DivisionTrial trial;
  trial.kind = DivisionKind::floored;
  EXPECT_EQ(divide({&a, &b, nullptr}, trial).output[0].at(0, 0), 2037);
}

TEST_F(DivisionRounding, AFloorUnderEpsilonIsThatOfTheFlooredQuotient) {
  Random random(263);
  for (const Element element : kElements) {
    for (const DivisionKind kind : {DivisionKind::truncated, DivisionKind::floored}) {
      for (const double eps : {0.1, 0.7, 3.0, 1e-3}) {
        const std::size_t count = element == Element::float64 ? 3000 : 30000;
        Operands operands(element, count, 1, eps, 3, random);
        for (std::size_t i = 0; i < count; ++i) {
          if (i % 2 == 0) operands.a.set(i, 0, std::floor(random.symmetric() * 100) * eps);
        }
        DivisionTrial trial;
        trial.kind = kind;
        trial.policy = Policy::epsilon;
        trial.eps = eps;
        EXPECT_EQ(check_everywhere(operands.inputs(trial), trial).failure, "");
      }
    }
  }
}

TEST_F(DivisionRounding, SlopesAreZeroWhateverTheGradient) {
  Random random(264);
  for (const Element element : kElements) {
    for (const DivisionKind kind : {DivisionKind::truncated, DivisionKind::floored}) {
      for (const Policy policy : kAllPolicies) {
        DivisionTrial trial;
        trial.kind = kind;
        trial.policy = policy;
        trial.backward = true;
        const Operands operands(element, 3000, 1, 0, 3, random);
        EXPECT_EQ(check_everywhere(operands.inputs(trial), trial).failure, "");
      }
    }
  }
}

}  // namespace
}  // namespace safeops::cases
