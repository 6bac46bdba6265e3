// Errors of the softmax family against wide arithmetic. The worst case of each test is recorded in
// the test report (--gtest_output) and printed where a bound fails.
#include <gtest/gtest.h>

#include "cases/softmax_check.h"
#include "cases/softmax_rows.h"

namespace safeops::cases {
namespace {

struct Operation {
  SoftmaxKind kind;
  Element element;
};

std::vector<Operation> operations() {
  std::vector<Operation> all;
  for (const SoftmaxKind kind : kSoftmaxKinds) {
    for (const Element element : kElements) all.push_back({kind, element});
  }
  return all;
}

class SoftmaxAccuracy : public ::testing::TestWithParam<Operation> {
 protected:
  SoftmaxAccuracy() { trial_.kind = GetParam().kind; }

  void TearDown() override {
    record("forward", forward_);
    record("backward", backward_);
  }

  void check(const Rows& x, const Rows& g) {
    const SoftmaxBoth outcome = both(x, g, trial_);
    forward_.merge(check_forward(x, outcome.forward, trial_));
    const bool per_row = trial_.kind == SoftmaxKind::logsumexp;
    backward_.merge(check_backward(gradient_for(g, trial_.kind), x,
                                   per_row ? x : outcome.forward.values, outcome.backward, trial_));
  }

  Element element() const { return GetParam().element; }
  bool wide() const { return GetParam().element == Element::float64; }

  SoftmaxTrial trial_;
  Report forward_, backward_;

 private:
  static void record(const std::string& direction, const Report& report) {
    EXPECT_GT(report.elements, 0u) << "nothing was compared";
    EXPECT_EQ(report.failure, "") << direction;
    RecordProperty(direction + "_elements", std::to_string(report.elements));
    RecordProperty(direction + "_worst_ulp", std::to_string(report.worst));
    RecordProperty(direction + "_witness", report.witness);
  }
};

TEST_P(SoftmaxAccuracy, EveryLengthAndRangeOfLogits) {
  Random random(110);
  for (const std::size_t length : kSoftmaxLengths) {
    for (const double range : logit_ranges(element())) {
      for (const Logits fill : kLogits) {
        if (length > 1000 && random.below(wide() ? 20 : 4) != 0) continue;
        if (length > 20 && wide() && random.below(3) != 0) continue;
        const std::size_t rows = length <= 20 ? 19 : length <= 65 ? 5 : 2;
        const Rows x = random_logits(element(), rows, length, fill, range, random);
        check(x, random_rows(element(), rows, length, Fill::uniform, 1.0, random));
      }
    }
  }
}

TEST_P(SoftmaxAccuracy, EveryLengthSideBySide) {
  Random random(111);
  set_kind(trial_, RowLayout::Kind::side_by_side);
  for (const std::size_t length : kSoftmaxLengths) {
    if (length > 1023) continue;
    for (const double range : {1.0, 87.0, 1024.0, 3e4}) {
      const std::size_t rows = length <= 65 ? 37 : 5;
      const Rows x = random_logits(element(), rows, length, random.pick(kLogits), range, random);
      check(x, random_rows(element(), rows, length, Fill::uniform, 1.0, random));
    }
  }
}

TEST_P(SoftmaxAccuracy, GradientsOfEverySize) {
  Random random(112);
  for (const std::size_t length : {1, 2, 3, 16, 40, 300, 9000}) {
    for (const double scale : scales(element())) {
      if (length == 9000 && random.below(3) != 0) continue;
      for (const Fill fill : {Fill::uniform, Fill::spike, Fill::sparse}) {
        const auto each = static_cast<std::size_t>(length);
        const std::size_t rows = length < 1000 ? 5 : 1;
        const Rows x = random_logits(element(), rows, each, random.pick(kLogits),
                                     random.pick({1.0, 30.0, 800.0}), random);
        check(x, random_rows(element(), rows, each, fill, scale / 2, random));
      }
    }
  }
}

TEST_P(SoftmaxAccuracy, AHundredThousandElements) {
  Random random(113);
  for (const double range : {10.0, 1200.0}) {
    const Rows x = random_logits(element(), 1, 100000, Logits::uniform, range, random);
    check(x, random_rows(element(), 1, 100000, Fill::uniform, 1.0, random));
    if (wide()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(, SoftmaxAccuracy, ::testing::ValuesIn(operations()),
                         [](const auto& instance) {
                           return std::string(name(instance.param.kind)) + "_" +
                                  name(instance.param.element);
                         });

TEST(SoftmaxLongRows, AMillionElements) {
  Random random(114);
  for (const SoftmaxKind kind : kSoftmaxKinds) {
    SoftmaxTrial trial;
    trial.kind = kind;
    const Rows x = random_logits(Element::float32, 1, 1000003, Logits::uniform, 10.0, random);
    const Report report = check_forward(x, forward(x, trial), trial);
    EXPECT_EQ(report.failure, "");
    RecordProperty(std::string(name(kind)) + "_worst_ulp", std::to_string(report.worst));
    RecordProperty(std::string(name(kind)) + "_witness", report.witness);
  }
}

TEST(SoftmaxPairs, HalfInputsWithFloat32ResultsAreAsAccurateAsFloat32) {
  Random random(115);
  std::size_t compared = 0;
  for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::log_softmax}) {
    for (const Element element : {Element::float16, Element::bfloat16}) {
      for (const std::size_t length : kSoftmaxLengths) {
        for (const double range : {1.0, 87.0, 2000.0}) {
          SoftmaxTrial trial;
          trial.kind = kind;
          trial.result = Element::float32;
          const Rows x = random_logits(element, 3, length, random.pick(kLogits), range, random);
          const Rows g = random_rows(Element::float32, 3, length, Fill::uniform, 1.0, random);
          const Report report = check_both(x, g, both(x, g, trial), trial);
          ASSERT_EQ(report.failure, "") << length;
          compared += report.elements;
        }
      }
    }
  }
  EXPECT_GT(compared, 1000000u);
}

// 2 N ulp of 1, from the rounding of N terms alone.
TEST(SoftmaxSums, RowsAddUpToOne) {
  Random random(116);
  std::size_t rows = 0;
  for (const Element element : kElements) {
    for (const std::size_t length : kSoftmaxLengths) {
      for (const double range : logit_ranges(element)) {
        if (length > 1000 && random.below(3) != 0) continue;
        const Rows x = random_logits(element, 2, length, random.pick(kLogits), range, random);
        const Outcome out = forward(x, SoftmaxTrial{});
        for (std::size_t r = 0; r < x.rows; ++r, ++rows) {
          long double sum = 0;
          for (std::size_t i = 0; i < length; ++i) sum += out.values.at(r, i);
          const long double unit = ulp(element, 1.0L);
          ASSERT_LE(std::fabs(sum - 1), 2 * static_cast<long double>(length) * unit)
              << describe(x, r);
        }
      }
    }
  }
  EXPECT_GT(rows, 2000u);
}

}  // namespace
}  // namespace safeops::cases
