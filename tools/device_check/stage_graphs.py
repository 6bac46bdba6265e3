"""CUDA graphs: nothing is allocated, read or waited for in capture, and every replay counts."""

from __future__ import annotations

import torch
from accelerator import Accelerator, accelerator
from operations import OPERATIONS, Operation, inputs_for, same
from stage import Context

import safeops

REPLAYS = 3
SHAPES = ((16, 40), (4, 3000), (2, 70000))


def total() -> int:
    return safeops.diagnostics.snapshot().total()


def run(context: Context) -> None:
    device = accelerator(context.dry)
    # torch's own threads and kernels; ours are to meet a capture first.
    torch.ones(3, device=device.device, requires_grad=True).sum().backward()
    for mode in ("deferred", "exact"):
        safeops.diagnostics.set_raise_mode(mode)
        for operation in OPERATIONS:
            for shape in SHAPES[:1] if context.dry else SHAPES:
                # Deferred first: then a kernel's first launch of all is one in a capture.
                check(context, device, operation, shape, mode)
        check_raise(context, device, mode)
        context.note(last=mode)


def check(
    context: Context, device: Accelerator, operation: Operation, shape: tuple[int, ...], mode: str
) -> None:
    what = f"{operation.name} {shape} {mode}"
    inputs = inputs_for(operation, shape, torch.float32, 5, singular=True)
    leaves = [x.to(device.device).requires_grad_() for x in inputs]
    result: dict[str, tuple[torch.Tensor, ...]] = {}

    def call() -> None:
        y = operation.call(*leaves, policy="zero")
        result["now"] = (y, *torch.autograd.grad(y.sum(), leaves))

    safeops.diagnostics.reset()
    replay = device.capture(call)
    device.synchronize()
    context.expect(device.device == "cpu" or total() == 0, f"{what}: counted in capture")
    before, grown = total(), []
    for _ in range(REPLAYS):
        replay()
        device.synchronize()
        grown.append(total() - before)
        before = total()
    context.expect(grown[0] > 0 and len(set(grown)) == 1, f"{what}: replays counted {grown}")
    replayed = [tensor.clone() for tensor in result["now"]]
    before = total()
    call()
    device.synchronize()
    eager = total() - before
    context.expect(eager == grown[0], f"{what}: eager counted {eager}, a replay {grown[0]}")
    for ours, theirs in zip(replayed, result["now"], strict=True):
        context.expect(same(ours.cpu(), theirs.cpu()), f"{what}: a replay differs from eager")


def check_raise(context: Context, device: Accelerator, mode: str) -> None:
    """A captured call under raise rings at every replay in either mode, and check() tells it."""
    if not device.defers:
        return
    x = torch.zeros(8, 3, device=device.device)
    replay = device.capture(lambda: safeops.normalize(x, dim=-1, policy="raise"))
    for _ in range(REPLAYS):
        replay()
        try:
            safeops.diagnostics.check()
        except safeops.SingularityError as error:
            context.expect(error.count > 0, f"{mode}: raised without a count: {error}")
        else:
            context.expect(False, f"{mode}: a replay under raise was not told of")
    x.fill_(1.0)
    replay()
    try:
        safeops.diagnostics.check()
    except safeops.SingularityError as error:
        context.expect(False, f"{mode}: a regular replay raised: {error}")
