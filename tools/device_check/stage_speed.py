"""Time beside torch, torch.compile and a copy on the device: events around replays of graphs.

A replay holds many calls, so that neither Python nor the launch is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerator import Accelerator, accelerator
from operations import OPERATIONS, Operation
from stage import Context

SHAPES = ((4096, 1024), (65536, 64), (1024, 4096), (64, 32000), (1048576, 3), (8, 128256))
COMPILED_SHAPES = ((4096, 1024), (1024, 4096))
MEASURED = ("normalize p=2", "softmax", "log_softmax", "logsumexp", "div", "sqrt", "log")
CALLS_PER_GRAPH = 20
ROUNDS = 9
# Parts of the stage's time that float32 leaves, and then the compiled peers: a compilation that was
# begun goes on to its end.
KEPT_FOR_COMPILED, KEPT_FOR_THE_REST = 0.6, 0.2
LEAST_SECONDS = 5.0

Row = dict[str, Any]


def run(context: Context) -> None:
    device = accelerator(context.dry)
    rows: list[Row] = []
    shapes = ((16, 8), (8, 16)) if context.dry else SHAPES
    measured = MEASURED[:2] if context.dry else MEASURED
    operations = [operation for operation in OPERATIONS if operation.name in measured]
    keep = context.seconds * KEPT_FOR_COMPILED
    grid(context, device, operations, shapes, torch.float32, rows, keep)
    if not context.dry:
        compiled(context, device, operations, rows, context.seconds * KEPT_FOR_THE_REST)
    grid(context, device, operations, shapes, torch.bfloat16, rows, LEAST_SECONDS)


def grid(
    context: Context,
    device: Accelerator,
    operations: list[Operation],
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    rows: list[Row],
    keep: float,
) -> None:
    """As far as it leaves `keep` seconds."""
    for shape in shapes:
        copy = copy_seconds(device, shape, dtype)
        for operation in operations:
            for direction in ("forward", "both"):
                if context.left() < keep:
                    context.lack(f"no time left from {operation.name} {shape} {dtype} on")
                    return
                rows.append(measure(device, operation, shape, dtype, direction, copy))
                context.note(rows=rows)
                context.expect(rows[-1]["safeops_us"] > 0, "no time passed")


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


def copy_seconds(device: Accelerator, shape: tuple[int, ...], dtype: torch.dtype) -> float:
    source = torch.ones(shape, device=device.device, dtype=dtype)
    target = torch.empty_like(source)
    return replay_seconds(device, lambda: target.copy_(source))


def measure(
    device: Accelerator,
    operation: Operation,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    direction: str,
    copy: float,
) -> Row:
    inputs = tensors(device, operation, shape, dtype)
    ours = replay_seconds(
        device, calls(lambda *x: operation.call(*x, policy="zero"), inputs, direction)
    )
    eager = replay_seconds(device, calls(operation.peer, inputs, direction))
    return {
        "what": operation.name,
        "shape": shape,
        "dtype": str(dtype).removeprefix("torch."),
        "direction": direction,
        "safeops_us": ours * 1e6,
        "eager_us": eager * 1e6,
        "copy_us": copy * 1e6,
        "ratio_to_eager": eager / ours,
        "copy_bytes_per_second": 2 * inputs[0].numel() * inputs[0].element_size() / copy,
    }


def compiled(
    context: Context,
    device: Accelerator,
    operations: list[Operation],
    rows: list[Row],
    keep: float,
) -> None:
    """Compilation takes long: forward of few shapes, as far as it leaves `keep` seconds."""
    wanted = {
        (shape, operation.name): operation for shape in COMPILED_SHAPES for operation in operations
    }
    for row in rows:
        operation = wanted.get((row["shape"], row["what"]))
        if operation is None or (row["dtype"], row["direction"]) != ("float32", "forward"):
            continue
        if context.left() < keep:
            context.lack(f"no time left for torch.compile from {row['what']} {row['shape']} on")
            return
        try:
            seconds = compiled_seconds(device, operation, row["shape"])
        except Exception as error:  # Inductor needs a C compiler, Triton and more of the machine.
            context.note(compiled=f"unavailable: {type(error).__name__}: {str(error)[:500]}")
            return
        row["compiled_us"] = seconds * 1e6
        row["ratio_to_compiled"] = row["compiled_us"] / row["safeops_us"]
        context.note(rows=rows)


def compiled_seconds(device: Accelerator, operation: Operation, shape: tuple[int, ...]) -> float:
    inputs = tensors(device, operation, shape, torch.float32)
    torch._dynamo.reset()
    fused = torch.compile(operation.peer, fullgraph=True)
    return replay_seconds(device, calls(fused, inputs, "forward"))
