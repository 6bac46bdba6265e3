#pragma once

#include <cstddef>

#include "core/element_arguments.h"
#include "core/executor.h"
#include "core/hits.h"

namespace safeops {

/// Computes the elements that are walked at positions [begin, end).
using ElementKernel = void (*)(const ElementArguments& arguments, std::size_t begin,
                               std::size_t end, Hits& hits);

/// Shares the elements of a call out over the executor and merges the hits.
void run_elements(const ElementArguments& arguments, ElementKernel kernel, Executor& executor,
                  Hits& hits);

/// The same for a forward kernel, which leaves `raising` alone: policy `raise` throws at whatever
/// is hit.
void run_forward(const ElementArguments& arguments, ElementKernel kernel, Executor& executor,
                 Hits& hits);

}  // namespace safeops
