"""Calls of the division family, by the signatures of torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from safeops import _division, _roots
from safeops._stock_call import Call, are_tensors, is_number

_MODES = (None, "trunc", "floor")
_COMPLEX = (torch.complex64, torch.complex128)


def _is_complex(operand: Any) -> bool:
    return operand.is_complex() if isinstance(operand, Tensor) else isinstance(operand, complex)


def _quotient(
    input: Any, other: Any, rounding_mode: Any = None, out: Any = None, in_place: bool = False
) -> Call | None:
    for operand in (input, other):
        if not (isinstance(operand, Tensor) or is_number(operand)):
            return None
    if rounding_mode not in _MODES or not (out is None or isinstance(out, Tensor)):
        return None
    # Ours neither rounds complex quotients nor has kernels for those of half numbers.
    if (_is_complex(input) or _is_complex(other)) and (
        rounding_mode is not None or torch.result_type(input, other) not in _COMPLEX
    ):
        return None
    return Call(
        "div",
        _division.div_ if in_place else _division.div,
        _division.div,
        (input, other),
        {"rounding_mode": rounding_mode},
        out=out,
    )


def div(input: Any, other: Any, *, rounding_mode: Any = None, out: Any = None) -> Call | None:
    return _quotient(input, other, rounding_mode, out)


def div_method(input: Any, /, other: Any, *, rounding_mode: Any = None) -> Call | None:
    return _quotient(input, other, rounding_mode)


def div_in_place(input: Any, /, other: Any, *, rounding_mode: Any = None) -> Call | None:
    return _quotient(input, other, rounding_mode, in_place=True)


def true_divide(input: Any, other: Any, *, out: Any = None) -> Call | None:
    return _quotient(input, other, None, out)


def true_divide_method(input: Any, /, other: Any) -> Call | None:
    return _quotient(input, other)


def true_divide_in_place(input: Any, /, other: Any) -> Call | None:
    return _quotient(input, other, in_place=True)


def true_divide_reflected(input: Any, /, other: Any) -> Call | None:
    return _quotient(other, input) if are_tensors(input) else None


def floor_divide(input: Any, other: Any, *, out: Any = None) -> Call | None:
    return _quotient(input, other, "floor", out)


def floor_divide_method(input: Any, /, other: Any) -> Call | None:
    return _quotient(input, other, "floor") if are_tensors(input) else None


def floor_divide_in_place(input: Any, /, other: Any) -> Call | None:
    return _quotient(input, other, "floor", in_place=True)


def floor_divide_reflected(input: Any, /, other: Any) -> Call | None:
    return _quotient(other, input, "floor") if are_tensors(input) else None


def _of_one(name: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The function of ours, out of place and in place."""
    room = _division if name == "reciprocal" else _roots
    return getattr(room, name), getattr(room, f"{name}_")


def function(name: str) -> Callable[..., Call | None]:
    """``torch.sqrt``."""
    out_of_place, _ = _of_one(name)

    def ours(input: Any, *, out: Any = None) -> Call | None:
        if not are_tensors(input, out):
            return None
        return Call(name, out_of_place, out_of_place, (input,), out=out)

    return ours


def method(name: str) -> Callable[..., Call | None]:
    """``torch.Tensor.sqrt``."""
    out_of_place, _ = _of_one(name)

    def ours(input: Any, /) -> Call | None:
        return Call(name, out_of_place, out_of_place, (input,)) if are_tensors(input) else None

    return ours


def in_place(name: str) -> Callable[..., Call | None]:
    """``torch.sqrt_`` and ``torch.Tensor.sqrt_``."""
    out_of_place, changing = _of_one(name)

    def ours(input: Any) -> Call | None:
        return Call(name, changing, out_of_place, (input,)) if are_tensors(input) else None

    return ours


# The powers that torch itself computes as one of ours. -2 is the square of the reciprocal: the
# reciprocal of the square would lose what overflows or underflows in the square.
_POWERS = {-1: "reciprocal", -2: "reciprocal", 0.5: "sqrt", -0.5: "rsqrt"}

POWERS = tuple(dict.fromkeys(_POWERS.values()))


def _power(input: Any, exponent: Any, out: Any = None, in_place: bool = False) -> Call | None:
    if not are_tensors(input, out) or not isinstance(exponent, (int, float)):
        return None
    name = _POWERS.get(exponent)
    if name is None:
        return None
    if isinstance(exponent, int) and not (input.is_floating_point() or input.is_complex()):
        return None  # an integer to a negative integer, which torch refuses
    out_of_place, changing = _of_one(name)
    then: Callable[[Tensor], Tensor] | None = None
    if exponent == -2:
        then = Tensor.square_ if in_place else torch.square
        then = then if out is None else partial(torch.square, out=out)
    ours = changing if in_place else out_of_place
    return Call(name, ours, out_of_place, (input,), out=out, then=then)


def power(input: Any, exponent: Any, *, out: Any = None) -> Call | None:
    return _power(input, exponent, out)


def power_method(input: Any, /, exponent: Any) -> Call | None:
    return _power(input, exponent)


def power_in_place(input: Any, /, exponent: Any) -> Call | None:
    return _power(input, exponent, in_place=True)
