"""Numbers in place of tensors, as the operands of a quotient."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

Number: TypeAlias = bool | int | float | complex | torch.SymInt | torch.SymFloat

_PYTHON_NUMBERS = (bool, int, float, complex)


def dividend_as_tensor(number: Number, other: Tensor | Number) -> Tensor:
    """The number as torch makes it the input: of the dtype that both have together."""
    return torch.scalar_tensor(number, dtype=torch.result_type(number, other))


def divisor_for(input: Tensor, other: Number) -> Tensor | Number:
    """What stands for the number in the call: itself, unless the call is being compiled.

    A float that an operator takes as an argument is burnt into the graph, which makes a graph for
    every number that varies.
    """
    if is_dynamo_compiling():
        return _as_tensor(input, other)
    if type(other) in _PYTHON_NUMBERS:
        return other
    # A NumPy scalar, or something that the operator will refuse.
    return other.item() if getattr(other, "shape", None) == () else other  # type: ignore[union-attr]


def _as_tensor(input: Tensor, number: Number) -> Tensor | Number:
    """A tensor without dims that promotes `input` as the number does, where there is one."""
    dtype = input.dtype
    inexact = dtype.is_floating_point or dtype.is_complex
    if isinstance(number, (bool, complex)):
        return number
    if isinstance(number, int):
        tensor = torch.scalar_tensor(number, dtype=torch.int64)
        return tensor if inexact or dtype is torch.bool else tensor.to(dtype)
    if inexact and not input.dim() and dtype.itemsize == 2:
        return number  # a half type would drop digits that the quotient by a number keeps
    tensor = torch.ones((), dtype=torch.float64) * number
    if not inexact:
        return tensor.to(torch.get_default_dtype())
    return tensor if input.dim() else tensor.to(dtype)
