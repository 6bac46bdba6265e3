"""The formulas of the contract for the division family in extended precision, for real numbers."""

from __future__ import annotations

import numpy as np
import torch

from reference import Array

NAN = np.longdouble(np.nan)
ZERO, BELOW, NEGATIVE = "zero", "below_eps", "negative_argument"


def default_eps(policy: str, dtype: torch.dtype) -> float:
    if policy != "epsilon":
        return 0.0
    return 2.0**-14 if dtype is torch.float16 else 1e-12


def is_quotient(name: str) -> bool:
    return name in ("div", "reciprocal")


def quotient_of(name: str, operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """Numerator and denominator of a quotient."""
    a, b = operands if name == "div" else (np.ones_like(operands[0]), operands[0])
    return tuple(np.broadcast_arrays(a, b))


def conditions(name: str, operands: tuple[Array, ...], eps: float) -> dict[str, Array]:
    """Where each condition holds that backward counts, by its name in the counters."""
    if is_quotient(name):
        a, b = quotient_of(name, operands)
        numeric, zero = ~np.isnan(a), b == 0
        below = (np.abs(b) < np.longdouble(eps)) & ~zero
        return {"zero_denominator": zero & numeric, "below_eps": below & numeric}
    (x,) = operands
    return {
        "zero_argument": x == 0,
        "negative_argument": x < 0,
        "below_eps": (x > 0) & (x < np.longdouble(eps)),
    }


def singular(name: str, operands: tuple[Array, ...], eps: float) -> Array:
    return np.logical_or.reduce(list(conditions(name, operands, eps).values()))


def has_value(name: str, operands: tuple[Array, ...], policy: str) -> Array:
    """Where the slope alone is singular: a root of 0 that is not floored."""
    x = operands[-1]
    return (x == 0) & (name == "sqrt") & (policy != "epsilon")


def formula(name: str, operands: tuple[Array, ...], rounding_mode: str | None = None) -> Array:
    with np.errstate(all="ignore"):
        if is_quotient(name):
            a, b = quotient_of(name, operands)
            rounded = {None: lambda y: y, "trunc": np.trunc, "floor": np.floor}[rounding_mode]
            return rounded(a / b)
        (x,) = operands
        return {
            "rsqrt": lambda: 1 / np.sqrt(x),
            "sqrt": lambda: np.sqrt(x),
            "log": lambda: np.log(x),
        }[name]()


def floored(name: str, operands: tuple[Array, ...], eps: float) -> tuple[Array, ...]:
    """The operands with what is singular raised to eps."""
    where, eps = singular(name, operands, eps), np.longdouble(eps)
    if is_quotient(name):
        a, b = quotient_of(name, operands)
        return a, np.where(where, np.copysign(eps, b), b)
    return (np.where(where, eps, operands[0]),)


def value(
    name: str,
    operands: tuple[Array, ...],
    policy: str = "stock",
    eps: float = 0.0,
    rounding_mode: str | None = None,
) -> Array:
    if policy == "epsilon":
        name_of_formula = "div" if name == "reciprocal" else name
        return formula(name_of_formula, floored(name, operands, eps), rounding_mode)
    y = formula(name, operands, rounding_mode)
    if policy == "stock":
        return y
    fill = NAN if policy == "nan" else np.longdouble(0)
    where = singular(name, operands, eps) & ~has_value(name, operands, policy)
    return np.where(where, fill, y)


def slopes(name: str, operands: tuple[Array, ...], g: Array) -> tuple[Array, ...]:
    """Stock's gradients, of every operand."""
    with np.errstate(all="ignore"):
        if is_quotient(name):
            a, b = quotient_of(name, operands)
            da, db = g / b, -g * ((a / b) / b)
            return (da, db) if name == "div" else (db,)
        (x,) = operands
        if name == "log":
            return (g / x,)
        if name == "sqrt":
            return (g / (2 * np.sqrt(x)),)
        return (-g / 2 * (1 / np.sqrt(x)) ** 3,)


def gradients(
    name: str, operands: tuple[Array, ...], g: Array, policy: str = "stock", eps: float = 0.0
) -> tuple[Array, ...]:
    """Gradients from g, which has the broadcast shape, before they are summed to the operands'.

    Under `raise` those of an incoming gradient of 0.
    """
    grads = slopes(name, operands, g)
    if policy == "stock":
        return grads
    where = singular(name, operands, eps)
    fill = NAN if policy == "nan" else np.longdouble(0)
    fills = [np.broadcast_to(fill, where.shape)] * len(grads)
    if policy == "epsilon" and name == "div":
        a, b = floored(name, operands, eps)
        fills[0] = np.divide(g, b, where=where, out=np.zeros_like(b))
    return tuple(np.where(where, fill, grad) for fill, grad in zip(fills, grads, strict=True))
