#define SAFEOPS_CUDA

#include "core/run_elements_cuda.h"
#include "operators/division/division.h"
#include "operators/division/division_cells.h"

namespace safeops {

CudaStatus division_forward_cuda(const ElementArguments& arguments, DivisionKind kind,
                                 const CudaLaunch& launch) {
  return device::with_forward_cell(kind, [&]<template <class, class> class Cell>() {
    return device::run_elements<Cell, Direction::forward>(arguments, launch);
  });
}

const bool division_forward_is_ready = division_forward_on_cuda.bring(division_forward_cuda);

}  // namespace safeops
