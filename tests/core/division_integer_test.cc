// Integer division, against arithmetic in a type that holds every quotient.
#include <gtest/gtest.h>

#include <limits>

#include "cases/division_case.h"
#include "cases/executors.h"
#include "cases/random_rows.h"

namespace safeops::cases {
namespace {

struct Type {
  Integer type;
  std::size_t width;
  bool is_signed;
};
constexpr Type kTypes[] = {{Integer::uint8, 1, false},
                           {Integer::int8, 1, true},
                           {Integer::int16, 2, true},
                           {Integer::int32, 4, true},
                           {Integer::int64, 8, true}};

using Bits = std::vector<std::uint64_t>;

std::uint64_t pattern(Type type, std::uint64_t bits) {
  return type.width == 8 ? bits : bits & ((std::uint64_t{1} << (8 * type.width)) - 1);
}

__extension__ using Exact = __int128;

Exact value(Type type, std::uint64_t bits) {
  const Exact magnitude = static_cast<Exact>(bits), range = Exact{1} << (8 * type.width);
  return type.is_signed && magnitude >= range / 2 ? magnitude - range : magnitude;
}

/// From the definition: the integer next to the exact quotient, wrapped into the type.
std::uint64_t quotient(Type type, std::uint64_t a, std::uint64_t b, bool floored) {
  const Exact dividend = value(type, a), divisor = value(type, b);
  if (divisor == 0) return 0;
  Exact whole = dividend / divisor;
  if (floored && whole * divisor != dividend && (dividend < 0) != (divisor < 0)) --whole;
  return pattern(type, static_cast<std::uint64_t>(whole));
}

struct IntegerOutcome {
  Bits values;
  Hits hits;
  std::size_t disturbed = 0;
};

IntegerOutcome divide(Type type, const Bits& a, const Bits& b, bool floored,
                      const DivisionTrial& trial) {
  ElementCall call(trial, a.size(), type.width, 1);
  call.add_input(0, a);
  call.add_input(1, b);
  call.add_output(0, Bits(a.size(), pattern(type, 123)));
  IntegerOutcome outcome;
  integer_division(call.arguments, type.type, floored, call.executor(), outcome.hits);
  outcome.values = call.written(0);
  outcome.disturbed = call.disturbed({&a, &b});
  return outcome;
}

void expect_quotients(Type type, const Bits& a, const Bits& b, bool floored,
                      const DivisionTrial& trial) {
  const IntegerOutcome outcome = divide(type, a, b, floored, trial);
  const Dims sizes = sizes_of(trial, a.size());
  Hits hits;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(outcome.values[i], quotient(type, a[i], b[i], floored))
        << "width " << type.width << ": " << static_cast<std::int64_t>(value(type, a[i])) << " / "
        << static_cast<std::int64_t>(value(type, b[i])) << (floored ? " floored" : " truncated");
    if (b[i] != 0) continue;
    hits[Condition::zero_denominator].add(1, number_of(trial, sizes, i));
    hits.raising.add(1, number_of(trial, sizes, i));
  }
  EXPECT_EQ(difference(outcome.hits, hits), "");
  EXPECT_EQ(outcome.disturbed, 0u);
}

/// Ends of the range, small numbers, and any.
Bits eventful_integers(Type type, std::size_t count, Random& random) {
  Bits bits(count);
  for (std::uint64_t& one : bits) {
    const std::uint64_t least = type.is_signed ? std::uint64_t{1} << (8 * type.width - 1) : 0;
    switch (random.below(4)) {
      case 0:
        one = pattern(type, random.below(7) - 3);
        break;
      case 1:
        one = pattern(type, least + random.below(3) - 1);
        break;
      default:
        one = pattern(type, random.next() >> random.below(8 * type.width));
    }
  }
  return bits;
}

TEST(IntegerDivision, EveryPairOfBytes) {
  for (const Type type : {kTypes[0], kTypes[1]}) {
    Bits a(0x10000), b(0x10000);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = i / 256;
      b[i] = i % 256;
    }
    for (const bool floored : {false, true}) expect_quotients(type, a, b, floored, {});
  }
}

TEST(IntegerDivision, AnyNumbersAndCounts) {
  Random random(270);
  for (const Type type : kTypes) {
    for (const std::size_t count : {0, 1, 2, 31, 64, 511, 16384, 50001}) {
      const Bits a = eventful_integers(type, static_cast<std::size_t>(count), random);
      const Bits b = eventful_integers(type, a.size(), random);
      for (const bool floored : {false, true}) expect_quotients(type, a, b, floored, {});
    }
  }
}

TEST(IntegerDivision, TheSmallestNumberOverMinusOneIsItself) {
  for (const Type type : kTypes) {
    if (!type.is_signed) continue;
    const std::uint64_t least = std::uint64_t{1} << (8 * type.width - 1);
    const std::uint64_t minus_one = pattern(type, ~std::uint64_t{0});
    for (const bool floored : {false, true}) {
      const IntegerOutcome outcome = divide(type, {least}, {minus_one}, floored, {});
      EXPECT_EQ(outcome.values[0], least);
      EXPECT_FALSE(outcome.hits.any());
    }
  }
}

TEST(IntegerDivision, AnyLayout) {
  Random random(271);
  for (const Type type : kTypes) {
    for (int round = 0; round < 40; ++round) {
      DivisionTrial trial;
      trial.sizes = Dims{1 + random.below(5), 1 + random.below(9), 1 + random.below(20)};
      trial.numbers = random.below(2) == 0;
      trial.input[0].repeated = {random.below(3)};
      trial.input[1].order = {2, 0, 1};
      trial.input[1].step = 1 + random.below(3);
      trial.output[0].order = {1, 2, 0};
      trial.output[0].gap = random.below(3);
      if (random.below(2) == 0) trial.walk = {1, 2, 0};
      trial.streams = random.below(2) == 0;
      Bits a = eventful_integers(type, product(*trial.sizes), random);
      repeat(a, 1, *trial.sizes, trial.input[0].repeated);
      const Bits b = eventful_integers(type, a.size(), random);
      expect_quotients(type, a, b, random.below(2) == 0, trial);
    }
  }
}

TEST(IntegerDivision, InPlaceAndOnSeveralThreads) {
  Random random(272);
  for (const Type type : kTypes) {
    const Bits a = eventful_integers(type, 60000, random),
               b = eventful_integers(type, 60000, random);
    for (const std::size_t input : {0, 1}) {
      DivisionTrial trial;
      trial.in_place[0] = static_cast<std::size_t>(input);
      ThreadExecutor threads(4, 1);
      ReversedExecutor reversed(1);
      for (Executor* executor : std::initializer_list<Executor*>{&threads, &reversed}) {
        trial.executor = executor;
        for (const bool floored : {false, true}) expect_quotients(type, a, b, floored, trial);
      }
    }
  }
}

}  // namespace
}  // namespace safeops::cases
