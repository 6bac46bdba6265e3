"""``torch.vmap`` of ``normalize`` and of its inner operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_vmap

from safeops._vmap import batch_first, rank_of_example, registrations, shifted, without_filler

_ops = torch.ops.safeops


@register_vmap("safeops::normalize", lib=registrations)
def _normalize(
    info: Any,
    in_dims: tuple[int | None, ...],
    self: Tensor,
    p: float = 2.0,
    dim: int | Sequence[int] = 1,
    eps: float | None = None,
    policy: str = "",
) -> tuple[Tensor, int]:
    rank = rank_of_example(self, in_dims[0])
    batch = batch_first(self, in_dims[0], info.batch_size)
    out = _ops.normalize.default(batch, p, shifted(dim, rank), eps, policy)
    return without_filler(out, rank), 0


@register_vmap("safeops::_normalize_forward", lib=registrations)
def _normalize_forward(
    info: Any,
    in_dims: tuple[int | None, ...],
    self: Tensor,
    p: float,
    dim: Sequence[int],
    eps: float,
    policy: str,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    rank = rank_of_example(self, in_dims[0])
    batch = batch_first(self, in_dims[0], info.batch_size)
    out, norm = _ops._normalize_forward.default(batch, p, shifted(dim, rank), eps, policy)
    return (without_filler(out, rank), without_filler(norm, rank)), (0, 0)


@register_vmap("safeops::_normalize_backward", lib=registrations)
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
    rank = rank_of_example(self, in_dims[1])
    operands = [
        batch_first(tensor, in_dim, info.batch_size)
        for tensor, in_dim in zip((grad, self, norm), in_dims, strict=False)
    ]
    grad_self = _ops._normalize_backward.default(*operands, p, shifted(dim, rank), eps, policy)
    return without_filler(grad_self, rank), 0
