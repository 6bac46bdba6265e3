#pragma once

#include <gtest/gtest.h>

#include "cases/division_everywhere.h"
#include "cases/division_numbers.h"
#include "cuda/device.h"

namespace safeops::cases {

/// A call on the device.
inline DivisionOutcome divide_on(Device& device, const Inputs& inputs, DivisionTrial trial) {
  const bool backward = trial.backward;
  const DivisionKind kind = trial.kind;
  trial.elsewhere = [&device, backward, kind](const ElementArguments& arguments, Hits& hits) {
    const auto& kernel = backward ? division_backward_on_cuda : division_forward_on_cuda;
    ASSERT_NE(kernel.function, nullptr);
    device.call([&](const CudaLaunch& launch) { return kernel.function(arguments, kind, launch); },
                hits);
  };
  return divide(inputs, trial);
}

/// The SIMD kernels' outcome, as a device leaves it: no hit of a later backward is told of.
inline DivisionOutcome expected_on_device(const Inputs& inputs, const DivisionTrial& trial) {
  DivisionOutcome outcome = divide(inputs, trial);
  outcome.hits.latent = {};
  return outcome;
}

/// Holds what a device computes against the SIMD kernels, whose bits are promised where the target
/// has a fused multiply-add, and against wide arithmetic where that does not take too long.
inline DivisionOutcome expect_right(Device& device, const Inputs& inputs,
                                    const DivisionTrial& trial) {
  const DivisionOutcome outcome = divide_on(device, inputs, trial);
  if (has_fused_multiply_add(current_target())) {
    EXPECT_EQ(difference(outcome, expected_on_device(inputs, trial)), "");
  }
  if (first_of(inputs).rows <= 600) {
    DivisionOutcome checked = outcome;
    EXPECT_EQ(checked.hits.latent.count, 0u);
    checked.hits.latent = divide(inputs, trial).hits.latent;
    EXPECT_EQ(check_division(inputs, checked, trial).failure, "");
  }
  EXPECT_EQ(outcome.disturbed, 0u);
  return outcome;
}

}  // namespace safeops::cases
