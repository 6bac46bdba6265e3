#pragma once

#include <gtest/gtest.h>

#include <cstddef>

#include "cases/softmax_check.h"

namespace safeops::cases {

inline constexpr Road kRoads[] = {Road::dispatched, Road::plain};
inline constexpr RowLayout::Kind kKinds[] = {RowLayout::Kind::contiguous,
                                             RowLayout::Kind::side_by_side};

/// Calls body(element, trial) for every element, operator, kernel and layout, until one fails.
template <class Body>
void everywhere(const Body& body) {
  std::size_t calls = 0;
  for (const Element element : kElements) {
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      for (const Road road : kRoads) {
        for (const RowLayout::Kind layout : kKinds) {
          SoftmaxTrial trial;
          trial.kind = kind;
          trial.road = road;
          set_kind(trial, layout);
          body(element, trial);
          ASSERT_FALSE(::testing::Test::HasFailure()) << name(element) << ' ' << spelled(trial);
          ++calls;
        }
      }
    }
  }
  EXPECT_EQ(calls, 4u * 3 * 2 * 2);
}

}  // namespace safeops::cases
