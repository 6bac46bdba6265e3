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

/// When policy `raise` throws for what a CUDA kernel met.
///  - deferred: from the next call on a CUDA tensor, forward or backward, or from check(). No call
///    waits for its kernel; one that throws has computed nothing. Counts reach the counters when
///    they are read, without call line or warning.
///  - exact: from the call itself. Every call on a CUDA tensor waits for its kernel, and hits are
///    settled as on the CPU. Calls that are captured in a graph are deferred all the same.
enum class RaiseMode : std::uint8_t { deferred, exact };

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

// CUDA kernels count in memory of their device and the host does not wait for them. snapshot(),
// reset() and check() wait for the current streams of the calling thread, on every device that is
// in use, and bring in what all kernels have counted by then. What other streams are still at work
// on is read the next time. A thread that is capturing a CUDA graph reads nothing new.

SAFEOPS_EXPORT RaiseMode raise_mode();
SAFEOPS_EXPORT void set_raise_mode(RaiseMode mode);

/// Throws the error of policy `raise` that a CUDA kernel has left behind and nobody has been told
/// of. Needed after the last call, and after the replay of a graph: otherwise the next call on a
/// CUDA tensor throws it.
SAFEOPS_EXPORT void check();

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
/// The same without waiting for any stream, for a thread beside those that compute.
SAFEOPS_EXPORT std::uint64_t safeops_glance(safeops_record* records, std::uint64_t capacity);
SAFEOPS_EXPORT void safeops_reset();
SAFEOPS_EXPORT int safeops_level();
SAFEOPS_EXPORT int safeops_set_level(int level);  ///< 0 if refused

/// 0: deferred, 1: exact; see safeops::RaiseMode. Setting returns 0 if refused.
SAFEOPS_EXPORT int safeops_raise_mode();
SAFEOPS_EXPORT int safeops_set_raise_mode(int mode);

/// Waits as diagnostics::check() and takes a pending error of policy `raise`. Returns 1 if there
/// was one: safeops_last_hit() then describes it, with `raised` set. Returns 2 if a device has
/// failed, else 0. `sentence` receives the message, which stays valid until the next such call on
/// this thread, or null.
SAFEOPS_EXPORT int safeops_check(const char** sentence);

/// The number of this thread's last deferred call under policy `raise`, 0 if there was none; and
/// that of the call whose error was thrown, or taken by safeops_check, last on this thread. Numbers
/// grow with every such call of the process, so that whoever remembers the line of a call finds it
/// when its error comes.
SAFEOPS_EXPORT std::uint64_t safeops_last_launch();
SAFEOPS_EXPORT std::uint64_t safeops_raised_launch();

/// 1 if the library with the CUDA kernels is loaded.
SAFEOPS_EXPORT int safeops_has_cuda();

/// Why it is not and what to do, told to whoever calls an operator on a CUDA tensor: "reason;
/// remedy", without a full stop. The text is copied; null takes it back.
SAFEOPS_EXPORT void safeops_set_cuda_unavailable(const char* reason);

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
