"""Calls and elements that the tests of the division family share."""

from __future__ import annotations

import math

import torch

import division_reference as reference
import safeops
from reference import Array, widen
from samples import device

UNARY = ("reciprocal", "rsqrt", "sqrt", "log")
NAMES = ("div", *UNARY)
ZERO_CONDITION = dict.fromkeys(UNARY, "zero_argument") | {
    "div": "zero_denominator",
    "reciprocal": "zero_denominator",
}
INF, NAN = math.inf, math.nan

# A power of two, so that it is the same in every dtype; above the default of float16.
EPS = 2.0**-10


def numbers(
    dtype: torch.dtype, shape: tuple[int, ...], low: float = 0.5, high: float = 4.0, seed: int = 0
) -> torch.Tensor:
    """Random numbers between low and high: regular arguments of every operator."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    uniform = torch.rand(shape, dtype=wide, generator=generator, device="cpu")
    return (uniform * (high - low) + low).to(device(), dtype)


def operands(
    name: str, dtype: torch.dtype, shape: tuple[int, ...] = (4, 6), zeros: int = 1
) -> tuple[torch.Tensor, ...]:
    """One or two regular tensors, but that the last argument is 0 in its first elements."""
    last = numbers(dtype, shape)
    last.view(-1)[:zeros] = 0
    return (numbers(dtype, shape, -3.0, 3.0, seed=1), last) if name == "div" else (last,)


def edges(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Singular and regular elements of every kind, at the eps EPS and at 0."""
    tiny = torch.finfo(dtype).tiny
    subnormal = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    divisors = [0.0, -0.0, subnormal, tiny, EPS / 2, EPS, 2 * EPS, 1.0, 3.0, INF, NAN]
    divisors += [-number for number in divisors[2:-1]]
    if name != "div":
        return (torch.tensor(divisors, dtype=torch.float64).to(dtype),)
    dividends = torch.tensor([0.0, 1.0, -2.5, INF, NAN], dtype=dtype)
    return tuple(
        t.reshape(-1).contiguous()
        for t in torch.meshgrid(dividends, torch.tensor(divisors, dtype=dtype), indexing="ij")
    )


def call(name: str, *tensors: object, **arguments: object) -> torch.Tensor:
    return getattr(safeops, name)(*tensors, **arguments)


def stock(name: str, *tensors: object, **arguments: object) -> torch.Tensor:
    """PyTorch's own operator."""
    return getattr(torch, name)(*tensors, **arguments)


def assert_equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def wide(tensors: tuple[torch.Tensor, ...]) -> tuple[Array, ...]:
    return tuple(widen(tensor) for tensor in tensors)


def values_and_gradients(
    name: str,
    tensors: tuple[torch.Tensor, ...],
    g: torch.Tensor,
    policy: str,
    **rest: object,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    y = call(name, *leaves, policy=policy, **rest)
    return y.detach(), torch.autograd.grad(y, leaves, g)


def hits(
    name: str, tensors: tuple[torch.Tensor, ...], policy: str, eps: float
) -> tuple[dict[str, int], dict[str, int]]:
    """What forward and backward must count, by condition."""
    found = reference.conditions(name, wide(tensors), eps)
    backward = {condition: int(where.sum()) for condition, where in found.items()}
    forward = dict(backward)
    if name == "sqrt" and policy != "epsilon":
        forward["zero_argument"] = 0
    return forward, backward
