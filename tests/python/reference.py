"""The formulas of the contract for `normalize` in extended precision, and errors counted in ulp."""

from __future__ import annotations

import math

import numpy as np
import torch

if np.finfo(np.longdouble).nmant < 63:
    raise RuntimeError("the oracle needs a long double wider than float64")

Array = np.ndarray
Axes = int | tuple[int, ...]

# A complex row is filled in both parts.
FILL = {"nan": complex(np.nan, np.nan), "zero": 0j, "raise": 0j}


def widen(tensor: torch.Tensor) -> Array:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.to(torch.float32)
    return tensor.cpu().numpy().astype(np.clongdouble if tensor.is_complex() else np.longdouble)


def default_eps(policy: str, dtype: torch.dtype) -> float:
    if policy == "epsilon" and dtype is torch.float16:
        return 2.0**-14
    return 1e-12 if policy in ("stock", "epsilon") else 0.0


def norm(x: Array, p: float, axes: Axes) -> Array:
    size = np.abs(x)
    if p == 0:
        return (size != 0).sum(axes, keepdims=True).astype(np.longdouble)
    if p > 0:
        peak = size.max(axes, keepdims=True, initial=0)
    else:
        peak = size.min(axes, keepdims=True, initial=np.inf)
    if math.isinf(p):
        return peak
    with np.errstate(all="ignore"):
        # Squares of float64 stay inside the exponent range of long double; other powers may not.
        if p == 2:
            return np.sqrt((size * size).sum(axes, keepdims=True))
        scale = np.where(np.isfinite(peak) & (peak > 0), peak, np.longdouble(1))
        powers = (size / scale) ** np.longdouble(p)
        return scale * powers.sum(axes, keepdims=True) ** (1 / np.longdouble(p))


def singular_rows(x: Array, p: float, axes: Axes, eps: float) -> Array:
    n = norm(x, p, axes)
    return (n == 0) | (n < eps)


def divide(x: Array, n: Array) -> Array:
    """x / n by parts: numpy's complex division turns an infinite part into NaN in both."""
    with np.errstate(all="ignore"):
        if not np.iscomplexobj(x):
            return x / n
        quotient = np.empty(np.broadcast_shapes(x.shape, n.shape), x.dtype)
        quotient.real, quotient.imag = x.real / n, x.imag / n
        return quotient


def filling(policy: str, like: Array) -> Array:
    fill = FILL[policy]
    return like.dtype.type(fill if np.iscomplexobj(like) else fill.real)


def normalize(x: Array, p: float, axes: Axes, eps: float, policy: str) -> Array:
    n = norm(x, p, axes)
    singular = singular_rows(x, p, axes, eps)
    y = divide(x, np.where(singular, np.longdouble(eps), n))
    return y if policy not in FILL else np.where(singular, filling(policy, y), y)


def slope(x: Array, p: float, axes: Axes) -> Array:
    """dn/dx; zero elements of a non-zero row have slope 0, ties of an infinite p share it."""
    n, size = norm(x, p, axes), np.abs(x)
    with np.errstate(all="ignore"):
        unit = np.where(size == 0, 0, divide(x, size))
        if p == 0:
            return np.zeros_like(unit)
        if math.isinf(p):
            ties = (size == n).astype(np.longdouble)
            return unit * ties / ties.sum(axes, keepdims=True)
        power = np.where(size == 0, 1, size / n) ** np.longdouble(p - 1)
        return unit * power


def gradient(x: Array, g: Array, p: float, axes: Axes, eps: float, policy: str) -> Array:
    singular = singular_rows(x, p, axes, eps)
    n = np.where(singular, np.longdouble(1), norm(x, p, axes))
    y = divide(x, n)
    with np.errstate(all="ignore"):
        inner = (np.conj(g) * y).real.sum(axes, keepdims=True)
        regular = divide(g - slope(x, p, axes) * inner, n)
        floored = divide(g, np.full(n.shape, np.longdouble(eps)))
    fill = filling(policy, regular) if policy in FILL else floored
    return np.where(singular, fill, regular)


def parts(array: Array) -> Array:
    return np.stack([array.real, array.imag]) if np.iscomplexobj(array) else array


def spacing(magnitude: Array, dtype: torch.dtype) -> Array:
    """Distance between neighbouring numbers of dtype at this magnitude, subnormals included."""
    info = torch.finfo(dtype)
    digits, lowest = round(-math.log2(info.eps)), round(math.log2(info.smallest_normal))
    exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 1))[1] - 1
    exponent = np.where(magnitude == 0, lowest, np.maximum(exponent, lowest))
    return np.ldexp(np.longdouble(1), exponent - digits)


def ulps(actual: torch.Tensor, expected: Array, magnitude: Array | None = None) -> Array:
    """|actual - expected| in ulp of actual's dtype at `magnitude`, by default the expected value.

    Where one of the two is not finite the answer is 0 if the other agrees, else inf.
    """
    got, want = parts(widen(actual)), parts(expected)
    if got.shape != want.shape:
        raise AssertionError(f"shape {tuple(got.shape)} against {tuple(want.shape)}")
    unit = spacing(
        np.abs(want) if magnitude is None else np.broadcast_to(magnitude, want.shape), actual.dtype
    )
    largest = np.longdouble(torch.finfo(actual.dtype).max)
    overflow = np.abs(want) >= largest + spacing(largest, actual.dtype) / 2
    want = np.where(overflow, np.copysign(np.longdouble(np.inf), want), want)
    with np.errstate(all="ignore"):
        error = np.abs(got - want) / unit
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0, np.where(np.isfinite(error), error, np.inf))


def forward_bound(dtype: torch.dtype, p: float, length: int) -> float:
    """ulp allowed for a value of a row of `length` elements."""
    # A complex row of n elements is a real one of 2 * n under p = 2.
    doublings = math.log2(max(length, 1)) + (p == 2 and dtype.is_complex)
    if p == 2 and dtype in (torch.float16, torch.bfloat16, torch.float32, torch.complex64):
        return 0.51
    if p == 2:
        return 2 + doublings / 4
    if dtype in (torch.float16, torch.bfloat16):
        return 2
    single = dtype in (torch.float32, torch.complex64)
    return 4 + doublings / 4 if single else 8 + doublings / 2
