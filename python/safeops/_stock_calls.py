"""Which call of ours stands for which call of PyTorch.

`TABLE` is keyed by the function, method or operator as a torch function mode receives it. Each
entry reads the arguments by torch's own signature and names the call of ours that they make, or
none: then the stock function runs, so that what it refuses is refused in its own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from safeops import _division, _normalize, _roots, _softmax
from safeops import _stock_division as division
from safeops import _stock_rows as rows
from safeops._stock_call import Call, StockCall

_Entry = tuple[Callable[..., Any], StockCall]


def _row_entries() -> Iterator[_Entry]:
    yield F.normalize, StockCall(("normalize",), rows.normalize, parsed=False)
    for name in ("softmax", "log_softmax", "softmin"):
        counted = ("log_softmax" if name == "log_softmax" else "softmax",)
        yield getattr(F, name), StockCall(counted, rows.functional(name), parsed=False)
        if name != "softmin":
            yield getattr(torch, name), StockCall(counted, rows.function(name))
            yield getattr(Tensor, name), StockCall(counted, rows.method(name))
    yield torch.special.softmax, StockCall(("softmax",), rows.special_softmax)
    yield torch.special.log_softmax, StockCall(("log_softmax",), rows.special_log_softmax)
    yield torch.logsumexp, StockCall(("logsumexp",), rows.logsumexp)
    yield torch.special.logsumexp, StockCall(("logsumexp",), rows.logsumexp)
    yield Tensor.logsumexp, StockCall(("logsumexp",), rows.logsumexp_method)


_QUOTIENTS: tuple[tuple[Callable[..., Call | None], tuple[Callable[..., Any], ...]], ...] = (
    (division.div, (torch.div, torch.divide)),
    (division.div_method, (Tensor.div, Tensor.divide)),
    (division.div_in_place, (Tensor.div_, Tensor.divide_)),
    (division.true_divide, (torch.true_divide,)),
    (
        division.true_divide_method,
        (Tensor.true_divide, Tensor.__truediv__, Tensor.__div__),
    ),
    (
        division.true_divide_in_place,
        (Tensor.true_divide_, Tensor.__itruediv__, Tensor.__idiv__),
    ),
    (division.true_divide_reflected, (Tensor.__rtruediv__, Tensor.__rdiv__)),
    (division.floor_divide, (torch.floor_divide,)),
    (division.floor_divide_method, (Tensor.floor_divide, Tensor.__floordiv__)),
    (division.floor_divide_in_place, (Tensor.floor_divide_, Tensor.__ifloordiv__)),
    (division.floor_divide_reflected, (Tensor.__rfloordiv__,)),
)


def _element_entries() -> Iterator[_Entry]:
    for ours, stocks in _QUOTIENTS:
        for stock in stocks:
            yield stock, StockCall(("div",), ours)
    for name in ("reciprocal", "rsqrt", "sqrt", "log"):
        yield getattr(torch, name), StockCall((name,), division.function(name))
        yield getattr(Tensor, name), StockCall((name,), division.method(name))
        for place in (torch, Tensor):
            yield getattr(place, f"{name}_"), StockCall((name,), division.in_place(name))
    powers = division.POWERS
    yield torch.pow, StockCall(powers, division.power)
    for stock in (Tensor.pow, Tensor.__pow__):
        yield stock, StockCall(powers, division.power_method)
    for stock in (Tensor.pow_, Tensor.__ipow__):
        yield stock, StockCall(powers, division.power_in_place)


TABLE: dict[Callable[..., Any], StockCall] = {**dict(_row_entries()), **dict(_element_entries())}

# Those that are attributes of torch.nn.functional, by name.
FUNCTIONAL = {name: getattr(F, name) for name in ("normalize", "softmax", "log_softmax", "softmin")}

# Our own functions, which a mode receives as themselves: under which name they count, and the one
# out of place that takes the same arguments.
DIRECT: dict[Callable[..., Any], tuple[str, Callable[..., Tensor]]] = {
    _normalize.normalize: ("normalize", _normalize.normalize),
    _softmax.softmax: ("softmax", _softmax.softmax),
    _softmax.softmin: ("softmax", _softmax.softmin),
    _softmax.log_softmax: ("log_softmax", _softmax.log_softmax),
    _softmax.logsumexp: ("logsumexp", _softmax.logsumexp),
    **dict.fromkeys(
        (_division.div, _division.div_, _division.true_divide, _division.true_divide_),
        ("div", _division.div),
    ),
    **dict.fromkeys(
        (_division.reciprocal, _division.reciprocal_), ("reciprocal", _division.reciprocal)
    ),
    **dict.fromkeys((_roots.rsqrt, _roots.rsqrt_), ("rsqrt", _roots.rsqrt)),
    **dict.fromkeys((_roots.sqrt, _roots.sqrt_), ("sqrt", _roots.sqrt)),
    **dict.fromkeys((_roots.log, _roots.log_), ("log", _roots.log)),
}
