// Errors of the division family against wide arithmetic, on every SIMD target. The worst case of
// each test is recorded in the test report (--gtest_output) and printed where a bound fails.
#include <gtest/gtest.h>

#include "cases/division_everywhere.h"
#include "cases/division_numbers.h"

namespace safeops::cases {
namespace {

struct Operation {
  DivisionKind kind;
  Element element;
};

std::vector<Operation> operations() {
  std::vector<Operation> all;
  for (const DivisionKind kind : kDivisionKinds) {
    for (const Element element : kElements) all.push_back({kind, element});
  }
  return all;
}

class DivisionAccuracy : public ::testing::TestWithParam<Operation> {
 protected:
  void TearDown() override {
    use_target(0);
    EXPECT_GT(report_.elements, 0u) << "nothing was compared";
    EXPECT_EQ(report_.failure, "");
    RecordProperty("elements", std::to_string(report_.elements));
    RecordProperty("worst_ulp", std::to_string(report_.worst));
    RecordProperty("witness", report_.witness);
  }

  void check(const Operands& operands, bool backward) {
    DivisionTrial trial;
    trial.kind = GetParam().kind;
    trial.backward = backward;
    report_.merge(check_everywhere(operands.inputs(trial), trial));
  }

  Element element() const { return GetParam().element; }
  /// Wide arithmetic for float64 costs ten times as much.
  std::size_t count() const { return element() == Element::float64 ? 8000 : 60000; }

  Report report_;
};

/// Numbers of any significand with exponents in [-range, range], positive where `positive`.
Rows numbers_around_one(Element element, std::size_t count, int range, bool positive,
                        Random& random) {
  Rows rows(element, count, 1);
  for (std::size_t i = 0; i < count; ++i) {
    const double value =
        std::ldexp(random.symmetric() * 0.5 + 1.5, random.between(-range, range - 1));
    rows.set(i, 0, positive || random.below(2) == 0 ? value : -value);
  }
  return rows;
}

TEST_P(DivisionAccuracy, ValuesOfEveryMagnitude) {
  Random random(210);
  check(Operands(element(), count(), 1, 0, 100, random), false);
}

TEST_P(DivisionAccuracy, ValuesThatStayInRange) {
  Random random(211);
  Operands operands(element(), count(), 1, 0, 100, random);
  for (const int range : {1, 4, format(element()).max_exponent / 2}) {
    operands.a = numbers_around_one(element(), count(), range, false, random);
    operands.b = numbers_around_one(element(), count(), range, true, random);
    check(operands, false);
  }
}

TEST_P(DivisionAccuracy, GradientsOfEveryMagnitude) {
  Random random(212);
  check(Operands(element(), count(), 1, 0, 100, random), true);
}

TEST_P(DivisionAccuracy, GradientsThatStayInRange) {
  Random random(213);
  Operands operands(element(), count(), 1, 0, 100, random);
  for (const int range : {1, format(element()).max_exponent / 4}) {
    operands.g = numbers_around_one(element(), count(), range, false, random);
    operands.a = numbers_around_one(element(), count(), range, false, random);
    operands.b = numbers_around_one(element(), count(), range, true, random);
    check(operands, true);
  }
}

INSTANTIATE_TEST_SUITE_P(, DivisionAccuracy, ::testing::ValuesIn(operations()),
                         [](const auto& instance) {
                           return std::string(name(instance.param.kind)) + "_" +
                                  name(instance.param.element);
                         });

class LogarithmAccuracy : public EveryTarget {};

// There the logarithm is small beside the parts it is added up from.
TEST_F(LogarithmAccuracy, HoldsAroundOneAndWhereReductionSteps) {
  Random random(214);
  DivisionTrial trial;
  trial.kind = DivisionKind::log;
  for (const Element element : kElements) {
    Report report;
    for (const double center : {1.0, 0x1.6a09e667f3bcdp0, 0x1.6a09e667f3bcdp-1, 2.0, 0.5}) {
      const std::uint64_t at = encode(element, center);
      const std::size_t reach = format(element).bytes == 2 ? 100 : 1500;
      Rows x(element, 2 * reach, 1);
      for (std::size_t i = 0; i < x.rows; ++i) x.bits[i] = at + i - reach;
      report.merge(check_everywhere({&x, nullptr, nullptr}, trial));
      for (std::size_t i = 0; i < x.rows; ++i)
        x.set(i, 0, center * (1 + std::ldexp(random.symmetric(), -random.between(2, 50))));
      report.merge(check_everywhere({&x, nullptr, nullptr}, trial));
    }
    EXPECT_EQ(report.failure, "");
    EXPECT_GE(report.elements, 2000u);
    RecordProperty(std::string(name(element)) + "_worst_ulp", std::to_string(report.worst));
    RecordProperty(std::string(name(element)) + "_witness", report.witness);
  }
}

/// A call of one element: x, or g, a, b.
struct Witness {
  DivisionKind kind;
  Element element;
  bool backward;
  double g, a, b;
};

// The worst that long searches found, of every kernel whose result is not rounded once.
constexpr Witness kWitnesses[] = {
    {DivisionKind::log, Element::float32, false, 0, 0, 0x1.67e3a8p-1},           // 0.81 ulp
    {DivisionKind::log, Element::float32, false, 0, 0, 0x1.65a9fap-1},           // 0.85, SSE4
    {DivisionKind::log, Element::float64, false, 0, 0, 0x1.6978afb9e9914p+0},    // 0.81
    {DivisionKind::rsqrt, Element::float32, false, 0, 0, 0x1.fffffcp-1},         // 0.50
    {DivisionKind::rsqrt, Element::float64, false, 0, 0, 0x1.00cc83080d412p+0},  // 1.49
    {DivisionKind::rsqrt, Element::float64, true, 0x1.254d97adab25ap+0, 0,
     0x1.1a7b528b897eep+0},                                                         // 2.58
    {DivisionKind::sqrt, Element::float32, true, -0x1.fd59aap-1, 0, 0x1.0149fp+0},  // 1.46
    {DivisionKind::sqrt, Element::float64, true, -0x1.fd02eb106f73ep+0, 0,
     0x1.02ff5e0611bfap+0},  // 1.45
    {DivisionKind::quotient, Element::float64, true, -0x1.cea9c2a628246p+0, -0x1.e59fc82d9673cp-1,
     0x1.dd583c4b354acp+0},  // 2.24
    // Products of three factors of 1 / sqrt(x) were 4.8 ulp off, or lost a subnormal gradient.
    {DivisionKind::rsqrt, Element::float64, true, 0x1.a6ac7055dc8dap+985, 0,
     0x1.fffffffffffffp+1023},
    {DivisionKind::rsqrt, Element::float64, true, 0x1.30b68ea1aa42bp-789, 0, 0x1.e1b0d7d8a538p-612},
    {DivisionKind::rsqrt, Element::float64, true, 0x0.0000000000004p-1022, 0,
     0x1.259d33a8b5862p-61},
};

class DivisionWitnesses : public EveryTarget {};

TEST_F(DivisionWitnesses, StayWithinTheirBounds) {
  for (const Witness& witness : kWitnesses) {
    Rows g(witness.element, 1, 1), a = g, b = g;
    g.set(0, 0, witness.g);
    a.set(0, 0, witness.a);
    b.set(0, 0, witness.b);
    DivisionTrial trial;
    trial.kind = witness.kind;
    trial.backward = witness.backward;
    const Inputs backward = {&g, &b, has_divisor(trial.kind) ? &a : nullptr};
    const Report report =
        check_everywhere(trial.backward ? backward : Inputs{&b, nullptr, nullptr}, trial);
    EXPECT_EQ(report.failure, "");
    EXPECT_GT(report.elements, 0u);
  }
}

class HalfDivision : public ::testing::TestWithParam<Element> {
 protected:
  void TearDown() override { use_target(0); }
  static Rows every_pattern() {
    Rows rows(GetParam(), 0x10000, 1);
    for (std::size_t i = 0; i < rows.rows; ++i) rows.bits[i] = i;
    return rows;
  }
};

TEST_P(HalfDivision, EveryArgumentForwardAndBackwardUnderEveryPolicy) {
  const Rows x = every_pattern();
  Rows g(GetParam(), x.rows, 1);
  for (std::size_t i = 0; i < g.rows; ++i) g.set(i, 0, i % 3 == 0 ? 1.0 : i % 3 == 1 ? -0.75 : 0);
  std::size_t compared = 0;
  for_every_call(GetParam(), [&](const DivisionTrial& trial) {
    if (has_divisor(trial.kind) || (trial.eps && *trial.eps != 1e-3)) return;
    const Inputs inputs = trial.backward ? Inputs{&g, &x, nullptr} : Inputs{&x, nullptr, nullptr};
    const Report report = check_everywhere(inputs, trial);
    ASSERT_EQ(report.failure, "");
    compared += report.elements;
  });
  EXPECT_GT(compared, 3u * 2 * 4 * 2 * 0x10000);
}

TEST_P(HalfDivision, EveryReciprocal) {
  const Rows x = every_pattern();
  for (const bool backward : {false, true}) {
    DivisionTrial trial;
    trial.backward = backward;
    const Inputs inputs = backward ? Inputs{&x, &x, nullptr} : Inputs{nullptr, &x, nullptr};
    const Report report = check_everywhere(inputs, trial);
    EXPECT_EQ(report.failure, "");
    EXPECT_GE(report.elements, 0x10000u);
  }
}

// The nearest number, whatever was rounded on the way: half a unit, ties to even.
TEST_P(HalfDivision, EveryPairOfExponentsIsRoundedToNearest) {
  Random random(215);
  const std::size_t fraction_bits = static_cast<std::size_t>(format(GetParam()).precision) - 1;
  const std::size_t signs_and_exponents = 0x10000u >> fraction_bits;
  const std::size_t rounds_of_all = GetParam() == Element::float16 ? 40 : 1;
  Rows a(GetParam(), signs_and_exponents * signs_and_exponents, 1), b = a;
  for (std::size_t round = 0; round < rounds_of_all; ++round) {
    for (std::size_t i = 0; i < a.rows; ++i) {
      const std::uint64_t fractions = random.next();
      const std::uint64_t fraction = (std::uint64_t{1} << fraction_bits) - 1;
      a.bits[i] = i / signs_and_exponents << fraction_bits | (fractions & fraction);
      b.bits[i] = i % signs_and_exponents << fraction_bits | (fractions >> 32 & fraction);
    }
    const Inputs inputs = {&a, &b, nullptr};
    ASSERT_EQ(check_everywhere(inputs, DivisionTrial{}).failure, "");
    const DivisionOutcome outcome = divide(inputs, DivisionTrial{});
    for (std::size_t i = 0; i < a.rows; ++i) {
      const long double exact = static_cast<long double>(a.at(i, 0)) / b.at(i, 0);
      if (std::isnan(exact)) continue;
      ASSERT_EQ(outcome.output[0].bits[i], encode(GetParam(), static_cast<double>(exact)))
          << text(a.at(i, 0)) << " / " << text(b.at(i, 0));
    }
  }
}

TEST_P(HalfDivision, ANumberIsNotRoundedToTheHalfType) {
  const Rows a = every_pattern();
  for (const DivisionKind kind :
       {DivisionKind::quotient, DivisionKind::truncated, DivisionKind::floored}) {
    for (const double number : {0.1, -3.3, 1e-6, 12345.678, 1e20}) {
      DivisionTrial trial;
      trial.kind = kind;
      trial.number[1] = number;
      EXPECT_EQ(check_everywhere({&a, nullptr, nullptr}, trial).failure, "");
      trial.backward = true;
      EXPECT_EQ(check_everywhere({&a, nullptr, &a}, trial).failure, "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, HalfDivision, ::testing::Values(Element::float16, Element::bfloat16),
                         [](const auto& instance) { return name(instance.param); });

}  // namespace
}  // namespace safeops::cases
