"""Every policy at singular rows and elements: values, gradients and hit counts are the CPU's."""

from __future__ import annotations

import torch
from accelerator import accelerator
from operations import DTYPES, OPERATIONS, POLICIES, Operation, agree, inputs_for
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


def run(context: Context) -> None:
    device = accelerator(context.dry).device
    safeops.diagnostics.set_raise_mode("exact")
    check_hits_everywhere(context, device)
    for operation in OPERATIONS:
        for dtype in DTYPES:
            for policy in POLICIES:
                if context.left() < 5:
                    context.lack(f"no time left from {operation.name} {dtype} {policy} on")
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


def check_hits_everywhere(context: Context, device: str) -> None:
    safeops.diagnostics.reset()
    rows = EVERYWHERE // 100 if context.dry else EVERYWHERE
    safeops.normalize(torch.zeros(rows, 3, device=device), dim=-1, policy="zero")
    safeops.reciprocal(torch.zeros(rows, device=device), policy="zero")
    total = safeops.diagnostics.snapshot()
    for operator in ("normalize", "reciprocal"):
        found = total.total(operator=operator)
        context.expect(found == rows, f"{operator}: {found} hits of {rows}")
