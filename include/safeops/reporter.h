#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "safeops/diagnostics.h"
#include "safeops/export.h"

namespace safeops::diagnostics {

/// What one counter gained since its sink was told of it last.
struct Change {
  /// The counter as snapshot() shows it. Its count starts at the last reset, so it is less than
  /// `added` where a reset came in between.
  Record record;
  /// Rows or elements counted since then. No reset takes any of them away: the sum over all changes
  /// is what was counted while the reporter lived.
  std::uint64_t added;
  /// Of the first input that hit since the last reset; both empty below level 2. Only the first
  /// eight sizes are kept.
  std::vector<std::int64_t> shape;
  std::string dtype;  ///< as torch prints it without the prefix: "float32"
};

using Sink = std::function<void(const Change&)>;

/// Tells a sink what the counters gain, hits and notices alike, from a thread of its own.
///
/// Operators know of no reporter: it reads the counters every `period`, so a sink that is slow,
/// throws or never returns changes no result, delays no operator and loses no count. What comes
/// while the sink is busy is told as one change per counter. Counts of one period are not in the
/// order in which they arose.
///
/// A sink may do anything: call operators (what they hit is told the next time), read or reset the
/// counters, make, flush and destroy reporters, its own included. Two sinks must not destroy each
/// other's reporters at the same time: each would wait for the other.
///
/// In a child of fork a reporter is silent, for its thread stayed in the parent; a child that wants
/// one makes its own.
///
///     safeops::diagnostics::Reporter reporter([](const safeops::diagnostics::Change& change) {
///       std::cerr << name(change.record.op) << ": " << change.added << " more\n";
///     });
class SAFEOPS_EXPORT Reporter {
 public:
  /// Begins with what is counted from now on. Throws std::invalid_argument for an empty sink or a
  /// period that is not positive, std::system_error where no thread can be started.
  explicit Reporter(Sink sink, std::chrono::milliseconds period = std::chrono::milliseconds(100));

  /// Tells the sink what it does not know yet, waits until it has been told, and ends the thread.
  /// From inside its own sink: ends after this call of the sink, without telling the rest.
  ~Reporter();

  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  /// Tells the sink now. Returns once it knows all that was counted before the call: true; false if
  /// it threw at some of it. From inside a sink it returns false without waiting: its own reporter
  /// tells after the next period, another one as soon as it can. False, too, in a child of fork.
  bool flush();

  /// How many calls of the sink ended in an exception. Such a change is told again, with what came
  /// since, after the next period or flush.
  std::uint64_t failures() const;

  /// The message of the last such exception; empty if there was none.
  std::string last_failure() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace safeops::diagnostics
