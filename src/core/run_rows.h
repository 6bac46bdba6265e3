#pragma once

#include "core/executor.h"
#include "core/hits.h"
#include "core/row_cursor.h"

namespace safeops {

/// Shares the rows of a call out over the executor and merges the hits. Rows of several slices are
/// split when there are few of them; the bits are the same either way.
void run_rows(const RowArguments& arguments, const RowKernels& kernels, Executor& executor,
              Hits& hits);

}  // namespace safeops
