// Directed rows: known answers, results at the ends of the formats, and the rows that were worst in
// long searches.
#include <gtest/gtest.h>

#include <string_view>

#include "cases/softmax_check.h"
#include "cases/softmax_everywhere.h"
#include "cases/softmax_rows.h"
#include "core/simd_target.h"

namespace safeops::cases {
namespace {

Rows row_of(Element element, const std::vector<double>& values) {
  Rows x(element, 1, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) x.set(0, i, values[i]);
  return x;
}

void expect_right(const Rows& x, const SoftmaxTrial& trial) {
  Rows g(x.element, x.rows, x.length);
  for (std::size_t i = 0; i < g.bits.size(); ++i)
    g.bits[i] = encode(x.element, i % 2 == 0 ? 1.0 : -0.25);
  EXPECT_EQ(check_both(x, g, both(x, g, trial), trial).failure, "");
}

// A row of one element, and equal elements in number a power of two, have exact answers. Without a
// fused multiply-add the product with the inverse of the sum rounds twice.
TEST(SoftmaxExtremes, EqualElementsShareOneExactly) {
  const bool fused = std::string_view(target_name(current_target())).starts_with("AVX");
  const double slack = fused ? 0 : 0x1p-23;
  everywhere([slack](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : {1, 2, 4, 8, 64, 256, 512, 8192, 16384}) {
      if (trial.input.kind == RowLayout::Kind::side_by_side && length > 600) continue;
      for (const double value : {0.0, -0.0, 1.0, -87.0, 1000.0, 1024.0, 2048.0, -3e4}) {
        if (length > 600 && (value > 0 || element == Element::float64)) continue;
        const Rows x =
            row_of(element, std::vector<double>(static_cast<std::size_t>(length), value));
        const Outcome out = forward(x, trial);
        if (trial.kind == SoftmaxKind::softmax) {
          for (std::size_t i = 0; i < x.length; ++i)
            ASSERT_NEAR(out.values.at(0, i) * static_cast<double>(length), 1.0, slack) << value;
        } else {
          ASSERT_EQ(check_forward(x, out, trial).failure, "");
        }
      }
    }
  });
}

TEST(SoftmaxExtremes, EqualElementsHaveEqualResultsWhereverTheyStand) {
  Random random(120);
  everywhere([&](Element element, SoftmaxTrial trial) {
    for (const std::size_t length : {3, 7, 21, 100, 300, 1023, 9001}) {
      if (trial.input.kind == RowLayout::Kind::side_by_side && length > 600) continue;
      Rows x(element, 1, static_cast<std::size_t>(length));
      for (std::size_t i = 0; i < x.length; ++i)
        x.set(0, i, random.pick({0.3, -2.7, 1.1, -30.0, -95.0}));
      const SoftmaxBoth outcome = both(x, x, trial);
      for (std::size_t i = 1; i < x.length; ++i) {
        std::size_t first = 0;
        while (x.bits[first] != x.bits[i]) ++first;
        ASSERT_EQ(outcome.forward.values.bits[i], outcome.forward.values.bits[first]);
        ASSERT_EQ(outcome.backward.values.bits[i], outcome.backward.values.bits[first]);
      }
    }
  });
}

TEST(SoftmaxExtremes, TermsDownToTheSmallestSubnormalAreThere) {
  everywhere([](Element element, const SoftmaxTrial& trial) {
    const double least = std::log(smallest_subnormal(element));
    for (const double base : {0.0, 90.0, -90.0, 800.0, 1100.0}) {
      std::vector<double> values = {base};
      for (const double depth : {0.5, 0.9, 0.97, 0.99, 1.0, 1.001, 1.01, 1.1, 2.0, 20.0})
        values.push_back(base + least * depth);
      expect_right(row_of(element, values), trial);
      values.resize(300, base + least * 0.98);
      expect_right(row_of(element, values), trial);
    }
  });
}

TEST(SoftmaxExtremes, TheLargestAndSmallestNumbersAreRegular) {
  everywhere([](Element element, const SoftmaxTrial& trial) {
    const double top = largest(element), least = smallest_subnormal(element);
    const std::vector<std::vector<double>> rows = {
        {top},
        {-top},
        {top, -top},
        {top, top, top, -top, 0.0},
        {-top, -top, -top},
        {least, -least, 0.0, -0.0},
        {0.0, -top},
        {top, -kInfinity},
        {-top, -kInfinity, -top},
        {least, -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity},
    };
    for (const std::vector<double>& values : rows) expect_right(row_of(element, values), trial);
  });
}

// Where float32 changes its method, and at neighbouring numbers.
TEST(SoftmaxExtremes, BothSidesOfTheSwitchOfMethodAreRight) {
  everywhere([](Element element, const SoftmaxTrial& trial) {
    for (const double edge :
         {87.33654, 88.72284, 103.97208, 128.0, 709.78, 745.13, 1024.0, 1300.0, 2048.0, 4096.0}) {
      for (const double sign : {1.0, -1.0}) {
        for (const int step : {-2, -1, 0, 1, 2}) {
          const double ulps = std::ldexp(1.0, std::ilogb(edge) - format(element).precision + 1);
          const double at = sign * edge + step * ulps;
          expect_right(row_of(element, {at, at - 0.4, at + 0.7, at - 80, at - 20.5}), trial);
          expect_right(row_of(element, {at, -at, 0.5}), trial);
        }
      }
    }
  });
}

// A sum of terms each of which is lost beside the largest.
TEST(SoftmaxExtremes, ManySmallTermsWeighAsOneLarge) {
  for (const SoftmaxKind kind : kSoftmaxKinds) {
    for (const Element element : {Element::float32, Element::bfloat16}) {
      SoftmaxTrial trial;
      trial.kind = kind;
      for (const double step : {-12.0, -16.5, -17.5, -20.0}) {
        Rows x(element, 1, 200000);
        for (std::size_t i = 0; i < x.length; ++i) x.set(0, i, i == 7 ? 3.0 : 3.0 + step);
        EXPECT_EQ(check_forward(x, forward(x, trial), trial).failure, "") << step;
      }
    }
  }
}

// e^x itself is far below the format, the gradient it is multiplied by far above 1.
TEST(SoftmaxExtremes, GradientsThatLiftTinyTermsIntoRangeAreRight) {
  everywhere([](Element element, const SoftmaxTrial& trial) {
    const double large = element == Element::float16   ? 3e4
                         : element == Element::float64 ? 1e290
                                                       : 1e36;
    const double depth = element == Element::float16   ? 20.0
                         : element == Element::float64 ? 740.0
                                                       : 100.0;
    for (const std::size_t length : {2, 6, 40, 300}) {
      Rows x(element, 1, static_cast<std::size_t>(length));
      Rows g = x;
      for (std::size_t i = 0; i < x.length; ++i) {
        x.set(0, i, i == 0 ? 0.0 : -depth + 0.37 * static_cast<double>(i % 7));
        g.set(0, i, i == 0 ? large : 0.0);
      }
      EXPECT_EQ(check_both(x, g, both(x, g, trial), trial).failure, "");
    }
  });
}

TEST(SoftmaxExtremes, GradientsNearTheLargestNumberDoNotOverflowOnTheWay) {
  everywhere([](Element element, const SoftmaxTrial& trial) {
    const double top = largest(element);
    for (const std::size_t length : {2, 6, 40, 300}) {
      Rows x(element, 2, static_cast<std::size_t>(length));
      Rows g = x;
      for (std::size_t i = 0; i < x.length; ++i) {
        x.set(0, i, 0.1 * static_cast<double>(i % 5));
        g.set(0, i, i % 2 == 0 ? top : -top);
        g.set(1, i, i == 0 ? top : -top);
      }
      if (trial.kind == SoftmaxKind::log_softmax && element == Element::float64) continue;
      EXPECT_EQ(check_both(x, g, both(x, g, trial), trial).failure, "");
    }
  });
}

struct Witness {
  SoftmaxKind kind;
  Element element;
  std::vector<double> x;
};

/// Puts the best target back whatever the test does.
class SoftmaxWitnesses : public ::testing::Test {
 protected:
  void TearDown() override { use_target(0); }
};

TEST_F(SoftmaxWitnesses, TheRowsThatWereWorstStayWithinTheirBounds) {
  using enum SoftmaxKind;
  using enum Element;
  const std::vector<Witness> witnesses = {
      {softmax, float32, {-0x1.f2aa34p+3, -0x1.7596bap+4, -0x1.836fep+4, -0x1.5d1d44p+4}},
      {softmax,
       float32,
       {0x1.f2e9bp+0, -0x1.1032f6p+5, 0x1.33a744p+5, 0x1.d4d98p+5, 0x1.334ca2p+4}},
      {softmax, float32, {-0x1.6f5514p+6, -0x1.5631e6p+6}},
      {softmax, float32, {-0x1.eabbf2p+1, 0x1.ec6192p+1, -0x1.594feep+1}},
      {softmax, float32, {0x1.1ce79p+5, 0x1.61b62ep+1, 0x1.8be616p+5}},
      {logsumexp,
       float32,
       {-0x1.f3d602p+0, -0x1.71dfc4p+1, -0x1.c787d6p+2, -0x1.f58ea2p+0, -0x1.02617p+1,
        -0x1.7d6cap+2}},
      {log_softmax, float32, {0x1.3d7d4ep+6, 0x1.3f7de2p+6, 0x1.322fe8p+6, 0x1.c29722p+4}},
      {logsumexp, float32, {-0x1.21726ep-1, -0x1.443076p-1, -0x1.0d5afp-1}},
      {softmax,
       float64,
       {-0x1.637187f99bea9p+4, -0x1.51ac03b76925p+4, -0x1.6873a33b0a3bp+4, -0x1.2eb7584101436p+4,
        -0x1.7dcd6a028985ep+4, -0x1.eeb85df74f586p+3}},
      {log_softmax,
       float64,
       {-0x1.8fa654a4a41fp+0, 0x1.a738297108fcp-2, -0x1.e9e10eb82cc58p+0, 0x1.c8b96ac215c44p+1,
        0x1.5edcc2e0a4f5bp+2}},
      {logsumexp,
       float64,
       {0x1.23e4143fd3c78p-1, -0x1.911f0f89c958ap+3, -0x1.3a076ae0ed002p+1, -0x1.2e4a537d24c32p+3,
        -0x1.6d3d581e30f35p+2}},
  };
  std::size_t calls = 0;
  for (const Witness& witness : witnesses) {
    for (const std::int64_t target : supported_targets()) {
      use_target(target);
      for (const Road road : kRoads) {
        SoftmaxTrial trial;
        trial.kind = witness.kind;
        trial.road = road;
        const Rows x = row_of(witness.element, witness.x);
        EXPECT_EQ(check_both(x, x, both(x, x, trial), trial).failure, "") << target_name(target);
        ++calls;
      }
    }
  }
  EXPECT_EQ(calls, witnesses.size() * 2 * supported_targets().size());
}

}  // namespace
}  // namespace safeops::cases
