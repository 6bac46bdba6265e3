"""Every operator, dtype and length against the CPU: its bits, or float64 arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import torch
from accelerator import accelerator
from operations import (
    DTYPES,
    OPERATIONS,
    Inputs,
    Operation,
    agree,
    inputs_for,
    same,
    value_and_gradients,
)
from operations import worst_error as error_of
from stage import Context

View = Callable[[torch.Tensor], torch.Tensor]

# Around the edges of every way to walk rows: registers of a few lanes, of a warp, shared memory,
# slices of a row.
LENGTHS = (1, 3, 4, 5, 17, 32, 33, 128, 257, 1000, 1024, 2050, 4096, 8191, 8193, 20000, 70000)
QUICK_LENGTHS = (3, 33, 1000)
# Softmax is good to an ulp or so; its gradient adds a product and a difference to that.
MOST_EPSILONS = 6.0


def run(context: Context) -> None:
    device = accelerator(context.dry).device
    lengths = QUICK_LENGTHS if context.dry else LENGTHS
    worst: dict[str, float] = {}
    check_layouts(context, device)
    for operation in OPERATIONS:
        for dtype in DTYPES:
            for seed, length in enumerate(lengths):
                if context.left() < 5:
                    context.lack(f"no time left from {operation.name} {dtype} {length} on")
                    return
                check(context, operation, dtype, length, seed, device, worst)
        context.note(worst_in_epsilons=worst)


def check(
    context: Context,
    operation: Operation,
    dtype: torch.dtype,
    length: int,
    seed: int,
    device: str,
    worst: dict[str, float],
) -> None:
    what = f"{operation.name} {str(dtype).removeprefix('torch.')} of {length}"
    shape = (max(1, min(37, 40000 // length)), length)
    inputs = inputs_for(operation, shape, dtype, seed, singular=False)
    got = value_and_gradients(operation, inputs, device, "zero")
    if operation.exact:
        expected = value_and_gradients(operation, inputs, "cpu", "zero")
        for name, ours, theirs in zip(("value", "gradient", "second"), got, expected, strict=False):
            context.expect(same(ours, theirs), f"{what}: {name} differs from the CPU's bits")
        return
    exact = value_and_gradients(operation, tuple(x.double() for x in inputs), "cpu", "zero")
    for name, ours, theirs in zip(("value", "gradient"), got, exact, strict=False):
        error = error_of(ours, theirs, scale_of(operation, name, theirs, exact[0]))
        key = f"{operation.name} {name}"
        worst[key] = max(worst.get(key, 0.0), error)
        context.expect(error <= MOST_EPSILONS, f"{what}: {name} is off by {error:.1f} epsilon")


def scale_of(
    operation: Operation, name: str, exact: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """What errors are relative to: the largest number of the row, or of what is subtracted there.

    Gradients come in of the size of 1, and softmax multiplies them by its value.
    """
    if operation.name == "logsumexp" and name == "value":
        return exact.abs().clamp_min(1.0)
    scale = exact.abs().amax(dim=-1, keepdim=True)
    if operation.name == "softmax" and name == "gradient":
        return scale.maximum(value.amax(dim=-1, keepdim=True))
    return scale.clamp_min(1.0) if operation.name == "log_softmax" else scale


def check_layouts(context: Context, device: str) -> None:
    """Another dim, strides, an odd storage offset, nothing at all, and a stream of its own."""
    views = {
        "dim 1": lambda t: t,
        "transposed": lambda t: t.transpose(0, 2),
        "strided": lambda t: t[:, ::2, ::3],
        "offset": lambda t: t.view(-1)[1 : 1 + 50 * 70].view(2, 25, 70),
        "empty": lambda t: t[:, :0],
        "no rows": lambda t: t[:0],
    }
    for operation in OPERATIONS:
        inputs = inputs_for(operation, (3, 50, 70), torch.float32, 1, singular=False)
        for name, view in views.items():
            ours = results_or_error(operation, view, inputs, device)
            theirs = results_or_error(operation, view, inputs, "cpu")
            context.expect(agree(operation, ours, theirs), f"{operation.name} {name}")
    if device == "cuda":
        check_stream(context, inputs[0])


def results_or_error(operation: Operation, view: View, inputs: Inputs, device: str) -> Inputs | str:
    """Value and gradients. Some layouts are refused, on every device in the same words."""
    leaves = [x.to(device).requires_grad_() for x in inputs]
    options = {"dim": 1} if operation.rows else {}
    try:
        y = operation.call(*map(view, leaves), policy="zero", **options)
        # Its strides are not those of y either.
        gradient = (
            torch.linspace(-1, 1, y.numel()).view(y.shape[::-1]).permute(*reversed(range(y.dim())))
        )
        results = (y, *torch.autograd.grad(y, leaves, gradient.to(device)))
    except RuntimeError as error:
        return str(error)
    return tuple(tensor.detach().cpu().contiguous() for tensor in results)


def check_stream(context: Context, x: torch.Tensor) -> None:
    operation = OPERATIONS[0]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ours = operation.call(x.to("cuda"), policy="zero")
    stream.synchronize()
    theirs = operation.call(x, policy="zero")
    context.expect(same(ours.cpu(), theirs), "normalize on a stream of its own")
