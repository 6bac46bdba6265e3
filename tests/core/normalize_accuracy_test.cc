// Errors of normalize against wide arithmetic. The bounds are those of the documentation; the worst
// case of each test is recorded in the test report (--gtest_output) and printed where a bound
// fails.
#include <gtest/gtest.h>

#include "cases/normalize_check.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

constexpr double kOrders[] = {2, 1, kInfinity};

class NormalizeAccuracy : public ::testing::TestWithParam<Element> {
 protected:
  void TearDown() override {
    EXPECT_GT(total_.elements, 0u) << "nothing was compared";
    EXPECT_EQ(total_.failure, "");
    RecordProperty("elements", std::to_string(total_.elements));
    RecordProperty("worst_ulp", std::to_string(total_.worst));
    RecordProperty("witness", total_.witness);
  }

  /// Forward, then backward on the norms that forward saved.
  void check_both(const Rows& x, const Rows& g, Trial trial) {
    trial.policy = resolve(Policy::zero, 0, false);
    const Outcome out = forward(x, trial);
    total_.merge(check_forward(x, out, trial));
    trial.policy = resolve(Policy::zero, 0, true);
    total_.merge(check_backward(g, x, backward(g, x, out.saved, trial), trial));
  }

  Report total_;
};

TEST_P(NormalizeAccuracy, EveryLengthAndFill) {
  Random random(10);
  for (const std::size_t length : kLengths) {
    for (const Fill fill : kFills) {
      for (const double p : kOrders) {
        Trial trial;
        trial.p = p;
        const std::size_t rows = length <= 65 ? 19 : length <= 600 ? 5 : 1;
        const Rows x = random_rows(GetParam(), rows, length, fill, 1.0, random);
        check_both(x, random_rows(GetParam(), rows, length, Fill::uniform, 1.0, random), trial);
      }
    }
  }
}

TEST_P(NormalizeAccuracy, EveryLengthSideBySide) {
  Random random(11);
  for (const std::size_t length : kLengths) {
    if (length > 5000) continue;
    for (const double p : kOrders) {
      Trial trial;
      trial.p = p;
      trial.input.kind = trial.second.kind = trial.output.kind = RowLayout::Kind::side_by_side;
      const std::size_t rows = length <= 65 ? 37 : 5;
      const Rows x = random_rows(GetParam(), rows, length, Fill::uniform, 1.0, random);
      check_both(x, random_rows(GetParam(), rows, length, Fill::uniform, 1.0, random), trial);
    }
  }
}

TEST_P(NormalizeAccuracy, EveryScaleFromTheSmallestSubnormalToTheLargestValue) {
  Random random(12);
  for (const double scale : scales(GetParam())) {
    for (const std::size_t length : {1, 2, 3, 8, 16, 17, 100, 257, 1000}) {
      for (const double p : kOrders) {
        Trial trial;
        trial.p = p;
        const Rows x = random_rows(GetParam(), 5, static_cast<std::size_t>(length), Fill::uniform,
                                   scale, random);
        // A gradient of the scale of x keeps grad / norm inside the format.
        check_both(x,
                   random_rows(GetParam(), 5, static_cast<std::size_t>(length), Fill::uniform,
                               scale, random),
                   trial);
      }
    }
  }
}

TEST_P(NormalizeAccuracy, GradientsNearTheLargestValue) {
  Random random(13);
  for (const std::size_t length : {1, 3, 16, 40, 300}) {
    for (const double p : kOrders) {
      Trial trial;
      trial.p = p;
      const Rows x = random_rows(GetParam(), 5, static_cast<std::size_t>(length), Fill::uniform,
                                 100.0, random);
      Rows g = random_rows(GetParam(), 5, static_cast<std::size_t>(length), Fill::equal,
                           largest(GetParam()), random);
      check_both(x, g, trial);
      for (std::size_t i = 0; i < x.length; ++i)
        g.set(0, i, std::copysign(largest(GetParam()), x.at(0, i)));
      check_both(x, g, trial);
    }
  }
}

TEST_P(NormalizeAccuracy, GradientsNearTheSmallestValue) {
  Random random(14);
  const double scale = 64 * smallest_subnormal(GetParam());
  for (const std::size_t length : {1, 3, 16, 40, 300}) {
    for (const double p : kOrders) {
      Trial trial;
      trial.p = p;
      const Rows x =
          random_rows(GetParam(), 5, static_cast<std::size_t>(length), Fill::uniform, 1.0, random);
      check_both(x,
                 random_rows(GetParam(), 5, static_cast<std::size_t>(length), Fill::uniform, scale,
                             random),
                 trial);
    }
  }
}

TEST_P(NormalizeAccuracy, AMillionElements) {
  Random random(15);
  for (const double p : kOrders) {
    Trial trial;
    trial.p = p;
    const Rows x = random_rows(GetParam(), 1, 1000003, Fill::uniform, 1.0, random);
    trial.policy = resolve(Policy::zero, 0, false);
    total_.merge(check_forward(x, forward(x, trial), trial));
  }
}

INSTANTIATE_TEST_SUITE_P(, NormalizeAccuracy, ::testing::ValuesIn(kElements),
                         [](const auto& instance) { return name(instance.param); });

// Directed rows: the true answer is representable although a naive kernel overflows, underflows or
// rounds it away.
struct Directed {
  Element element;
  std::vector<double> x;
};

TEST(NormalizeRegularExtremes, AreUnitRowsUnderPolicyZero) {
  const std::vector<Directed> rows = {
      {Element::float32, {1e20, 1, 1}},
      {Element::float32, {1e25, 1e25}},
      {Element::float32, {1e-30, 1e-30, 1e-30}},
      {Element::float32, {0x1p-149}},
      {Element::float32, {0x1p-149, 0x1p-149, -0x1p-149}},
      {Element::float32, {0x1.fffffep127, 0x1.fffffep127, 0x1.fffffep127}},
      {Element::float32, {0x1.fffffep127, 0x1p-149}},
      {Element::float16, {6e4, 6e4}},
      {Element::float16, {0x1p-24, 65504}},
      {Element::float16, {0x1p-24, 0x1p-24, 0x1p-24}},
      {Element::bfloat16, {0x1.fep127, 0x1.fep127}},
      {Element::bfloat16, {0x1p-133, -0x1p-133}},
      {Element::float64, {1.5e308, 1.5e308}},
      {Element::float64, {0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023}},
      {Element::float64, {0x1p-1074}},
      {Element::float64, {0x1p-1074, 0x1p-1074, 0x1p-1074}},
      {Element::float64, {1e-300, 1e-310, 0}},
      {Element::float64, {1e300, 1e-300, 1}},
      {Element::float64, {0x1p-450, 0x1p-450}},
      {Element::float64, {0x1p500, 0x1p500}},
      {Element::float64, {0x1p-900}},
      {Element::float64, {0x1.fffffffffffffp-901}},
      {Element::float64, {0x1p1000}},
      {Element::float64, {0x1.0000000000001p1000}},
      {Element::float64, {3, 4}},
  };
  Report total;
  for (const Directed& directed : rows) {
    for (const double p : kOrders) {
      for (const Road road : {Road::dispatched, Road::plain}) {
        Trial trial;
        trial.p = p;
        trial.road = road;
        trial.policy = resolve(Policy::zero, 0, false);
        Rows x(directed.element, 1, directed.x.size());
        for (std::size_t i = 0; i < x.length; ++i) x.set(0, i, directed.x[i]);
        const Outcome out = forward(x, trial);
        total.merge(check_forward(x, out, trial));
        // g = x: finite gradients, and for p = 2 an exact answer of nearly zero.
        total.merge(check_backward(x, x, backward(x, x, out.saved, trial), trial));
      }
    }
  }
  EXPECT_GT(total.elements, 0u);
  EXPECT_EQ(total.failure, "");
}

}  // namespace
}  // namespace safeops::cases
