#pragma once

#include <cstddef>

namespace safeops::emulator {

/// The threads of one block at a time, which run `kernel(arguments)`.
void prepare_threads(unsigned threads, void (*kernel)(void*), void* arguments);
void run_block();
/// What all threads did is seen by the caller.
void join_threads();

/// A number below `bound` from the seed of the schedule.
std::size_t random_below(std::size_t bound);
void seed_randomness();

struct Statistics;
Statistics& counted();

}  // namespace safeops::emulator
