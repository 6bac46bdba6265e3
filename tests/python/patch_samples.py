"""Calls of torch's operator database, in every spelling that a patch covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

import safeops
from samples import LONG

ZERO = torch.zeros(2, 3)
EMPTY = torch.full((2, 3), -torch.inf)

POWERS = (-1, -2, 0.5, -0.5, -1.0, -2.0)


def _power(x: Any, exponent: Any) -> torch.Tensor:
    name = {-1: "reciprocal", -2: "reciprocal", 0.5: "sqrt", -0.5: "rsqrt"}[exponent]
    y = getattr(safeops, name)(x)
    return y.square() if exponent == -2 else y


def _normalize(x: Any, p: Any = 2.0, dim: Any = 1, eps: Any = 1e-12) -> torch.Tensor:
    return safeops.normalize(x, p, dim, None if eps == 1e-12 else eps)


def _floor_divide(a: Any, b: Any) -> torch.Tensor:
    return safeops.div(a, b, rounding_mode="floor")


# Name in the database -> the direct call of ours.
DIRECT: dict[str, Callable[..., torch.Tensor]] = {
    "nn.functional.normalize": _normalize,
    "softmax": safeops.softmax,
    "softmax.with_dtype": safeops.softmax,
    "log_softmax": safeops.log_softmax,
    "log_softmax.with_dtype": safeops.log_softmax,
    "nn.functional.softmin": safeops.softmin,
    "nn.functional.softmin.with_dtype": safeops.softmin,
    "logsumexp": safeops.logsumexp,
    "div.no_rounding_mode": safeops.div,
    "div.trunc_rounding": safeops.div,
    "div.floor_rounding": safeops.div,
    "true_divide": safeops.true_divide,
    "floor_divide": _floor_divide,
    "__rdiv__": lambda x, other: safeops.div(other, x),
    "reciprocal": safeops.reciprocal,
    "rsqrt": safeops.rsqrt,
    "sqrt": safeops.sqrt,
    "log": safeops.log,
    "pow": _power,
}
ROWS = ("normalize", "softm", "log_softmax", "logsumexp")


class Sample(NamedTuple):
    """One call; `spellings` compute the same by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    spellings: dict[str, Callable[..., torch.Tensor]]
    direct: Callable[..., torch.Tensor]


@cache
def info(name: str) -> Any:
    # Importing the database costs seconds: only the tests that read it pay.
    from torch.testing._internal.common_methods_invocations import op_db

    (found,) = [op for op in op_db if op.full_name == name]
    return found


def _spellings(name: str, args: tuple[Any, ...]) -> dict[str, Callable[..., torch.Tensor]]:
    database = info(name)
    found = {"function": database.op}
    for kind in ("method", "operator", "inplace", "inplace_operator"):
        variant = getattr(database, f"{kind}_variant")
        if variant is not None and isinstance(args[0], torch.Tensor):
            found[kind] = variant
    if name.startswith(("softmax", "log_softmax")):
        found["functional"] = getattr(F, name.partition(".")[0])
        found["special"] = getattr(torch.special, name.partition(".")[0])
    if name == "logsumexp":
        found["special"] = torch.special.logsumexp
    return found


def _with_singular_rows(name: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    changed = value.detach().clone()
    if "normalize" in name:
        changed.zero_()
    elif any(family in name for family in ROWS):
        changed.fill_(torch.inf if "softmin" in name else -torch.inf)
    else:
        # Over memory as it lies: clones keep no overlap.
        changed.view(-1)[::3] = 0 if changed.is_contiguous() else changed.view(-1)[::3]
    return changed.requires_grad_(value.requires_grad)


def samples(name: str, dtype: torch.dtype, most: int = 24 if LONG else 10) -> Iterator[Sample]:
    """Some samples of the database, each as it is and with singular rows or elements."""
    # The database gives no sample of the powers that are covered.
    if name == "pow":
        found = [
            ((x,), {})
            for x in (torch.rand(4, 5).add(0.5).to(dtype), torch.rand(()).add(0.5).to(dtype))
        ]
        found = [((x, exponent), {}) for ((x,), _) in found for exponent in POWERS]
    else:
        database = info(name).sample_inputs("cpu", dtype, requires_grad=False)
        found = [((s.input, *s.args), s.kwargs) for s in database][:most]
    for args, kwargs in found:
        for change in (False, True):
            if change:
                args = tuple(_with_singular_rows(name, value) for value in args)
            yield Sample(args, kwargs, _spellings(name, args), DIRECT[name])


def fresh(args: tuple[Any, ...], differentiate: bool) -> tuple[Any, ...]:
    """Copies, to be changed in place or differentiated."""
    return tuple(
        value.detach().clone().requires_grad_(differentiate)
        if isinstance(value, torch.Tensor)
        else value
        for value in args
    )


class Outcome(NamedTuple):
    """What a call computed, forward and backward, and what it counted."""

    value: torch.Tensor
    gradients: tuple[torch.Tensor | None, ...]
    counts: dict[tuple[str, str, str], int]


def counted() -> dict[tuple[str, str, str], int]:
    """Everything counted since the last reset, notices as well; starts again from zero."""
    records = safeops.diagnostics.snapshot().records
    safeops.diagnostics.reset()
    return {(r.operator, r.condition, r.direction): r.count for r in records}


def outcome(
    function: Callable[..., torch.Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    in_place: bool = False,
    differentiate: bool = True,
) -> Outcome:
    leaves = fresh(args, differentiate)
    counted()
    inputs = tuple(
        value * 1 if in_place and isinstance(value, torch.Tensor) else value for value in leaves
    )
    y = function(*inputs, **kwargs)
    gradients: tuple[torch.Tensor | None, ...] = ()
    if differentiate and y.requires_grad:
        g = torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view(y.shape).to(y.dtype)
        needed = [value for value in leaves if isinstance(value, torch.Tensor)]
        gradients = torch.autograd.grad(y, needed, g, allow_unused=True)
    return Outcome(y.detach(), gradients, counted())


def hits() -> dict[str, int]:
    """Forward hits by operator."""
    found: dict[str, int] = {}
    for (name, condition, direction), count in counted().items():
        if direction == "forward" and condition in safeops._library.HIT_CONDITIONS:
            found[name] = found.get(name, 0) + count
    return found
