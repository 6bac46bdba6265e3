#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "safeops/export.h"

namespace safeops {

/// The operators that count, in the order of their slots.
enum class Operator : std::uint8_t {
  normalize,
  softmax,
  log_softmax,
  logsumexp,
  div,
  reciprocal,
  rsqrt,
  sqrt,
  log,
};
inline constexpr int kOperators = 9;

/// Why a row or element was counted. The first six are hits (singular points); the rest are
/// notices, which never change a value and never warn.
enum class Condition : std::uint8_t {
  zero_norm,
  below_eps,
  empty_row,
  zero_denominator,
  zero_argument,
  negative_argument,
  nonfinite_input,
  rescued,
  finite_min_row,
};
inline constexpr int kConditions = 9;
inline constexpr int kHitConditions = 6;

enum class Direction : std::uint8_t { forward, backward };
enum class Device : std::uint8_t { cpu, cuda };

SAFEOPS_EXPORT std::string_view name(Operator value);
SAFEOPS_EXPORT std::string_view name(Condition value);
SAFEOPS_EXPORT std::string_view name(Direction value);
SAFEOPS_EXPORT std::string_view name(Device value);

namespace diagnostics {

/// 0: off. 1: counters, and the line of eager Python calls that hit (default). 2: also the shape
/// and the dtype of the first offender. 3: also the stack and the module of a Python call line.
SAFEOPS_EXPORT int level();

/// Any other value than 0, 1, 2 or 3 is refused: returns false and changes nothing.
SAFEOPS_EXPORT bool set_level(int level);

/// One counter that is not zero.
struct Record {
  Operator op;
  Condition condition;
  Direction direction;
  Device device;
  std::uint64_t count;      ///< rows or elements since the last reset
  std::uint64_t first_row;  ///< row of the first hit counted since the last reset, row-major over
                            ///< the kept dims
};

/// All counters that are not zero, in slot order. Never blocks an operator; counts that arrive
/// meanwhile may or may not be in it.
SAFEOPS_EXPORT std::vector<Record> snapshot();

/// Sets every counter to zero, as they are when a child of fork starts.
SAFEOPS_EXPORT void reset();

}  // namespace diagnostics
}  // namespace safeops

// The C interface that the Python package reads through ctypes. Plain data, no torch, no Python.
extern "C" {

/// Moves by one whenever hits (not notices) are settled at level 1 or above, and at level 0 when
/// policy `raise` throws.
SAFEOPS_EXPORT extern std::uint64_t safeops_hit_epoch;

inline constexpr int kSafeopsShapeDims = 8;

/// One call that hit, with the condition that had most rows first.
struct safeops_hit {
  std::uint64_t
      serial;  ///< forward: the epoch that this call set; backward: that of the forward call, or 0
  std::uint64_t count;      ///< rows hit, over all hit conditions
  std::uint64_t first_row;  ///< lowest row hit
  std::uint64_t rows;       ///< rows seen by the call
  std::int64_t shape[kSafeopsShapeDims];
  std::int32_t dims;       ///< of the input; only the first eight sizes are kept
  std::int32_t op;         ///< safeops::Operator
  std::int32_t condition;  ///< safeops::Condition with the largest count
  std::int32_t direction;  ///< safeops::Direction
  std::int32_t device;     ///< safeops::Device
  std::int32_t raised;     ///< 1 if the call ended in the error of policy `raise`
  char dtype[16];          ///< as torch prints it without the prefix: "float32"
};

struct safeops_record {
  std::int32_t op, condition, direction, device;
  std::uint64_t count, first_row;
  std::int64_t shape[kSafeopsShapeDims];  ///< of the first offender, from level 2
  std::int32_t dims;                      ///< -1 below level 2
  char dtype[16];                         ///< empty below level 2
};

/// The last call on this thread that hit. Returns 0 if there was none.
SAFEOPS_EXPORT int safeops_last_hit(safeops_hit* hit);

/// Takes up to `capacity` backward hits out of the ring, oldest first; returns how many. Hits that
/// found the ring full are missing here but not in the counters.
SAFEOPS_EXPORT std::uint64_t safeops_take_backward_hits(safeops_hit* hits, std::uint64_t capacity);

SAFEOPS_EXPORT std::uint64_t safeops_snapshot(safeops_record* records, std::uint64_t capacity);
SAFEOPS_EXPORT void safeops_reset();
SAFEOPS_EXPORT int safeops_level();
SAFEOPS_EXPORT int safeops_set_level(int level);  ///< 0 if refused

/// Names of enumerators, null past the last: the Python side learns the vocabulary from here.
SAFEOPS_EXPORT const char* safeops_operator_name(int value);
SAFEOPS_EXPORT const char* safeops_condition_name(int value);
SAFEOPS_EXPORT const char* safeops_direction_name(int value);
SAFEOPS_EXPORT const char* safeops_device_name(int value);
SAFEOPS_EXPORT int safeops_condition_is_hit(int value);

/// The SIMD target in use, as Highway names it: "AVX3", "AVX2", "SSE4".
SAFEOPS_EXPORT const char* safeops_simd_target();

/// Version of safeops and the torch it was built for: "0.1.0", "2.15.0".
SAFEOPS_EXPORT const char* safeops_version();
SAFEOPS_EXPORT const char* safeops_built_for_torch();
}
