#define SAFEOPS_HIGHWAY

#include "core/run_elements.h"
#include "operators/division/division.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/division/division_backward_cpu.cc"
// Must come before anything that includes highway.h.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/walk_elements_highway-inl.h"
#include "operators/division/division_cells.h"

SAFEOPS_BEGIN_LANES

ElementKernel division_backward_kernel(Element element, DivisionKind kind) {
  return with_backward_cell(
      kind, [&]<template <class, class> class Cell>() { return element_kernel<Cell>(element); });
}

SAFEOPS_END_LANES

#if HWY_ONCE
namespace safeops {

HWY_EXPORT(division_backward_kernel);

void division_backward(const ElementArguments& arguments, DivisionKind kind, Executor& executor,
                       Hits& hits) {
  run_elements(arguments, HWY_DYNAMIC_DISPATCH(division_backward_kernel)(arguments.element, kind),
               executor, hits);
}

}  // namespace safeops
#endif
