// Kinds of tensors that no operator of the library takes: sparse, nested, quantized, mkldnn.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <optional>
#include <string>

#include "torch/schemas.h"

namespace safeops {
namespace {

struct Kind {
  std::string name, remedy;
};

std::optional<Kind> refused_kind(const at::Tensor& tensor) {
  if (tensor.is_nested()) return Kind{"nested", "to_padded_tensor(0.0)"};
  if (tensor.is_quantized()) return Kind{"quantized", "dequantize()"};
  if (tensor.layout() != at::kStrided) return Kind{c10::str(tensor.layout()), "to_dense()"};
  return std::nullopt;
}

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack->at(first + i);
    if (!value.isTensor()) continue;
    if (const auto kind = refused_kind(value.toTensor())) {
      C10_THROW_ERROR(
          NotImplementedError,
          c10::str(op.schema().name(), ": ", arguments[i].name(), " must be a dense tensor, got a ",
                   kind->name, " one; convert it first, for example with .", kind->remedy));
    }
  }
  TORCH_INTERNAL_ASSERT(false, "refused without a reason");
}

void refuse_all(torch::Library& library) {
  for (const char* schema : kSchemas) {
    // Kernels of its own would leave one in terms of others without autograd.
    if (is_in_place(schema)) continue;
    library.impl(std::string(name_in(schema)).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(safeops, SparseCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, SparseCsrCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, NestedTensorCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, QuantizedCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, MkldnnCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, SparseCUDA, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, SparseCsrCUDA, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, NestedTensorCUDA, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(safeops, QuantizedCUDA, library) { refuse_all(library); }

}  // namespace safeops
