#include "core/run_elements.h"

#include "core/share_out.h"

namespace safeops {

void run_elements(const ElementArguments& arguments, ElementKernel kernel, Executor& executor,
                  Hits& hits) {
  const std::size_t elements = arguments.elements();
  if (elements == 0) return;
  share_out(
      elements, /*length=*/1, executor, hits,
      [&](std::size_t begin, std::size_t end, Hits& met) { kernel(arguments, begin, end, met); });
}

void run_forward(const ElementArguments& arguments, ElementKernel kernel, Executor& executor,
                 Hits& hits) {
  Hits met;
  run_elements(arguments, kernel, executor, met);
  for (const Hit& hit : met.of) met.raising.add(hit.count, hit.first);
  hits.merge(met);
}

}  // namespace safeops
