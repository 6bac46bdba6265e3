"""Counters of all processes of a group."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
import torch.distributed as distributed

from safeops import _library
from safeops._snapshot import Record, Snapshot

_NO_ROW = torch.iinfo(torch.int64).max


def all_reduce(group: Any = None) -> Snapshot:
    """Sums the counters of all processes of a ``torch.distributed`` group.

    A collective: every process of the group calls it, in the same order as its other collectives.
    Operators never communicate. The counters themselves stay what they are.

    Args:
        group: the process group; the default group if left out.

    Returns:
        The same :class:`Snapshot` in every process: counts are sums, ``first_row`` is the lowest of
        all processes, shape and dtype are None, and there are no sites, which are lines of one
        process.

    Raises:
        RuntimeError: if ``torch.distributed`` is not initialised, or this process not in `group`.

    Example:
        >>> total = safeops.diagnostics.all_reduce()
        >>> if torch.distributed.get_rank() == 0:
        ...     print(total.total())
    """
    _check_member(group)
    slots = list(
        product(
            range(len(_library.OPERATORS)),
            range(len(_library.CONDITIONS)),
            range(len(_library.DIRECTIONS)),
            range(len(_library.DEVICES)),
        )
    )
    here = {
        (record.op, record.condition, record.direction, record.device): record
        for record in _library.records()
    }
    device = _device(distributed.get_backend_config(group))
    counts = torch.tensor([here[slot].count if slot in here else 0 for slot in slots])
    first_rows = torch.tensor([here[slot].first_row if slot in here else _NO_ROW for slot in slots])
    counts, first_rows = counts.to(device), first_rows.to(device)
    distributed.all_reduce(counts, distributed.ReduceOp.SUM, group=group)
    distributed.all_reduce(first_rows, distributed.ReduceOp.MIN, group=group)
    records = [
        Record(
            _library.OPERATORS[op],
            _library.CONDITIONS[condition],
            _library.DIRECTIONS[direction],
            _library.DEVICES[kind],
            count,
            first_row,
        )
        for (op, condition, direction, kind), count, first_row in zip(
            slots, counts.tolist(), first_rows.tolist(), strict=True
        )
        if count
    ]
    return Snapshot(tuple(records), ())


def _device(backends: str) -> torch.device:
    """Where a group communicates whose backends are ``"cpu:gloo,cuda:nccl"``."""
    devices = {backend.partition(":")[0] for backend in backends.split(",")}
    if "cpu" not in devices and "cuda" in devices:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _check_member(group: Any) -> None:
    if not (distributed.is_available() and distributed.is_initialized()):
        raise RuntimeError(
            "safeops.diagnostics.all_reduce: torch.distributed must be initialised, and it is not; "
            "call torch.distributed.init_process_group() first, or snapshot() for this process"
        )
    if distributed.get_rank(group) < 0:
        raise RuntimeError(
            "safeops.diagnostics.all_reduce: this process must be in group, and it is not; call it "
            "in the processes of the group only"
        )
