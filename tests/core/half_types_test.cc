// float16 and bfloat16 have few enough values to try them all, on every target.
#include <gtest/gtest.h>

#include <bit>

#include "cases/normalize_check.h"
#include "core/element.h"
#include "core/simd_target.h"

namespace safeops::cases {
namespace {

template <class Half>
std::uint64_t stored(float value) {
  Half half;
  from_real(value, half);
  return half.bits;
}

std::uint64_t stored(Element element, float value) {
  return element == Element::float16 ? stored<float16>(value) : stored<bfloat16>(value);
}

float loaded(Element element, std::uint16_t bits) {
  return element == Element::float16 ? to_real(float16{bits}) : to_real(bfloat16{bits});
}

class HalfTypes : public ::testing::TestWithParam<Element> {
 protected:
  void TearDown() override { use_target(0); }
};

TEST_P(HalfTypes, LoadIsExactForEveryPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = decode(GetParam(), bits);
    const double value = loaded(GetParam(), static_cast<std::uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(value, expected) << bits;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    }
  }
}

// Every value, every tie between neighbours, and the floats beside both.
TEST_P(HalfTypes, StoreRoundsToNearestEven) {
  std::size_t stores = 0;
  for (std::uint32_t bits = 0; bits + 1 < 0x8000; ++bits) {
    const double here = decode(GetParam(), bits), next = decode(GetParam(), bits + 1);
    if (std::isnan(here) || !std::isfinite(here)) continue;
    const double past = std::isinf(next) ? 2 * here - decode(GetParam(), bits - 1) : next;
    for (const double value : {here, (here + past) / 2}) {
      const float center = static_cast<float>(value);
      for (const float x :
           {std::nextafter(center, 0.0f), center, std::nextafter(center, HUGE_VALF)}) {
        ASSERT_EQ(stored(GetParam(), x), encode(GetParam(), x)) << x;
        ASSERT_EQ(stored(GetParam(), -x), encode(GetParam(), -x)) << -x;
        ++stores;
      }
    }
  }
  EXPECT_GT(stores, 6 * 31000u);
  for (const float x : {HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::max(), 0.0f, -0.0f}) {
    EXPECT_EQ(stored(GetParam(), x), encode(GetParam(), x)) << x;
  }
  const float signaling =
      std::bit_cast<float>(0x7F800001u);  // rounding its bits up would give infinity
  for (const float x :
       {std::numeric_limits<float>::quiet_NaN(), signaling, std::bit_cast<float>(0xFFFFFFFFu)}) {
    EXPECT_TRUE(is_nan(GetParam(), stored(GetParam(), x)));
  }
}

/// Rows {x, scale} under p = inf: y is x / scale where abs(x) <= scale.
void check_quotients(Element element, double scale, bool exact, std::size_t& quotients) {
  Rows x(element, 0x10000, 2);
  for (std::uint64_t bits = 0; bits < 0x10000; ++bits) {
    x.bits[2 * bits] = std::fabs(decode(element, bits)) <= scale ? bits : 0;
    x.set(bits, 1, scale);
  }
  Trial trial;
  trial.p = kInfinity;
  trial.policy = resolve(Policy::zero, 0, false);
  const Outcome out = forward(x, trial);
  for (std::uint64_t row = 0; row < 0x10000; ++row) {
    const double value = x.at(row, 0), y = out.values.at(row, 0);
    const double error = error_in_ulp(element, y, Wide(value) / scale);
    ASSERT_LE(error, exact ? 0 : 0.51) << value << " / " << scale << " gave " << y;
    ASSERT_EQ(std::signbit(y), std::signbit(value)) << value;
    ++quotients;
  }
}

TEST_P(HalfTypes, EveryQuotientIsRoundedToNearestOnEveryTarget) {
  std::size_t quotients = 0;
  for (const std::int64_t target : supported_targets()) {
    use_target(target);
    check_quotients(GetParam(), 1.0, true, quotients);
    check_quotients(GetParam(), rounded(GetParam(), 3.0), false, quotients);
    check_quotients(GetParam(), largest(GetParam()), false, quotients);
    ASSERT_FALSE(HasFailure()) << target_name(target);
  }
  EXPECT_EQ(quotients, supported_targets().size() * 3 * 0x10000);
}

INSTANTIATE_TEST_SUITE_P(, HalfTypes, ::testing::Values(Element::float16, Element::bfloat16),
                         [](const auto& instance) { return name(instance.param); });

}  // namespace
}  // namespace safeops::cases
