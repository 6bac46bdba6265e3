"""The formulas of the contract for the softmax family in extended precision."""

from __future__ import annotations

import numpy as np
import torch

from reference import Array, Axes, spacing, widen

INFINITY = np.longdouble(np.inf)
NAN = np.longdouble(np.nan)

# What an element that takes no part gets.
MASKED = {"softmax": np.longdouble(0), "log_softmax": -INFINITY}


def default_eps(dtype: torch.dtype) -> float:
    return 2.0**-14 if dtype is torch.float16 else 1e-12


def part_of(x: Array, where: torch.Tensor | None) -> Array:
    return np.broadcast_to(True if where is None else where.cpu().numpy(), x.shape)


class Rows:
    """The rows of x: which are empty, which are not finite, and the sums of the others."""

    def __init__(self, x: Array, axes: Axes, where: torch.Tensor | None) -> None:
        self.part = part_of(x, where)
        logits = np.where(self.part, x, -INFINITY)
        with np.errstate(all="ignore"):
            peak = logits.max(axes, keepdims=True, initial=-INFINITY)
            self.shifted = logits - np.where(np.isfinite(peak), peak, 0)
            self.terms = np.exp(self.shifted)
            self.total = self.terms.sum(axes, keepdims=True)
            self.logsumexp = np.where(np.isfinite(peak), peak, 0) + np.log(self.total)
        self.length = x.size // max(peak.size, 1)
        self.empty = (peak == -INFINITY) & (self.length > 0)
        self.not_finite = np.isnan(peak) | (peak == INFINITY)


def value(
    name: str,
    x: Array,
    axes: Axes,
    policy: str = "stock",
    where: torch.Tensor | None = None,
    eps: float = 1e-12,
) -> Array:
    """The rows' values; logsumexp keeps the reduced dims."""
    rows = Rows(x, axes, where)
    if name == "logsumexp":
        return rows.logsumexp
    with np.errstate(all="ignore"):
        if name == "softmax":
            y, floor = rows.terms / rows.total, np.longdouble(0)
        else:
            # Not the logarithm of the quotient: that would round near 1.
            y, floor = rows.shifted - np.log(rows.total), np.log(np.longdouble(eps))
    masked = MASKED[name]
    y = np.where(rows.not_finite, np.where(rows.part, NAN, masked), y)
    if policy in ("stock", "nan"):
        fill = np.full_like(y, NAN)
    else:
        fill = np.where(rows.part & (policy == "epsilon"), floor, masked)
    return np.where(rows.empty, fill, y)


def gradient(
    name: str,
    x: Array,
    g: Array,
    axes: Axes,
    policy: str = "stock",
    where: torch.Tensor | None = None,
    y: Array | None = None,
) -> Array:
    """The gradient from g; from what forward stored, if y is given. logsumexp wants dims kept."""
    rows = Rows(x, axes, where)
    if y is None:
        y = value(name, x, axes, policy, where)
    if name != "logsumexp":
        y = np.where(rows.part, y, MASKED[name])
        g = np.where(rows.part, g, 0)
    with np.errstate(all="ignore"):
        if name == "softmax":
            grad = y * (g - (y * g).sum(axes, keepdims=True))
        elif name == "log_softmax":
            grad = g - np.exp(y) * g.sum(axes, keepdims=True)
        else:
            # Beside +inf every finite element weighs nothing, however large it is.
            beside = (rows.logsumexp == INFINITY) & (x != INFINITY)
            grad = g * np.where(beside, 0, rows.terms / rows.total)
    fill = NAN if policy in ("stock", "nan") else np.longdouble(0)
    return np.where(rows.part, np.where(rows.empty, fill, grad), 0)


def ulps_allowed(name: str, dtype: torch.dtype) -> float:
    """Units in the last place that a value may be off."""
    if dtype in (torch.float16, torch.bfloat16):
        return 1
    wide = dtype is torch.float64
    return {"softmax": (4, 8), "log_softmax": (4, 8), "logsumexp": (2, 4)}[name][wide]


def gradient_ulps_allowed(dtype: torch.dtype) -> float:
    return {torch.float32: 8, torch.float64: 16}.get(dtype, 2)


def value_errors(name: str, y: torch.Tensor, expected: Array) -> Array:
    """Errors over what is allowed.

    A logarithm near 0 is the difference of two numbers near 1 or larger: its bound is absolute.
    """
    got = widen(y)
    assert got.shape == expected.shape
    size = np.abs(expected)
    allowed = ulps_allowed(name, y.dtype) * spacing(size, y.dtype)
    if name != "softmax":
        absolute = 2.0 ** (-51 if y.dtype is torch.float64 else -23)
        allowed = np.maximum(allowed, absolute * np.maximum(size, 1))
    largest = np.longdouble(torch.finfo(y.dtype).max)
    expected = np.where(
        size >= largest + spacing(largest, y.dtype) / 2, np.copysign(INFINITY, expected), expected
    )
    return over(got, expected, allowed)


def gradient_errors(
    name: str,
    grad: torch.Tensor,
    x: Array,
    g: Array,
    axes: Axes,
    where: torch.Tensor | None = None,
    y: Array | None = None,
) -> Array:
    """Errors of regular rows over what is allowed: some ulp of the larger of the terms."""
    expected = gradient(name, x, g, axes, "stock", where, y)
    rows = Rows(x, axes, where)
    g = np.where(rows.part, g, 0)
    with np.errstate(all="ignore"):
        weight = np.where(rows.part, rows.terms / rows.total, 0)
        if name == "softmax":
            size = weight * (abs(g) + (weight * abs(g)).sum(axes, keepdims=True))
        elif name == "log_softmax":
            size = abs(g) + weight * abs(g).sum(axes, keepdims=True)
        else:
            size = abs(expected)
    allowed = gradient_ulps_allowed(grad.dtype) * spacing(size, grad.dtype)
    return over(widen(grad), expected, allowed)


def over(got: Array, expected: Array, allowed: Array) -> Array:
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(all="ignore"):
        error = np.abs(got - expected) / allowed
    return np.where(same, 0, np.where(np.isfinite(error), error, INFINITY))
