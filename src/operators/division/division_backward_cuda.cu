#define SAFEOPS_CUDA

#include "core/run_elements_cuda.h"
#include "operators/division/division.h"
#include "operators/division/division_cells.h"

namespace safeops {

CudaStatus division_backward_cuda(const ElementArguments& arguments, DivisionKind kind,
                                  const CudaLaunch& launch) {
  return device::with_backward_cell(kind, [&]<template <class, class> class Cell>() {
    return device::run_elements<Cell, Direction::backward>(arguments, launch);
  });
}

const bool division_backward_is_ready = division_backward_on_cuda.bring(division_backward_cuda);

}  // namespace safeops
