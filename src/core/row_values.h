#pragma once

#include <cstddef>

#include "core/resolution.h"

namespace safeops {

/// Values per row between fp64 and the type of the elements, under the default floating-point
/// environment: a caller that flushes to zero would lose the subnormal ones.
void round_row_values(const double* from, std::size_t count, Element element, void* to);
void widen_row_values(Element element, const void* from, std::size_t count, double* to);

}  // namespace safeops
