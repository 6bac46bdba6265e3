"""``torch.vmap`` of the quotients, the roots and the logarithm, and of their inner operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_vmap

from safeops._vmap import rank_of_example, registrations

_ops = torch.ops.safeops

_InDims = tuple[int | None, ...]


def _aligned(tensor: Tensor, in_dim: int | None, rank: int) -> Tensor:
    """The tensor with the batch, if it has one, before `rank` dims of an example.

    One that all examples share needs no batch: broadcasting aligns it from the right.
    """
    if in_dim is None:
        return tensor
    batch = tensor.movedim(in_dim, 0)
    missing = rank + 1 - batch.dim()
    return batch[(slice(None), *[None] * missing)] if missing else batch


def _expanded(tensor: Tensor, in_dim: int | None, rank: int, batch_size: int) -> Tensor:
    if in_dim is None:
        return tensor.expand(batch_size, *tensor.shape)
    return _aligned(tensor, in_dim, rank)


def _stand_in(tensor: Tensor, in_dim: int | None) -> Tensor:
    """What decides about promotion: the dtype of an example, and whether it has dims."""
    dims = (1,) if rank_of_example(tensor, in_dim) else ()
    return torch.empty(dims, dtype=tensor.dtype, device="meta")


@register_vmap("safeops::div", lib=registrations)
def _div(
    info: Any,
    in_dims: _InDims,
    self: Tensor,
    other: Tensor,
    rounding_mode: str | None = None,
    eps: float | None = None,
    policy: str = "",
) -> tuple[Tensor, int]:
    operands = list(zip((self, other), in_dims, strict=False))
    rank = max(rank_of_example(*operand) for operand in operands)
    a, b = (_aligned(*operand, rank) for operand in operands)
    if a.dtype != b.dtype:
        # A scalar example ranks below tensors with dims; as part of a batch it has one.
        dtype = torch.result_type(*(_stand_in(*operand) for operand in operands))
        if torch.result_type(a, b) != dtype:
            a, b = a.to(dtype), b.to(dtype)
    return _ops.div.default(a, b, rounding_mode, eps, policy), 0


@register_vmap("safeops::div.Scalar", lib=registrations)
def _div_by_number(
    info: Any,
    in_dims: _InDims,
    self: Tensor,
    other: bool | int | float | complex,
    rounding_mode: str | None = None,
    eps: float | None = None,
    policy: str = "",
) -> tuple[Tensor, int]:
    return _ops.div.Scalar(self.movedim(in_dims[0], 0), other, rounding_mode, eps, policy), 0


@register_vmap("safeops::_div_backward", lib=registrations)
def _div_backward(
    info: Any,
    in_dims: _InDims,
    grad: Tensor,
    self: Tensor | None,
    other: Tensor,
    rounding_mode: str | None,
    eps: float,
    policy: str,
    wanted: Sequence[bool],
) -> tuple[tuple[Tensor, Tensor], tuple[int | None, int | None]]:
    rank = rank_of_example(grad, in_dims[0])
    g = _expanded(grad, in_dims[0], rank, info.batch_size)
    a = None if self is None else _aligned(self, in_dims[1], rank)
    b = _aligned(other, in_dims[2], rank)
    grads = _ops._div_backward.default(g, a, b, rounding_mode, eps, policy, wanted)
    return grads, (0 if wanted[0] else None, 0 if wanted[1] else None)


def _register_rules(name: str) -> None:
    public = getattr(_ops, name).default
    backward = getattr(_ops, f"_{name}_backward").default

    @register_vmap(f"safeops::{name}", lib=registrations)
    def _public(
        info: Any, in_dims: _InDims, self: Tensor, eps: float | None = None, policy: str = ""
    ) -> tuple[Tensor, int]:
        return public(self.movedim(in_dims[0], 0), eps, policy), 0

    @register_vmap(f"safeops::_{name}_backward", lib=registrations)
    def _backward(
        info: Any, in_dims: _InDims, grad: Tensor, self: Tensor, eps: float, policy: str
    ) -> tuple[Tensor, int]:
        rank = rank_of_example(self, in_dims[1])
        g, x = (
            _expanded(tensor, in_dim, rank, info.batch_size)
            for tensor, in_dim in zip((grad, self), in_dims, strict=False)
        )
        return backward(g, x, eps, policy), 0


for _name in ("reciprocal", "rsqrt", "sqrt", "log"):
    _register_rules(_name)


def _register_in_place_rule(name: str, overload: str) -> None:
    functional = getattr(getattr(_ops, name), overload or "default")

    # As the C++ kernel does it, where one may be reached: these keys take no composite kernel of an
    # operator that is not torch's, and torch's form of a rule takes none that writes an argument.
    def change(input: Tensor, *rest: Any, **named: Any) -> None:
        input.copy_(functional(input.clone(), *rest, **named))

    for key in ("FuncTorchBatched", "Functionalize"):
        registrations.impl(f"{name}_.{overload}".rstrip("."), change, key)


for _name in ("div", "reciprocal", "rsqrt", "sqrt", "log"):
    _register_in_place_rule(_name, "")
_register_in_place_rule("div", "Scalar")
