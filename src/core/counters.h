#pragma once

#include <cstdint>

#include "core/hits.h"
#include "safeops/diagnostics.h"

namespace safeops {

/// What a settled execution was. Pointers are read during the call only.
struct Call {
  Operator op;
  Direction direction;
  Device device;
  std::uint64_t rows;
  const std::int64_t* shape;
  int dims;
  const char* dtype;
  bool raises;  ///< the caller is about to throw the error of policy `raise`
};

/// Adds the hits of one execution to the counters and, if there are hits beyond notices, makes them
/// this thread's last hit and moves the epoch. Lock-free, no allocation. Returns the serial of a
/// forward call that hit, else 0.
std::uint64_t settle(const Call& call, const Hits& hits);

/// What a call is told of as, its hits apart.
safeops_hit description(const Call& call);

/// Adds hits that a device has counted over several calls, of which no line, shape or epoch is
/// known.
void count_collected(Operator op, Direction direction, Device device, const Hits& hits);

/// Makes the hit, which is counted already, this thread's last one, and moves the epoch.
void announce(safeops_hit hit);

/// Brings what devices have counted into the counters; every reader calls it first. With `waits`
/// for the work of this thread's current streams too, else without waiting for more than itself.
/// Never throws. Null: nothing counts elsewhere, as in a child of fork.
using Collector = void (*)(bool waits);
void set_collector(Collector collector);
void collect(bool waits);

/// Watches one forward call on this thread for the node that will differentiate it.
class ForwardWatch {
 public:
  ForwardWatch();
  /// The serial of the call if it hit. A call that met latent singularities alone is given one now,
  /// as if it had hit no element: its line will be needed when backward hits. Else 0.
  std::uint64_t serial() const;

 private:
  std::uint64_t before_;
};

/// Attributes backward executions on this thread to a forward call while it lives.
class SerialScope {
 public:
  explicit SerialScope(std::uint64_t serial);
  ~SerialScope();
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;

 private:
  std::uint64_t outer_;
};

}  // namespace safeops
