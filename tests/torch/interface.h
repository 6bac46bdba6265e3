#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "safeops/safeops.h"

namespace safeops {

inline constexpr Policy kAllPolicies[] = {Policy::stock, Policy::nan, Policy::epsilon, Policy::zero,
                                          Policy::raise};

/// Same dtype, shape and values; NaN equals NaN.
inline bool same(const at::Tensor& a, const at::Tensor& b, double tolerance = 0) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         at::allclose(a, b, tolerance, tolerance, /*equal_nan=*/true);
}

template <class Error, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Tests of the C++ interface: counters start, and are left, at zero.
class Interface : public ::testing::Test {
 protected:
  void SetUp() override { fresh(); }
  void TearDown() override { fresh(); }

 private:
  static void fresh() {
    diagnostics::set_level(1);
    diagnostics::reset();
  }
};

}  // namespace safeops
