"""Calls, rows and masks that the tests of the softmax family share."""

from __future__ import annotations

import math

import torch

import safeops
from reference import widen
from samples import device

NAMES = ("softmax", "log_softmax", "logsumexp")
LOGITS = ("softmax", "log_softmax")
INF = math.inf

# Values of an empty row where all elements take part, and of its gradient where all are finite.
EMPTY_VALUE = {
    "softmax": {"stock": math.nan, "nan": math.nan, "epsilon": 0.0, "zero": 0.0},
    "log_softmax": {"stock": math.nan, "nan": math.nan, "epsilon": math.log(1e-12), "zero": -INF},
    "logsumexp": {"stock": -INF, "nan": -INF, "epsilon": -INF, "zero": -INF},
}
EMPTY_SLOPE = {"stock": math.nan, "nan": math.nan, "epsilon": 0.0, "zero": 0.0}


def call(name: str, x: torch.Tensor, dim: object = -1, **arguments: object) -> torch.Tensor:
    return getattr(safeops, name)(x, dim, **arguments)


def stock(name: str, x: torch.Tensor, dim: object = -1, **arguments: object) -> torch.Tensor:
    """PyTorch's own operator."""
    return getattr(torch, name)(x, dim, **arguments)


def logits(
    dtype: torch.dtype, shape: tuple[int, ...], spread: float = 5.0, seed: int = 0
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, dtype=torch.float64, generator=generator, device="cpu") * 2 - 1
    return (x * spread).to(device(), dtype)


def some_mask(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """About half of the elements take part, and in every row one at least."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=generator, device="cpu") < 0.5
    if mask.dim() and mask.shape[-1]:
        mask[..., 0] |= ~mask.any(-1)
    return mask.to(device())


def incoming(name: str, x: torch.Tensor, dim: object = -1, seed: int = 1) -> torch.Tensor:
    """A random gradient of the shape that the operator's result has."""
    shape = call(name, x, dim, policy="zero").shape
    safeops.diagnostics.reset()
    return logits(x.dtype, tuple(shape), 2.0, seed)


def value_and_gradient(
    name: str, x: torch.Tensor, g: torch.Tensor, policy: str, dim: object = -1, **rest: object
) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = x.detach().requires_grad_()
    y = call(name, leaf, dim, policy=policy, **rest)
    (grad,) = torch.autograd.grad(y, leaf, g)
    return y.detach(), grad


def kept(name: str, tensor: torch.Tensor, dim: object = -1) -> torch.Tensor:
    """A result, or its gradient, with the reduced dims that logsumexp leaves out."""
    if name != "logsumexp":
        return tensor
    rank = tensor.dim() + (1 if isinstance(dim, int) else len(dim))
    dims = sorted(d % rank for d in ((dim,) if isinstance(dim, int) else dim))
    for d in dims:
        tensor = tensor.unsqueeze(d)
    return tensor


def wide(name: str, tensor: torch.Tensor, dim: object = -1):
    return widen(kept(name, tensor, dim))
