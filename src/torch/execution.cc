#include "torch/execution.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "torch/cuda_devices.h"
#include "torch/deferred_raise.h"
#include "torch/outcome.h"

namespace safeops {
namespace {

// From torch's allocator, which knows of streams and of graphs that are captured, and gives out
// multiples of 512 bytes. Freed behind the launch, in the order of the stream.
class Scratch {
 public:
  explicit Scratch(at::Device device) : options_(at::TensorOptions(device).dtype(at::kByte)) {}

  static void* allocate(void* scratch, std::size_t bytes) {
    auto& self = *static_cast<Scratch*>(scratch);
    self.blocks_.push_back(at::empty({static_cast<std::int64_t>(bytes)}, self.options_));
    return self.blocks_.back().mutable_data_ptr();
  }

 private:
  at::TensorOptions options_;
  std::vector<at::Tensor> blocks_;
};

bool is_exact() { return diagnostics::raise_mode() == RaiseMode::exact; }

}  // namespace

void TorchExecutor::run(std::size_t tasks, void (*body)(void*, std::size_t, std::size_t),
                        void* context) {
  // A task is some 16K elements, about a microsecond of work; waking a thread costs several.
  constexpr std::int64_t kTasksPerThread = 4;
  at::parallel_for(0, static_cast<std::int64_t>(tasks), kTasksPerThread,
                   [&](std::int64_t begin, std::int64_t end) {
                     body(context, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
                   });
}

void check_has_kernels(Operator op, const at::Tensor& input) {
  if (input.is_cuda()) cuda_backend(op, input);
}

bool throws_itself(const at::Tensor& input) { return !input.is_cuda() || is_exact(); }

Execution::Execution(Operator op, Direction direction, Policy policy, const at::Tensor& input,
                     std::uint64_t rows)
    : op_(op),
      direction_(direction),
      policy_(policy),
      input_(input),
      rows_(rows),
      is_exact_(is_exact()) {
  if (!input.is_cuda()) return;
  backend_ = &cuda_backend(op, input);
  guard_.reset_device(input.device());
  throw_pending_error(*backend_, input.device().index());
}

void Execution::launch(c10::function_ref<CudaStatus(const CudaLaunch&)> kernel) {
  const int index = input_.device().index();
  CudaDevice& device = cuda_device(*backend_, index);
  Scratch scratch(input_.device());
  CudaLaunch launch;
  launch.stream = backend_->current_stream(index);
  launch.multiprocessors = device.multiprocessors();
  launch.shared_memory = device.shared_memory();
  launch.allocate = Scratch::allocate;
  launch.allocator = &scratch;

  const bool raises = policy_ == Policy::raise;
  const bool captured = (raises || is_exact_) && backend_->is_capturing(index);
  if (is_exact_ && !captured) {
    CudaDevice::OwnHits own(device);
    launch.hits = own.on_device();
    backend_->check(kernel(launch));
    hits_ = own.read(launch.stream);
    return;
  }
  launch.hits = diagnostics::level() == 0 ? device.uncounted_hits() : device.hits(op_, direction_);
  if (raises) {
    const Call call = call_on(Device::cuda, op_, direction_, input_, rows_, /*raises=*/true);
    launch.alarm = device.alarm(note_launch(call, captured));
  }
  backend_->check(kernel(launch));
}

void Execution::refuse() {
  refuse_on_cuda(op_, input_, "this operator", "load a libsafeops_torch_cuda that has one");
}

void Execution::settle() {
  settle_or_throw(op_, direction_, backend_ == nullptr ? Device::cpu : Device::cuda, policy_,
                  input_, rows_, hits_);
}

}  // namespace safeops
