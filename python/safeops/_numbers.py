"""Numbers in place of tensors, as the operands of a quotient."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

Number: TypeAlias = bool | int | float | complex | torch.SymInt | torch.SymFloat

_PYTHON_NUMBERS = (bool, int, float, complex)


def dividend_as_tensor(number: Number, other: Tensor | Number, rounding_mode: str | None) -> Tensor:
    """The number as torch makes it the input: of the dtype that both have together.

    Exact before it takes that dtype, in which it may wrap or become infinite.
    """
    if is_dynamo_compiling() and isinstance(other, Tensor):
        tensor = _as_tensor(other, number, rounding_mode)
        return tensor if isinstance(tensor, Tensor) else _constant(other, tensor)
    dtype = torch.result_type(number, other)
    if rounding_mode is None and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    device = "meta" if isinstance(other, Tensor) and other.is_meta else "cpu"
    return torch.tensor(number, dtype=_exact_dtype(number), device=device).to(dtype)


def divisor_for(input: Tensor, other: Number, rounding_mode: str | None) -> Tensor | Number:
    """What stands for the number in the call: itself, unless the call is being compiled.

    A float that an operator takes as an argument is burnt into the graph, which makes a graph for
    every number that varies.
    """
    if is_dynamo_compiling():
        return _as_tensor(input, other, rounding_mode)
    if type(other) in _PYTHON_NUMBERS:
        return other
    # A NumPy scalar, or something that the operator will refuse.
    return other.item() if getattr(other, "shape", None) == () else other  # type: ignore[union-attr]


def _exact_dtype(number: Number) -> torch.dtype:
    if isinstance(number, complex):
        return torch.complex128
    whole = isinstance(number, int) and -(2**63) <= number < 2**63
    return torch.int64 if whole else torch.float64


def _constant(tensor: Tensor, number: Number) -> Tensor:
    """A number that stays what it is in the graph, of the dtype that `tensor` has with it."""
    if isinstance(number, bool):
        return torch.scalar_tensor(number, dtype=torch.bool, device="cpu")
    if not isinstance(number, complex) or tensor.dtype.is_complex:
        return torch.scalar_tensor(number, dtype=tensor.dtype, device="cpu")
    dtype = torch.complex128 if tensor.dtype is torch.float64 else torch.complex64
    return torch.scalar_tensor(number, dtype=dtype, device="cpu")


def _as_tensor(tensor: Tensor, number: Number, rounding_mode: str | None) -> Tensor | Number:
    """A tensor without dims that promotes `tensor` as the number does, where there is one.

    On the CPU, whatever the default device: only there it keeps digits that `tensor` has not.
    """
    dtype = tensor.dtype
    inexact = dtype.is_floating_point or dtype.is_complex
    if isinstance(number, (bool, complex)):
        return number
    if isinstance(number, int):
        whole = torch.scalar_tensor(number, dtype=torch.int64, device="cpu")
        # Quotients that stay integers wrap the number first; others become floating-point.
        wraps = rounding_mode is not None and not inexact and dtype is not torch.bool
        return whole.to(dtype) if wraps else whole
    if inexact and not tensor.dim() and dtype.itemsize == 2:
        return number  # a half type would drop digits that the quotient by a number keeps
    scalar = torch.ones((), dtype=torch.float64, device="cpu") * number
    if not inexact:
        return scalar.to(torch.get_default_dtype())
    return scalar if tensor.dim() else scalar.to(dtype)
