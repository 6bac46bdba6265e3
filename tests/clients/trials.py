"""One step of a client, repeated under patches and audits, and how two of them are compared."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

import safeops


class Step(NamedTuple):
    """The values that a forward pass gave, and the gradients of what it was given, by name."""

    values: dict[str, Tensor]
    gradients: dict[str, Tensor]


Client = Callable[[], Step]


def step_of(values: dict[str, Tensor], loss: Tensor, leaves: dict[str, Tensor]) -> Step:
    """Runs the backward pass; a leaf that takes no part has no gradient in either of two steps."""
    loss.backward()
    gradients = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    assert gradients
    values = {"loss": loss, **values}
    return Step({name: value.detach() for name, value in values.items()}, gradients)


def run(client: Client) -> Step:
    torch.manual_seed(0)
    return client()


def observed(client: Client) -> Step:
    with safeops.patch(observe=True):
        return run(client)


def patched(client: Client, policy: str) -> Step:
    with safeops.patch(policy=policy):
        return run(client)


def audited(client: Client) -> tuple[Step, safeops.Report]:
    with safeops.audit() as report:
        step = run(client)
    return step, report


def different(one: Step, other: Step) -> list[str]:
    """Names of the tensors that differ in any bit; NaN equals the same NaN."""
    names = []
    for ours, theirs in zip(one, other, strict=True):
        assert ours.keys() == theirs.keys()
        names += [name for name in ours if not _same_bits(ours[name], theirs[name])]
    return names


def _same_bits(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def not_finite(tensors: dict[str, Tensor]) -> list[str]:
    return [name for name, value in tensors.items() if not value.isfinite().all()]


def lines_in(report: safeops.Report, package: ModuleType) -> set[str]:
    """Source text of the lines that hit, all of which must be the package's own."""
    folder = Path(inspect.getfile(package)).parent
    outside = [site for site in report.sites if not Path(site.filename).is_relative_to(folder)]
    assert not outside, outside
    return {
        Path(site.filename).read_text().splitlines()[site.lineno - 1].strip()
        for site in report.sites
    }
