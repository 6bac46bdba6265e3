#include <ATen/native/Resize.h>

#include <algorithm>

#include "operators/division/division_torch.h"
#include "torch/cuda_devices.h"
#include "torch/execution.h"
#include "torch/out_variant.h"
#include "torch/outcome.h"

namespace safeops {
namespace {

Integer integer_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
      return Integer::uint8;
    case at::kChar:
      return Integer::int8;
    case at::kShort:
      return Integer::int16;
    case at::kInt:
      return Integer::int32;
    default:
      return Integer::int64;
  }
}

constexpr Kernel<ElementArguments, DivisionKind> kForward = {division_forward,
                                                             &division_forward_on_cuda};
constexpr Kernel<ElementArguments, DivisionKind> kBackward = {division_backward,
                                                              &division_backward_on_cuda};

bool has_cuda_kernel(const DivisionCall& call) {
  return !is_integral(call.dtype) && !at::isComplexType(call.dtype);
}

void check_has_cuda_kernel(const DivisionCall& call, const at::TensorIteratorBase& iterator) {
  const Tensor& result = iterator.tensor(0);
  if (!result.is_cuda()) return;
  if (!has_cuda_kernel(call)) {
    refuse_on_cuda(call.op, result, c10::str("a result of dtype ", dtype_name(call.dtype)),
                   "convert the input to a real floating-point dtype");
  }
}

void check_fits_cuda(const DivisionCall& call, const ElementArguments& elements,
                     const at::TensorIteratorBase& iterator) {
  if (fits_cuda(elements)) return;
  refuse_on_cuda(call.op, iterator.tensor(0),
                 c10::str("a call over ", iterator.ndim(), " dimensions that cannot be merged"),
                 "make the inputs contiguous");
}

void compute(const DivisionCall& call, Direction direction, const ElementArguments& elements,
             Execution& execution) {
  const bool backward = direction == Direction::backward;
  if (has_cuda_kernel(call))
    return execution.run(backward ? kBackward : kForward, elements, call.kind);
  execution.run_on_cpu([&](Executor& executor, Hits& hits) {
    if (is_integral(call.dtype)) {
      integer_division(elements, integer_of(call.dtype), call.kind == DivisionKind::floored,
                       executor, hits);
    } else {
      (backward ? division_backward_complex : division_forward_complex)(elements, call.kind,
                                                                        executor, hits);
    }
  });
}

// No integer stands for what the other policies would give.
void check_no_zero(const DivisionCall& call, const at::TensorIteratorBase& iterator,
                   const Hit& zeros) {
  TORCH_CHECK_VALUE(zeros.count == 0 || call.policy != Policy::epsilon, "safeops::", name(call.op),
                    ": policy 'epsilon' cannot raise an integer divisor of 0 to eps, got ",
                    zeros.count, " of ", iterator.numel(), " (first at element ", zeros.first,
                    "); use policy 'zero' or convert input first, for example with input.float()");
  TORCH_CHECK(zeros.count == 0, "safeops::", name(call.op),
              ": other must not hold 0 for an integer division, got ", zeros.count, " of ",
              iterator.numel(), " (ZeroDivisionError; first at element ", zeros.first,
              "); use policy 'zero' or convert input first, for example with input.float()");
}

}  // namespace

void run_division(const DivisionCall& call, const DivisionRun& run,
                  const at::TensorIteratorBase& iterator) {
  ElementArguments arguments;
  std::copy(run.numbers.begin(), run.numbers.end(), arguments.number);
  arguments.policy =
      resolve_element(call.policy, call.kind, call.eps, run.direction == Direction::backward);
  Execution execution(call.op, run.direction, call.policy, iterator.tensor(0),
                      static_cast<std::uint64_t>(iterator.numel()));
  check_has_cuda_kernel(call, iterator);
  run_on_elements(iterator, run.places, arguments, [&](const ElementArguments& elements) {
    if (iterator.tensor(0).is_cuda()) check_fits_cuda(call, elements, iterator);
    compute(call, run.direction, elements, execution);
  });
  execution.settle();
  if (is_integral(call.dtype) && call.policy != Policy::zero)
    check_no_zero(call, iterator, execution.hits()[Condition::zero_denominator]);
}

void fill_division_out(const DivisionCall& call, std::initializer_list<Tensor> inputs,
                       at::IntArrayRef sizes, const std::function<Tensor()>& make,
                       const std::function<void(const Tensor&)>& fill, Tensor& out) {
  // An integer division by 0 throws under other policies as well.
  const Policy policy =
      is_integral(call.dtype) && call.policy != Policy::zero ? Policy::raise : call.policy;
  fill_out(out, inputs, policy, {sizes, call.dtype, make}, [&](const Tensor& result) {
    if (can_be_numbered(result)) return fill(result);
    const Tensor numbered = make();
    fill(numbered);
    result.copy_(numbered);
  });
}

void resize_out_meta(Tensor& out, const Tensor& result) {
  if (at::native::resize_output_symint(out, result.sym_sizes()))
    out.as_strided__symint(result.sym_sizes(), result.sym_strides());
}

}  // namespace safeops
