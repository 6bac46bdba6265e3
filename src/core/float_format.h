#pragma once

#include <cstdint>

namespace safeops {

/// The parts of a floating-point number: fraction bits, their mask, and the bias of the exponent.
template <class T>
struct FloatFormat;
template <>
struct FloatFormat<float> {
  using Bits = std::uint32_t;
  static constexpr int kFractionBits = 23;
  static constexpr Bits kFraction = 0x7FFFFF;
  static constexpr float kBias = 127;
};
template <>
struct FloatFormat<double> {
  using Bits = std::uint64_t;
  static constexpr int kFractionBits = 52;
  static constexpr Bits kFraction = 0xFFFFFFFFFFFFF;
  static constexpr double kBias = 1023;
};

}  // namespace safeops
