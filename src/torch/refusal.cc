// Kinds of tensors that no operator of the library takes: sparse, nested, quantized, mkldnn.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace safeops {
namespace {

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& input = stack->at(stack->size() - op.schema().arguments().size()).toTensor();
  std::string kind = "quantized";
  if (input.is_nested()) {
    kind = "nested";
  } else if (input.layout() != at::kStrided) {
    kind = c10::str(input.layout());
  }
  C10_THROW_ERROR(NotImplementedError,
                  c10::str(op.schema().name(), ": input must be a dense tensor, got a ", kind,
                           " one; convert it first, for example with input.to_dense()"));
}

void refuse_all(torch::Library& library) {
  for (const char* op :
       {"normalize", "normalize.out", "_normalize_forward", "_normalize_backward"}) {
    library.impl(op, torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, SparseCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, SparseCsrCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, NestedTensorCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, QuantizedCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, MkldnnCPU, library) { refuse_all(library); }

}  // namespace safeops
