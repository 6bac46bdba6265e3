"""Bit patterns, correct rounding and error bounds for the tests of the division family."""

from __future__ import annotations

import numpy as np
import torch

import division_reference as reference
from reference import Array, spacing, widen
from samples import BITS, device

HALF = (torch.float16, torch.bfloat16)
DIGITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}

# Units in the last place allowed, of the half types, float32, float64.
VALUE_BOUNDS = {
    "div": (0.5, 0.5, 0.5),
    "reciprocal": (0.5, 0.5, 0.5),
    "sqrt": (0.5, 0.5, 0.5),
    "rsqrt": (1, 1, 1.5),
    "log": (1, 1, 1),
}
GRADIENT_BOUNDS = (1, 1.5, 4)


def bound_of(bounds: tuple[float, float, float], dtype: torch.dtype) -> float:
    return bounds[{torch.float32: 1, torch.float64: 2}.get(dtype, 0)]


def value_bound(name: str, dtype: torch.dtype) -> float:
    # The oracle itself rounds: long double has eleven digits more than float64.
    return bound_of(VALUE_BOUNDS[name], dtype) + (2.0**-11 if dtype is torch.float64 else 0)


def gradient_bound(dtype: torch.dtype) -> float:
    return bound_of(GRADIENT_BOUNDS, dtype)


def every_half(dtype: torch.dtype) -> torch.Tensor:
    """All bit patterns, NaN and infinities among them."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def random_patterns(dtype: torch.dtype, size: int, seed: int = 0) -> torch.Tensor:
    """Random bit patterns: every magnitude, both signs, here and there NaN or an infinity."""
    integers = BITS[dtype.itemsize]
    info = torch.iinfo(integers)
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randint(
        info.min, info.max, (size,), generator=generator, dtype=integers, device="cpu"
    )
    return patterns.view(dtype).to(device())


def finite_patterns(dtype: torch.dtype, size: int, seed: int = 0) -> torch.Tensor:
    """The same without 0, NaN and infinities."""
    x = random_patterns(dtype, size, seed)
    return torch.where(x.isfinite() & (x != 0), x, torch.ones_like(x))


def subnormals(dtype: torch.dtype, size: int, seed: int = 0) -> torch.Tensor:
    """Random subnormal numbers of both signs, the smallest and the largest among them."""
    generator = torch.Generator().manual_seed(seed)
    largest = 2 ** DIGITS[dtype]
    x = torch.randint(1, largest, (size,), generator=generator, dtype=torch.int64, device="cpu").to(
        device()
    )
    x[0], x[1] = 1, largest - 1
    x = x.to(BITS[dtype.itemsize]).view(dtype)
    return torch.where(torch.arange(size) % 3 == 2, -x, x)


def grid(dtype: torch.dtype, mantissas: int = 12) -> torch.Tensor:
    """Every exponent of a half type with some mantissas, the extreme ones first; both signs."""
    digits = DIGITS[dtype]
    last = 2**digits - 1
    chosen = [0, last, 1, last // 2, last // 2 + 1, last - 1, 2, last // 3, 2 * last // 3]
    chosen += [5 * last // 7, 3 * last // 11, last // 13]
    exponents = torch.arange(2 ** (15 - digits)) << digits
    patterns = (exponents[:, None] + torch.tensor(sorted(set(chosen[:mantissas])))).flatten()
    return torch.cat([patterns, patterns - 2**15]).to(torch.int16).view(dtype)


def nearest(exact: Array, dtype: torch.dtype) -> torch.Tensor:
    """The numbers of dtype nearest to `exact`, ties to even: rounded once, not through float32."""
    unit = spacing(np.abs(exact), dtype)
    with np.errstate(all="ignore"):
        # A power of two divides without rounding; an even multiple has an even last digit.
        rounded = np.where(np.isfinite(exact), np.rint(exact / unit) * unit, exact)
        largest = torch.finfo(dtype).max
        rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, rounded), rounded)
        return torch.from_numpy(rounded.astype(np.float64)).to(device(), dtype)


def assert_same_numbers(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """The same bits, except that any NaN is as good as another."""
    assert actual.dtype is expected.dtype and actual.shape == expected.shape
    actual, expected = actual.detach().cpu(), expected.detach().cpu()
    if not actual.dtype.is_floating_point:
        assert torch.equal(actual, expected)
        return
    raw = BITS[actual.itemsize]
    differ = actual.contiguous().view(raw) != expected.contiguous().view(raw)
    differ &= ~(actual.isnan() & expected.isnan())
    if differ.any():
        place = tuple(differ.nonzero()[0].tolist())
        raise AssertionError(
            f"{int(differ.sum())} of {actual.numel()} elements differ, first {place}: "
            f"{actual[place].item()!r} against {expected[place].item()!r}"
        )


def eps_in_force(policy: str, dtype: torch.dtype, eps: float | None = None) -> float:
    return reference.default_eps(policy, dtype) if eps is None else eps


def quotient(a: torch.Tensor, b: torch.Tensor) -> Array:
    with np.errstate(all="ignore"):
        return widen(a) / widen(b)
