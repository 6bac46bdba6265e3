"""Time beside torch, torch.compile and a copy on the device: events around replays of graphs.

A replay holds many calls, so that neither Python nor the launch is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from accelerator import Accelerator, accelerator
from operations import OPERATIONS, Operation
from stage import Context

SHAPES = ((4096, 1024), (65536, 64), (1024, 4096), (64, 32000), (1048576, 3), (8, 128256))
COMPILED_SHAPES = ((4096, 1024), (1024, 4096))
MEASURED = ("normalize p=2", "softmax", "log_softmax", "logsumexp", "div", "sqrt", "log")
CALLS_PER_GRAPH = 20
ROUNDS = 9


def run(context: Context) -> None:
    device = accelerator(context.dry)
    rows: list[dict[str, object]] = []
    shapes = ((16, 8), (8, 16)) if context.dry else SHAPES
    measured = MEASURED[:2] if context.dry else MEASURED
    operations = [operation for operation in OPERATIONS if operation.name in measured]
    for dtype in (torch.float32, torch.bfloat16):
        for shape in shapes:
            for operation in operations:
                for direction in ("forward", "both"):
                    if context.left() < 25:
                        context.note(stopped_at=f"{operation.name} {shape} {dtype}")
                        return
                    rows.append(measure(device, operation, shape, dtype, direction))
                    context.note(rows=rows)
                    context.expect(rows[-1]["safeops_us"] > 0, "no time passed")
    if not context.dry:
        compiled(context, device, operations, rows)


def calls(
    call: Callable[..., torch.Tensor], inputs: list[torch.Tensor], direction: str
) -> Callable[[], object]:
    if direction == "forward":
        return lambda: call(*inputs)
    leaves = [x.clone().requires_grad_() for x in inputs]
    gradient = torch.ones_like(call(*leaves))

    def both() -> None:
        torch.autograd.grad(call(*leaves), leaves, gradient)

    return both


def replay_seconds(device: Accelerator, call: Callable[[], object]) -> float:
    def many() -> None:
        for _ in range(1 if device.device == "cpu" else CALLS_PER_GRAPH):
            call()

    call()
    device.synchronize()
    replay = device.capture(many)
    replay()
    device.synchronize()
    rounds = [device.seconds(replay, 3) for _ in range(ROUNDS)]
    return statistics.median(rounds) / (1 if device.device == "cpu" else CALLS_PER_GRAPH)


def tensors(
    device: Accelerator, operation: Operation, shape: tuple[int, ...], dtype: torch.dtype
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    made = [torch.randn(shape, device=device.device) for _ in range(operation.inputs)]
    return [(x.abs() + 0.1 if operation.positive else x).to(dtype) for x in made]


def measure(
    device: Accelerator,
    operation: Operation,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    direction: str,
) -> dict[str, object]:
    inputs = tensors(device, operation, shape, dtype)
    ours = replay_seconds(
        device, calls(lambda *x: operation.call(*x, policy="zero"), inputs, direction)
    )
    eager = replay_seconds(device, calls(operation.peer, inputs, direction))
    target = torch.empty_like(inputs[0])
    copy = replay_seconds(device, lambda: target.copy_(inputs[0]))
    return {
        "what": operation.name,
        "shape": shape,
        "dtype": str(dtype).removeprefix("torch."),
        "direction": direction,
        "safeops_us": ours * 1e6,
        "eager_us": eager * 1e6,
        "copy_us": copy * 1e6,
        "ratio_to_eager": eager / ours,
        "copy_bytes_per_second": 2 * target.numel() * target.element_size() / copy,
    }


def compiled(
    context: Context, device: Accelerator, operations: list[Operation], rows: list[dict]
) -> None:
    """Compilation takes long: forward of few shapes, as far as time allows."""
    for shape in COMPILED_SHAPES:
        for operation in operations:
            if context.left() < 25:
                context.note(compile_stopped_at=f"{operation.name} {shape}")
                return
            inputs = tensors(device, operation, shape, torch.float32)
            torch._dynamo.reset()
            fused = torch.compile(operation.peer, fullgraph=True)
            seconds = replay_seconds(device, calls(fused, inputs, "forward"))
            key = (operation.name, shape, "float32", "forward")
            for row in rows:
                if (row["what"], row["shape"], row["dtype"], row["direction"]) == key:
                    row["compiled_us"] = seconds * 1e6
                    row["ratio_to_compiled"] = seconds * 1e6 / row["safeops_us"]
            context.note(rows=rows)
