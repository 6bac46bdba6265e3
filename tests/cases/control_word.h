#pragma once

#include <xmmintrin.h>

#include <cstddef>

#include "core/executor.h"

// Floating-point modes of a caller, on x86.
namespace safeops::cases {

inline constexpr unsigned kStatus = 0x3F;  // sticky flags, of which nothing is promised

struct Mode {
  const char* name;
  unsigned control;
};

// Bits of MXCSR: flush to zero 0x8000, rounding 0x6000, masks 0x1F80, denormals are zero 0x40.
inline constexpr Mode kModes[] = {
    {"flush to zero", 0x9F80},
    {"denormals are zero", 0x1FC0},
    {"both", 0x9FC0},
    {"rounding down", 0x3F80},
    {"rounding up", 0x5F80},
    {"rounding towards zero", 0x7F80},
    {"traps on invalid, zero, overflow", 0x1F80 & ~0x680u},
    {"everything at once", (0xFFC0u & ~0x680u)},
};

class ControlWord {
 public:
  explicit ControlWord(unsigned control) : outer_(_mm_getcsr()) { _mm_setcsr(control); }
  ~ControlWord() { _mm_setcsr(outer_); }

 private:
  unsigned outer_;
};

/// Runs chunks under a control word that the calling thread does not have, as a pool does that was
/// started earlier.
class FlushingExecutor final : public Executor {
 public:
  void run(std::size_t tasks, void (*body)(void*, std::size_t, std::size_t),
           void* context) override {
    for (std::size_t i = 0; i < tasks; ++i) {
      const ControlWord word(i % 2 == 0 ? 0x9FC0 : 0x1F80);
      body(context, i, i + 1);
      kept_ = kept_ && (_mm_getcsr() & ~kStatus) == (i % 2 == 0 ? 0x9FC0u : 0x1F80u);
      ++chunks_;
    }
  }
  bool kept_ = true;
  std::size_t chunks_ = 0;
};

}  // namespace safeops::cases
