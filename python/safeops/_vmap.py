"""How the operators run under ``torch.vmap``: the batch becomes dim 0 of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_vmap

_ops = torch.ops.safeops

# Registrations live as long as this object.
_registrations = torch.library.Library("safeops", "FRAGMENT")


def _batch_first(tensor: Tensor, in_dim: int | None, batch_size: int) -> Tensor:
    """The tensor with the batch as dim 0, and a second dim of size 1 if it was a scalar."""
    if in_dim is None:
        batched = tensor.expand(batch_size, *tensor.shape)
    else:
        batched = tensor.movedim(in_dim, 0)
    return batched.unsqueeze(1) if batched.dim() == 1 else batched


def _shifted(dim: int | Sequence[int], rank: int) -> list[int]:
    """Dims of one example as dims of the batch.

    A negative dim counts from the end of the example, the empty tuple means all of its dims, and a
    scalar has one dim, as everywhere in torch.
    """
    extent = max(rank, 1)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    for d in dims:
        if not -extent <= d < extent:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-extent}, {extent - 1}], "
                f"but got {d})"
            )
    return [d % extent + 1 for d in dims or range(extent)]


def _rank(tensor: Tensor, in_dim: int | None) -> int:
    return tensor.dim() - (in_dim is not None)


def _without_filler(tensor: Tensor, rank: int) -> Tensor:
    return tensor if rank else tensor.squeeze(1)


# Trailing arguments that equal the schema's defaults are not passed on, so names and defaults of
# the rules are those of the schemas.
@register_vmap("safeops::normalize", lib=_registrations)
def _normalize(
    info: Any,
    in_dims: tuple[int | None, ...],
    self: Tensor,
    p: float = 2.0,
    dim: int | Sequence[int] = 1,
    eps: float | None = None,
    policy: str = "",
) -> tuple[Tensor, int]:
    rank = _rank(self, in_dims[0])
    batch = _batch_first(self, in_dims[0], info.batch_size)
    out = _ops.normalize.default(batch, p, _shifted(dim, rank), eps, policy)
    return _without_filler(out, rank), 0


@register_vmap("safeops::_normalize_forward", lib=_registrations)
def _normalize_forward(
    info: Any,
    in_dims: tuple[int | None, ...],
    self: Tensor,
    p: float,
    dim: Sequence[int],
    eps: float,
    policy: str,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    rank = _rank(self, in_dims[0])
    batch = _batch_first(self, in_dims[0], info.batch_size)
    out, norm = _ops._normalize_forward.default(batch, p, _shifted(dim, rank), eps, policy)
    return (_without_filler(out, rank), _without_filler(norm, rank)), (0, 0)


@register_vmap("safeops::_normalize_backward", lib=_registrations)
def _normalize_backward(
    info: Any,
    in_dims: tuple[int | None, ...],
    grad: Tensor,
    self: Tensor,
    norm: Tensor,
    p: float,
    dim: Sequence[int],
    eps: float,
    policy: str,
) -> tuple[Tensor, int]:
    rank = _rank(self, in_dims[1])
    operands = [
        _batch_first(tensor, in_dim, info.batch_size)
        for tensor, in_dim in zip((grad, self, norm), in_dims, strict=False)
    ]
    grad_self = _ops._normalize_backward.default(*operands, p, _shifted(dim, rank), eps, policy)
    return _without_filler(grad_self, rank), 0
