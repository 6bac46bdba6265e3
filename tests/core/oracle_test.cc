// The oracle is judged here by what it did not itself produce: the compiler's conversions and exact
// arithmetic.
#include <gtest/gtest.h>

#include <bit>

#include "cases/normalize_check.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

TEST(Oracle, EveryHalfPatternSurvivesDecodingAndEncoding) {
  std::size_t compared = 0;
  for (const Element element : {Element::float16, Element::bfloat16}) {
    for (std::uint64_t bits = 0; bits < 0x10000; ++bits) {
      const double value = decode(element, bits);
      ASSERT_EQ(std::isnan(value), is_nan(element, bits)) << name(element) << ' ' << bits;
      if (std::isnan(value)) continue;
      ASSERT_EQ(encode(element, value), bits) << name(element);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2 * 0x10000u - 2 * 0x3FFu - 2 * 0x7Fu);
}

TEST(Oracle, Float32ConversionsAreThoseOfTheCompiler) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto pattern = static_cast<std::uint32_t>(random.next());
    const float value = std::bit_cast<float>(pattern);
    if (std::isnan(value)) continue;
    ASSERT_EQ(decode(Element::float32, pattern), static_cast<double>(value));
    // Around every exponent of float32, with bits below its last place, ties among them.
    const double fine =
        value * (1.0 + random.symmetric() * 0x1p-24) + (i % 3 == 0 ? 0.0 : 0x1p-150);
    ASSERT_EQ(encode(Element::float32, fine),
              std::bit_cast<std::uint32_t>(static_cast<float>(fine)))
        << fine;
  }
  for (const double tie :
       {0x1p-150, 0x1.8p-149, 0x1.000001p0, 0x1.000003p0, 0x1.ffffffp127, 0x1.fffffefffffffp127}) {
    ASSERT_EQ(encode(Element::float32, tie), std::bit_cast<std::uint32_t>(static_cast<float>(tie)))
        << tie;
  }
}

TEST(Oracle, Float64PatternsAreTheirOwnEncoding) {
  Random random(2);
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t bits = random.next() >> (i % 5 == 0 ? 12 : 0);
    const double value = std::bit_cast<double>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(decode(Element::float64, bits)), bits);
    ASSERT_EQ(encode(Element::float64, value), bits);
  }
}

TEST(Oracle, KnowsTheLimitsOfEveryFormat) {
  EXPECT_EQ(largest(Element::float16), 65504);
  EXPECT_EQ(smallest_subnormal(Element::float16), 0x1p-24);
  EXPECT_EQ(largest(Element::bfloat16), 0x1.fep127);
  EXPECT_EQ(largest(Element::float32), std::numeric_limits<float>::max());
  EXPECT_EQ(smallest_normal(Element::float32), std::numeric_limits<float>::min());
  EXPECT_EQ(largest(Element::float64), std::numeric_limits<double>::max());
  EXPECT_EQ(smallest_subnormal(Element::float64), std::numeric_limits<double>::denorm_min());
  for (const Element element : kElements) {
    EXPECT_EQ(rounded(element, largest(element)), largest(element)) << name(element);
    EXPECT_EQ(rounded(element, smallest_subnormal(element)), smallest_subnormal(element))
        << name(element);
  }
}

TEST(Oracle, MeasuresErrorsInUnitsOfTheLastPlace) {
  EXPECT_EQ(error_in_ulp(Element::float32, 1.0 + 0x1p-23, Wide(1.0)), 1);
  EXPECT_EQ(error_in_ulp(Element::float32, 1.0, Wide(1.0) + power_of_two(-24)), 0.5);
  EXPECT_EQ(error_in_ulp(Element::float64, 0x1p-1074, Wide(0.0)), 1);
  EXPECT_EQ(error_in_ulp(Element::float16, 0x1p-24, power_of_two(-25)), 0.5);
  EXPECT_EQ(error_in_ulp(Element::float16, kInfinity, Wide(65520.0)), 0);
  EXPECT_EQ(error_in_ulp(Element::float16, kInfinity, Wide(65504.0)), 0.5);
  EXPECT_EQ(error_in_ulp(Element::float32, kNaN, Wide(kNaN)), 0);
  EXPECT_EQ(error_in_ulp(Element::float32, kNaN, Wide(1.0)), kInfinity);
  EXPECT_EQ(error_in_ulp(Element::float32, 1.0, Wide(kNaN)), kInfinity);
  EXPECT_EQ(error_in_ulp(Element::float32, -kInfinity, Wide(kInfinity)), kInfinity);
  EXPECT_EQ(error_in_ulp(Element::float32, largest(Element::float32), Wide(kInfinity)), kInfinity);
}

TEST(Oracle, GivesTheNormsThatAreKnownExactly) {
  Rows x(Element::float64, 1, 2);
  x.set(0, 0, -3e300);
  x.set(0, 1, 4e300);
  EXPECT_TRUE(nearly_equal(norm_of(x, 0, 2, false).value, Wide(5e300)));
  EXPECT_EQ(norm_of(x, 0, 1, false).value.to_double(), 7e300);
  EXPECT_EQ(norm_of(x, 0, kInfinity, false).value, Wide(4e300));
  EXPECT_EQ(norm_of(x, 0, -kInfinity, false).value, Wide(3e300));
  EXPECT_EQ(norm_of(x, 0, 0, false).value, Wide(2.0));
  EXPECT_TRUE(nearly_equal(norm_of(x, 0, 2, true).value, Wide(5e300)));
  EXPECT_TRUE(nearly_equal(norm_of(x, 0, -1, false).value, Wide(12e300) / 7.0));
  x.set(0, 0, 0.0);
  EXPECT_TRUE(norm_of(x, 0, -1, false).value.is_zero());
}

// A check that passes wrong answers is worse than none: break a right outcome in each way that
// matters.
TEST(Oracle, RejectsWrongOutcomes) {
  Random random(3);
  Rows x = random_rows(Element::float32, 4, 9, Fill::uniform, 1.0, random);
  for (std::size_t i = 0; i < 9; ++i) x.set(2, i, 0.0);
  Trial trial;
  trial.policy = {0, 0, 0, true};
  Outcome right;
  right.values = untouched(x);
  for (std::size_t r = 0; r < 4; ++r) {
    const Wide norm = norm_of(x, r, 2, false).value;
    right.saved.push_back(norm.to_double());
    for (std::size_t i = 0; i < 9; ++i)
      right.values.set(r, i, r == 2 ? 0.0 : (Wide(x.at(r, i)) / norm).to_double());
  }
  right.hits[Condition::zero_norm].add(1, 2);
  right.hits.raising.add(1, 2);
  ASSERT_EQ(check_forward(x, right, trial).failure, "");

  const auto rejects = [&](auto breakage) {
    Outcome wrong = right;
    breakage(wrong);
    return !check_forward(x, wrong, trial).good();
  };
  EXPECT_TRUE(rejects([](Outcome& o) { o.values.bits[3] += 1; }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.values.bits[3] ^= 0x80000000u; }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.values.set(2, 4, kNaN); }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.saved[1] *= 1.0 + 0x1p-35; }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.saved[1] = -o.saved[1]; }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.hits[Condition::zero_norm].first = 1; }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.hits[Condition::below_eps].add(1, 0); }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.hits.raising = {}; }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.hits[Condition::rescued].add(1, 0); }));
  EXPECT_TRUE(rejects([](Outcome& o) { o.disturbed = 1; }));
}

}  // namespace
}  // namespace safeops::cases
