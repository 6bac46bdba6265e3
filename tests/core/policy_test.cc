#include "safeops/policy.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace safeops {
namespace {

constexpr Policy kPoliciesInOrder[] = {Policy::stock, Policy::nan, Policy::epsilon, Policy::zero,
                                       Policy::raise};

TEST(PolicyName, IsTheSpellingOfSchemasAndDocuments) {
  const char* const names[] = {"stock", "nan", "epsilon", "zero", "raise"};
  static_assert(std::size(names) == kPolicies);
  for (int i = 0; i < kPolicies; ++i) {
    EXPECT_EQ(name(kPoliciesInOrder[i]), names[i]);
    EXPECT_EQ(parse_policy(names[i]), kPoliciesInOrder[i]);
  }
}

TEST(ParsePolicy, KnowsNoOtherText) {
  for (const std::string text :
       {"", " ", "Zero", "ZERO", "zero ", " zero", "zer", "zeros", "none", "eps", "raise\n"}) {
    EXPECT_FALSE(parse_policy(text).has_value()) << '"' << text << '"';
  }
  EXPECT_FALSE(parse_policy(std::string_view("zero\0", 5)).has_value());
}

TEST(PolicyGuard, NestsAndRestores) {
  EXPECT_FALSE(PolicyGuard::current().has_value());
  {
    const PolicyGuard outer(Policy::zero);
    EXPECT_EQ(PolicyGuard::current(), Policy::zero);
    {
      const PolicyGuard inner(Policy::raise);
      EXPECT_EQ(PolicyGuard::current(), Policy::raise);
    }
    EXPECT_EQ(PolicyGuard::current(), Policy::zero);
  }
  EXPECT_FALSE(PolicyGuard::current().has_value());
}

TEST(PolicyGuard, RestoresWhenAnExceptionPasses) {
  try {
    const PolicyGuard guard(Policy::nan);
    throw 1;
  } catch (int) {
  }
  EXPECT_FALSE(PolicyGuard::current().has_value());
}

TEST(PolicyGuard, BelongsToItsThread) {
  const PolicyGuard guard(Policy::zero);
  std::optional<Policy> seen = Policy::stock;
  std::thread([&] { seen = PolicyGuard::current(); }).join();
  EXPECT_FALSE(seen.has_value());
}

}  // namespace
}  // namespace safeops
