// A second implementation, in another SIMD library and by the textbook, agrees with the kernels as
// far as its own accuracy goes.
#include "cases/softmax_xsimd.h"

#include <gtest/gtest.h>

#include <bit>

#include "cases/softmax_case.h"
#include "cases/softmax_rows.h"

namespace safeops::cases {
namespace {

using Peer = XsimdSoftmax<xsimd::default_arch>;

std::vector<float> floats(const Rows& rows, std::size_t row) {
  std::vector<float> values(rows.length);
  for (std::size_t i = 0; i < rows.length; ++i) values[i] = static_cast<float>(rows.at(row, i));
  return values;
}

// x - max is off by half an ulp of x, which is that much of the term; sums in float32 add an ulp
// per term of a lane.
double tolerance(double range, std::size_t length) {
  return 0x1p-24 * (2 * range + 8 + static_cast<double>(length) / 4);
}

TEST(SoftmaxXsimd, TheSecondImplementationAgrees) {
  Random random(180);
  std::size_t compared = 0;
  for (const std::size_t length : kSoftmaxLengths) {
    for (const double range : {1.0, 20.0, 80.0, 1000.0}) {
      const Rows x = random_logits(Element::float32, 3, length, Logits::uniform, range, random);
      const Rows g = random_rows(Element::float32, 3, length, Fill::uniform, 1.0, random);
      SoftmaxTrial trial;
      const Outcome out = forward(x, trial);
      const Outcome grad = backward(g, out.values, out.saved, trial);
      trial.kind = SoftmaxKind::logsumexp;
      const Outcome sums = forward(x, trial);
      const double relative = tolerance(range, length);
      for (std::size_t r = 0; r < x.rows; ++r) {
        const std::vector<float> logits = floats(x, r), gradients = floats(g, r);
        std::vector<float> y(length), dx(length);
        Peer::forward(logits.data(), length, y.data());
        Peer::backward(gradients.data(), floats(out.values, r).data(), length, dx.data());
        const double sum = Peer::logsumexp(logits.data(), length);
        ASSERT_NEAR(sums.saved[r], sum, relative * (1 + std::fabs(sum)));
        for (std::size_t i = 0; i < length; ++i, ++compared) {
          const double value = out.values.at(r, i);
          ASSERT_NEAR(value, y[i], relative * value + 0x1p-120) << length << ' ' << range;
          ASSERT_NEAR(grad.values.at(r, i), dx[i], 2 * relative * value + 0x1p-120);
        }
      }
    }
  }
  EXPECT_GT(compared, 400000u);
}

}  // namespace
}  // namespace safeops::cases
