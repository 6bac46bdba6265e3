"""Every operator, dtype and length against the CPU: its bits, or float64 arithmetic."""

from __future__ import annotations

import torch
from accelerator import accelerator
from operations import DTYPES, OPERATIONS, Operation, inputs_for, same, value_and_gradients
from operations import worst_error as error_of
from stage import Context

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
    for operation in OPERATIONS:
        for dtype in DTYPES:
            for seed, length in enumerate(lengths):
                if context.left() < 5:
                    context.note(stopped_at=f"{operation.name} {dtype} {length}")
                    return
                check(context, operation, dtype, length, seed, device, worst)
        context.note(worst_in_epsilons=worst)
    check_layouts(context, device)


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
    x = torch.randn(3, 50, 70, generator=torch.Generator().manual_seed(1))
    views = {
        "dim 1": lambda t: t,
        "transposed": lambda t: t.transpose(0, 2),
        "strided": lambda t: t[:, ::2, ::3],
        "offset": lambda t: t.view(-1)[1 : 1 + 50 * 70].view(2, 25, 70),
        "empty": lambda t: t[:, :0],
        "no rows": lambda t: t[:0],
    }
    for name, view in views.items():
        for operation in OPERATIONS:
            if operation.inputs != 1 or operation.positive or not operation.exact:
                continue
            options = {"dim": 1} if operation.rows else {}
            ours = result_or_error(operation, view(x.to(device)), options)
            theirs = result_or_error(operation, view(x), options)
            context.expect(agree(ours, theirs), f"{operation.name} {name}")
    if device == "cuda":
        check_stream(context, x)


def result_or_error(
    operation: Operation, x: torch.Tensor, options: dict[str, int]
) -> torch.Tensor | str:
    """Some layouts are refused, on every device in the same words."""
    try:
        return operation.call(x, policy="zero", **options).cpu().contiguous()
    except RuntimeError as error:
        return str(error)


def agree(ours: torch.Tensor | str, theirs: torch.Tensor | str) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return isinstance(ours, str) and isinstance(theirs, str) and ours == theirs
    return same(ours, theirs)


def check_stream(context: Context, x: torch.Tensor) -> None:
    operation = OPERATIONS[0]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ours = operation.call(x.to("cuda"), policy="zero")
    stream.synchronize()
    theirs = operation.call(x, policy="zero")
    context.expect(same(ours.cpu(), theirs), "normalize on a stream of its own")
