"""Every policy at singular rows and elements: values, gradients and hit counts are the CPU's."""

from __future__ import annotations

import torch
from accelerator import accelerator
from operations import DTYPES, OPERATIONS, POLICIES, Operation, inputs_for, same
from operations import value_and_gradients as compute
from stage import Context

import safeops

SHAPE = (31, 40)
# Rows of one column and all of them singular: every thread has a hit.
EVERYWHERE = 100_000

Counts = dict[tuple[str, str, str], int]


def counts(device: str) -> Counts:
    return {
        (record.operator, record.condition, record.direction): record.count
        for record in safeops.diagnostics.snapshot().records
        if record.device == device and record.count
    }


def outcome(
    operation: Operation, inputs: tuple[torch.Tensor, ...], device: str, policy: str
) -> tuple[tuple[torch.Tensor, ...] | str, Counts]:
    """Results, or the error's fields, and what was counted."""
    safeops.diagnostics.reset()
    try:
        results: tuple[torch.Tensor, ...] | str = compute(operation, inputs, device, policy)
    except safeops.SingularityError as error:
        fields = (error.operator, error.condition, error.count, error.first_row, error.shape)
        results = f"{fields}, {error.dtype}"
    except ValueError as error:  # of a backward pass, which has a sentence and no fields
        results = str(error)
    return results, counts(device)


def agree(operation: Operation, a: object, b: object) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    if operation.exact:
        return all(same(ours, theirs) for ours, theirs in zip(a, b, strict=True))
    return all(close(ours, theirs) for ours, theirs in zip(a, b, strict=True))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    tolerance = 8 * torch.finfo(a.dtype).eps
    return torch.allclose(a.double(), b.double(), tolerance, tolerance, equal_nan=True)


def run(context: Context) -> None:
    device = accelerator(context.dry).device
    safeops.diagnostics.set_raise_mode("exact")
    for operation in OPERATIONS:
        for dtype in DTYPES:
            for policy in POLICIES:
                if context.left() < 5:
                    context.note(stopped_at=f"{operation.name} {dtype} {policy}")
                    return
                what = f"{operation.name} {str(dtype).removeprefix('torch.')} {policy}"
                inputs = inputs_for(operation, SHAPE, dtype, 3, singular=True)
                ours, our_counts = outcome(operation, inputs, device, policy)
                theirs, their_counts = outcome(operation, inputs, "cpu", policy)
                context.expect(agree(operation, ours, theirs), f"{what}: differs from the CPU")
                context.expect(
                    our_counts == their_counts, f"{what}: counted {our_counts}, CPU {their_counts}"
                )
        context.note(last=operation.name)
    check_hits_everywhere(context, device)


def check_hits_everywhere(context: Context, device: str) -> None:
    safeops.diagnostics.reset()
    rows = EVERYWHERE // 100 if context.dry else EVERYWHERE
    safeops.normalize(torch.zeros(rows, 3, device=device), dim=-1, policy="zero")
    safeops.reciprocal(torch.zeros(rows, device=device), policy="zero")
    total = safeops.diagnostics.snapshot()
    for operator in ("normalize", "reciprocal"):
        found = total.total(operator=operator)
        context.expect(found == rows, f"{operator}: {found} hits of {rows}")
