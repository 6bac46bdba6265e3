"""Functions of ``torch.nn.functional`` that are replaced while a patch is in force.

The body of ``F.multi_head_attention_forward``, which no mode sees into, finds its softmax there.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch._C import _len_torch_function_stack
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter
from torch.overrides import _get_current_function_mode_stack

from safeops import _compiled_patches, _patch_doors
from safeops._patch_mode import Calls, Mode, Stock, answer_compiled, call_stock, covering
from safeops._stock_calls import FUNCTIONAL, TABLE


def _is_plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the body of a stock function neither hands itself over nor warns of its caller."""
    return (
        len(args) in (1, 2)
        and type(args[0]) in (Tensor, Parameter)
        and (type(args[-1]) is int or kwargs.get("dim") is not None)
        and kwargs.get("out") is None
    )


def _replacement(name: str, stock: Stock) -> Stock:
    reading = TABLE[stock]
    operators = frozenset(reading.operators)

    @functools.wraps(stock)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            if getattr(_compiled_patches, name):
                return answer_compiled(stock, reading, operators, False, args, kwargs)
            return stock(*args, **kwargs)
        mode = covering(stock)
        if mode is None and not _len_torch_function_stack() and _is_plain(args, kwargs):
            return stock(*args, **kwargs)
        stack = _get_current_function_mode_stack()
        if mode is not None and not any(mode is other for other in stack):
            # Inductor traces the patterns that it looks for once, for the life of the process.
            if not sys._getframe(1).f_globals.get("__name__", "").startswith("torch._inductor"):
                return mode.answer(stock, reading, args, kwargs)
        elif stack and type(stack[-1]) is Mode:
            return stock(*args, **kwargs)
        return call_stock(stock, args, kwargs)

    # TorchScript compiles the source of what it finds.
    replacement.__prepare_scriptable__ = lambda: stock  # type: ignore[attr-defined]
    return replacement


CALLS: Calls = {stock: (stock, reading) for stock, reading in TABLE.items()}

for _name, _stock in FUNCTIONAL.items():
    _ours = _replacement(_name, _stock)
    _patch_doors.add(F, _name, _ours)
    # The body of a stock function hands itself over by what the module holds under its name.
    CALLS[_ours] = CALLS[_stock]


def mirror_for_compiled_code() -> None:
    """Says what is in force here as compiled code reads it."""
    for name, stock in FUNCTIONAL.items():
        mode = covering(stock)
        setattr(_compiled_patches, name, mode is not None and not mode.observe)
