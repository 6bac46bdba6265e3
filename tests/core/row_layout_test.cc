#include "core/row_layout.h"

#include <gtest/gtest.h>

#include "core/hits.h"

namespace safeops {
namespace {

TEST(RowLayout, RowNumbersAreRowMajorOverTheKeptDims) {
  RowLayout layout;
  layout.rows = 2 * 3 * 4;
  layout.kept_dims = 3;
  const std::size_t sizes[] = {2, 3, 4};
  const std::ptrdiff_t strides[] = {7, 1000, -20};
  std::copy(std::begin(sizes), std::end(sizes), layout.kept_size);
  std::copy(std::begin(strides), std::end(strides), layout.operand[1].kept);
  std::size_t row = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(layout.offset(1, row++), i * 7 + j * 1000 - k * 20);
    }
  }
  EXPECT_EQ(row, layout.rows);
  EXPECT_EQ(layout.offset(0, 23), 0) << "every operand has its own strides";
  EXPECT_EQ(layout.run(), 4u);
}

TEST(RowLayout, WithoutKeptDimsThereIsOneRow) {
  RowLayout layout;
  layout.rows = 1;
  EXPECT_EQ(layout.offset(0, 0), 0);
  EXPECT_EQ(layout.run(), 1u);
}

TEST(RowLayout, OffsetsPassTwoToTheThirtyTwo) {
  RowLayout layout;
  layout.rows = std::size_t{1} << 33;
  layout.kept_dims = 1;
  layout.kept_size[0] = layout.rows;
  layout.operand[0].kept[0] = 5;
  EXPECT_EQ(layout.offset(0, layout.rows - 1), static_cast<std::ptrdiff_t>((layout.rows - 1) * 5));
}

TEST(Hits, MergeIsTheSameInAnyOrder) {
  Hits a, b, both, reversed;
  a[Condition::zero_norm].add(3, 10);
  a[Condition::rescued].add(1, 4);
  a.raising.add(3, 10);
  b[Condition::zero_norm].add(2, 7);
  b.raising.add(1, 7);
  both.merge(a);
  both.merge(b);
  reversed.merge(b);
  reversed.merge(a);
  for (const Hits* merged : {&both, &reversed}) {
    EXPECT_EQ((*merged)[Condition::zero_norm].count, 5u);
    EXPECT_EQ((*merged)[Condition::zero_norm].first, 7u);
    EXPECT_EQ((*merged)[Condition::rescued].count, 1u);
    EXPECT_EQ((*merged)[Condition::rescued].first, 4u);
    EXPECT_EQ((*merged)[Condition::below_eps].count, 0u);
    EXPECT_EQ((*merged)[Condition::below_eps].first, kNoRow);
    EXPECT_EQ(merged->raising.count, 4u);
    EXPECT_EQ(merged->raising.first, 7u);
    EXPECT_TRUE(merged->any());
  }
  EXPECT_FALSE(Hits().any());
}

}  // namespace
}  // namespace safeops
