"""Calls of ``normalize`` and of the softmax family, by the signatures of torch."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from safeops import _normalize, _softmax
from safeops._stock_call import Call, are_tensors, dims, index, is_number

_OF_PATCHES = (os.path.dirname(__file__) + os.sep, torch.overrides.__file__)


def normalize(
    input: Any, p: Any = 2.0, dim: Any = 1, eps: Any = _normalize.STOCK_EPS, out: Any = None
) -> Call | None:
    if not (are_tensors(input, out) and is_number(p) and is_number(eps)):
        return None
    if not 0 <= eps < math.inf:
        return None  # torch takes it, ours does not
    return Call(
        "normalize",
        _normalize.normalize,
        _normalize.normalize,
        (input, p, dim if dim is None else dims(dim)),
        # The default spelled out chooses nothing.
        eps=None if eps == _normalize.STOCK_EPS else eps,
        out=out,
    )


def _weights(
    name: str,
    input: Any,
    dim: Any,
    dtype: Any,
    out: Any = None,
    first: Callable[[], object] | None = None,
) -> Call | None:
    if not (are_tensors(input, out) and (dtype is None or isinstance(dtype, torch.dtype))):
        return None
    if not (dtype or input.dtype).is_floating_point:
        return None
    function = getattr(_softmax, name)
    counted = "softmax" if name == "softmin" else name
    return Call(counted, function, function, (input, index(dim), dtype), out=out, first=first)


def function(name: str) -> Callable[..., Call | None]:
    """``torch.softmax``."""

    def ours(input: Any, dim: Any, dtype: Any = None, *, out: Any = None) -> Call | None:
        return _weights(name, input, dim, dtype, out)

    return ours


def method(name: str) -> Callable[..., Call | None]:
    """``torch.Tensor.softmax``."""

    def ours(input: Any, /, dim: Any, dtype: Any = None) -> Call | None:
        return _weights(name, input, dim, dtype)

    return ours


def special_softmax(input: Any, dim: Any, dtype: Any = None) -> Call | None:
    return _weights("softmax", input, dim, dtype)


def special_log_softmax(input: Any, dim: Any, *, dtype: Any = None) -> Call | None:
    return _weights("log_softmax", input, dim, dtype)


def functional(name: str) -> Callable[..., Call | None]:
    """``torch.nn.functional.softmax``."""

    def ours(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Call | None:
        if not isinstance(input, Tensor):
            return None
        if dim is not None:
            return _weights(name, input, dim, dtype)
        rank = input.dim()
        warn = partial(_warn_of_implicit_dim, name, rank, _stacklevel)
        return _weights(name, input, 0 if rank in (0, 1, 3) else 1, dtype, first=warn)

    return ours


def logsumexp(input: Any, dim: Any, keepdim: Any = False, *, out: Any = None) -> Call | None:
    if not (are_tensors(input, out) and isinstance(keepdim, bool)):
        return None
    ours = _softmax.logsumexp
    return Call("logsumexp", ours, ours, (input, dims(dim), keepdim), out=out)


def logsumexp_method(input: Any, /, dim: Any, keepdim: Any = False) -> Call | None:
    return logsumexp(input, dim, keepdim)


def _warn_of_implicit_dim(name: str, rank: int, stacklevel: int) -> None:
    """Warns as torch does, of the line that torch would name."""
    if not is_dynamo_compiling():
        # This frame stands where stock has that of the function.
        stacklevel += frames_of_patches(getattr(F, name)) - 1
    F._get_softmax_dim(name, rank, stacklevel)


def frames_of_patches(function: Callable[..., Any]) -> int:
    """How many frames a patch has put on top of the caller of a function that it replaces."""
    stock = getattr(function, "__wrapped__", function).__code__
    frame, count = sys._getframe(1), 0
    while frame is not None and (
        frame.f_code is stock or frame.f_code.co_filename.startswith(_OF_PATCHES)
    ):
        frame, count = frame.f_back, count + 1  # type: ignore[assignment]
    return count
