"""``torch.vmap`` of the softmax family and of its inner operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_vmap

from safeops._vmap import (
    batch_first,
    mask_first,
    rank_of_example,
    registrations,
    shifted,
    without_filler,
)

_ops = torch.ops.safeops

_InDims = tuple[int | None, ...]


def _in_dim(in_dims: _InDims, argument: int) -> int | None:
    return in_dims[argument] if argument < len(in_dims) else None


def _register_rules(name: str) -> None:
    public = getattr(_ops, name).default
    forward = getattr(_ops, f"_{name}_forward").default
    backward = getattr(_ops, f"_{name}_backward").default

    @register_vmap(f"safeops::{name}", lib=registrations)
    def _public(
        info: Any,
        in_dims: _InDims,
        self: Tensor,
        dim: int,
        dtype: torch.dtype | None = None,
        where: Tensor | None = None,
        eps: float | None = None,
        policy: str = "",
    ) -> tuple[Tensor, int]:
        rank = rank_of_example(self, in_dims[0])
        batch = batch_first(self, in_dims[0], info.batch_size)
        mask = mask_first(where, _in_dim(in_dims, 3), rank)
        out = public(batch, *shifted(dim, rank), dtype, mask, eps, policy)
        return without_filler(out, rank), 0

    @register_vmap(f"safeops::_{name}_forward", lib=registrations)
    def _forward(
        info: Any,
        in_dims: _InDims,
        self: Tensor,
        dim: int,
        dtype: torch.dtype,
        where: Tensor | None,
        eps: float,
        policy: str,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        rank = rank_of_example(self, in_dims[0])
        batch = batch_first(self, in_dims[0], info.batch_size)
        mask = mask_first(where, in_dims[3], rank)
        out, peak = forward(batch, *shifted(dim, rank), dtype, mask, eps, policy)
        return (without_filler(out, rank), without_filler(peak, rank)), (0, 0)

    @register_vmap(f"safeops::_{name}_backward", lib=registrations)
    def _backward(
        info: Any,
        in_dims: _InDims,
        grad: Tensor,
        out: Tensor,
        peak: Tensor,
        where: Tensor | None,
        dim: int,
        input_dtype: torch.dtype,
        policy: str,
    ) -> tuple[Tensor, int]:
        rank = rank_of_example(out, in_dims[1])
        operands = [
            batch_first(tensor, in_dim, info.batch_size)
            for tensor, in_dim in zip((grad, out, peak), in_dims, strict=False)
        ]
        mask = mask_first(where, in_dims[3], rank)
        grad_self = backward(*operands, mask, *shifted(dim, rank), input_dtype, policy)
        return without_filler(grad_self, rank), 0


_register_rules("softmax")
_register_rules("log_softmax")


@register_vmap("safeops::logsumexp", lib=registrations)
def _logsumexp(
    info: Any,
    in_dims: _InDims,
    self: Tensor,
    dim: int | Sequence[int],
    keepdim: bool = False,
    where: Tensor | None = None,
    policy: str = "",
) -> tuple[Tensor, int]:
    rank = rank_of_example(self, in_dims[0])
    batch = batch_first(self, in_dims[0], info.batch_size)
    mask = mask_first(where, _in_dim(in_dims, 3), rank)
    out = _ops.logsumexp.default(batch, shifted(dim, rank), keepdim, mask, policy)
    return without_filler(out, rank) if keepdim else out, 0


@register_vmap("safeops::_logsumexp_forward", lib=registrations)
def _logsumexp_forward(
    info: Any,
    in_dims: _InDims,
    self: Tensor,
    dim: Sequence[int],
    where: Tensor | None,
    policy: str,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    rank = rank_of_example(self, in_dims[0])
    batch = batch_first(self, in_dims[0], info.batch_size)
    mask = mask_first(where, in_dims[2], rank)
    out, lse = _ops._logsumexp_forward.default(batch, shifted(dim, rank), mask, policy)
    return (without_filler(out, rank), without_filler(lse, rank)), (0, 0)


@register_vmap("safeops::_logsumexp_backward", lib=registrations)
def _logsumexp_backward(
    info: Any,
    in_dims: _InDims,
    grad: Tensor,
    self: Tensor,
    lse: Tensor,
    where: Tensor | None,
    dim: Sequence[int],
    policy: str,
) -> tuple[Tensor, int]:
    rank = rank_of_example(self, in_dims[1])
    operands = [
        batch_first(tensor, in_dim, info.batch_size)
        for tensor, in_dim in zip((grad, self, lse), in_dims, strict=False)
    ]
    mask = mask_first(where, in_dims[3], rank)
    grad_self = _ops._logsumexp_backward.default(*operands, mask, shifted(dim, rank), policy)
    return without_filler(grad_self, rank), 0
