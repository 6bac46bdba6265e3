// From positions to places and numbers, beyond what a test can hold in memory.
#define SAFEOPS_CUDA

#include <gtest/gtest.h>

#include <vector>

#include "core/element_cursor.h"
#include "core/elements_cuda.h"

namespace safeops {
namespace {

constexpr std::uint64_t kNarrow = std::uint64_t{1} << 31;

TEST(CudaElementPlaces, DivisorsDivideEveryPositionBelowTheirLimit) {
  std::vector<std::uint64_t> numbers = {1, 3, 5, 7, 10, 641, 65535, 1000003, kNarrow - 1};
  for (int shift = 1; shift < 31; ++shift) {
    for (const int step : {-1, 0, 1})
      numbers.push_back((std::uint64_t{1} << shift) + static_cast<std::uint64_t>(step));
  }
  for (const std::uint64_t divisor : numbers) {
    const device::Divisor division(static_cast<std::uint32_t>(divisor));
    const auto expect = [&](std::uint64_t x) {
      if (x >= kNarrow) return;
      ASSERT_EQ(division.quotient(static_cast<std::uint32_t>(x)), x / divisor)
          << x << " over " << divisor;
    };
    for (const std::uint64_t x : numbers) {
      expect(x);
      expect(x * divisor - 1);
      expect(x * divisor);
    }
    const std::uint64_t last = (kNarrow - 1) / divisor * divisor;
    expect(last);
    expect(last - 1);
    expect(kNarrow - 1);
  }
}

// A permuted output of `size` and an input that is repeated along dim 1.
class Walk {
 public:
  explicit Walk(std::vector<std::int64_t> size)
      : size_(std::move(size)),
        steps_{{2 * size_[0] * size_[2], size_[2]}, {2 * size_[0], 1}, {2, size_[1] * size_[2]}} {
    output_ = {2, 2 * size_[0] * size_[2], 2 * size_[0]};
    input_ = {2 * size_[2], 0, 2};
    arguments_.size = size_;
    arguments_.output[0] = {place_, output_.data()};
    arguments_.input[0] = {place_, input_.data()};
    arguments_.numbered = arguments_.output[0];
    arguments_.numbering.steps = steps_;
  }

  void expect_same_as_the_cpu(const ElementArguments& part, const device::PartStart& start,
                              std::uint64_t position) const {
    const device::DeviceElements elements(part, start);
    const auto at = static_cast<std::uint32_t>(position);
    const device::ElementOffsets<1, 1, 1> offsets(elements, at, 0);
    const ElementCursor cursor(arguments_, start.position + position);
    EXPECT_EQ(elements.input[0] + offsets.input[0][0], cursor.input(0)) << position;
    EXPECT_EQ(elements.output[0] + offsets.output[0][0], cursor.output(0)) << position;
    EXPECT_EQ(elements.number_of(at), ElementNumbers(arguments_).number(start.position + position))
        << position;
  }

  const ElementArguments& arguments() const { return arguments_; }

 private:
  std::vector<std::int64_t> size_;
  std::vector<ElementNumbering::Step> steps_;
  std::vector<std::int64_t> output_, input_;
  // An address that is only computed with.
  char* const place_ = reinterpret_cast<char*>(std::uintptr_t{1} << 20);
  ElementArguments arguments_;
};

// Parts of at most `most` positions, at positions of the whole.
void expect_same_as_the_cpu(const Walk& walk, std::uint64_t most) {
  std::uint64_t seen = 0;
  const auto expect = [&](const ElementArguments& part, const device::PartStart& start) {
    EXPECT_LE(part.elements(), most);
    EXPECT_EQ(start.position, seen);
    const std::uint64_t last = part.elements() - 1;
    for (std::uint64_t step = 0; step <= 100; ++step)
      walk.expect_same_as_the_cpu(part, start, last / 100 * step);
    walk.expect_same_as_the_cpu(part, start, last);
    seen += part.elements();
    return 0;
  };
  EXPECT_EQ(device::in_parts(walk.arguments(), {}, most, expect), 0);
  EXPECT_EQ(seen, walk.arguments().elements());
}

TEST(CudaElementPlaces, AreTheCpus) {
  for (const auto& size : std::vector<std::vector<std::int64_t>>{{3, 5, 7},
                                                                 {1000, 1000, 2000},
                                                                 {1000, 1000, 3000},
                                                                 {3, 1431655765, 1},
                                                                 {5000000000, 1, 1},
                                                                 {2, 3, 5000000000},
                                                                 {5000000000, 3, 2}}) {
    expect_same_as_the_cpu(Walk(size), device::kMostPositions);
  }
  for (const std::uint64_t most : {1, 2, 7, 100}) expect_same_as_the_cpu(Walk({6, 5, 11}), most);
}

TEST(CudaElementPlaces, PartsStayAligned) {
  const Walk walk({10000001, 1, 1});
  const auto expect = [&](const ElementArguments& part, const device::PartStart&) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part.output[0].data) % 1024, 0u);
    return 0;
  };
  EXPECT_EQ(device::in_parts(walk.arguments(), {}, 70000, expect), 0);
}

TEST(CudaElementPlaces, NoPartFollowsOneThatFailed) {
  int parts = 0;
  const auto fail = [&](const ElementArguments&, const device::PartStart&) {
    return ++parts == 2 ? 1 : 0;
  };
  EXPECT_EQ(device::in_parts(Walk({100, 1, 1}).arguments(), {}, 10, fail), 1);
  EXPECT_EQ(parts, 2);
}

}  // namespace
}  // namespace safeops
