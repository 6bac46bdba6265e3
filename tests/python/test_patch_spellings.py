"""Every spelling of the calls that a patch covers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.functional import normalize as imported_normalize
from torch.nn.functional import softmax as imported_softmax
from torch.overrides import TorchFunctionMode

import safeops
from patch_samples import EMPTY, ZERO, hits
from safeops._stock_calls import TABLE
from samples import assert_same_bits

Spelling = Callable[[torch.Tensor], torch.Tensor]

# Spelling -> operator that counts it, and how often for ZERO, or EMPTY.
SPELLINGS: dict[str, tuple[Spelling, str, int]] = {
    "F.normalize": (lambda x: F.normalize(x, dim=-1), "normalize", 2),
    "from import normalize": (lambda x: imported_normalize(x), "normalize", 2),
    "torch.softmax": (lambda x: torch.softmax(x, 1), "softmax", 2),
    "torch.softmax(axis=)": (lambda x: torch.softmax(x, axis=1), "softmax", 2),
    "Tensor.softmax": (lambda x: x.softmax(-1), "softmax", 2),
    "Tensor.softmax(dim=)": (lambda x: x.softmax(dim=0), "softmax", 3),
    "special.softmax": (lambda x: torch.special.softmax(x, 1), "softmax", 2),
    "F.softmax": (lambda x: F.softmax(x, dim=1), "softmax", 2),
    "F.softmax(dtype=)": (lambda x: F.softmax(x, 1, dtype=torch.float64), "softmax", 2),
    "from import softmax": (lambda x: imported_softmax(x, 1), "softmax", 2),
    "F.softmin": (lambda x: F.softmin(-x, 1), "softmax", 2),
    "nn.Softmax": (nn.Softmax(1), "softmax", 2),
    "nn.Softmin": (lambda x: nn.Softmin(1)(-x), "softmax", 2),
    "nn.Softmax2d": (lambda x: nn.Softmax2d()(x.view(2, 3, 1, 1)), "softmax", 2),
    "torch.log_softmax": (lambda x: torch.log_softmax(x, 1), "log_softmax", 2),
    "Tensor.log_softmax": (lambda x: x.log_softmax(1), "log_softmax", 2),
    "special.log_softmax": (lambda x: torch.special.log_softmax(x, 1), "log_softmax", 2),
    "F.log_softmax": (lambda x: F.log_softmax(x, 1), "log_softmax", 2),
    "nn.LogSoftmax": (nn.LogSoftmax(1), "log_softmax", 2),
    "torch.logsumexp": (lambda x: torch.logsumexp(x, (0, 1)), "logsumexp", 1),
    "torch.logsumexp(axis=, keepdims=)": (
        lambda x: torch.logsumexp(x, axis=1, keepdims=True),
        "logsumexp",
        2,
    ),
    "Tensor.logsumexp": (lambda x: x.logsumexp(1), "logsumexp", 2),
    "special.logsumexp": (lambda x: torch.special.logsumexp(x, 1), "logsumexp", 2),
    "torch.masked.softmax": (
        lambda x: torch.masked.softmax(x, 1, mask=torch.ones(2, 3, dtype=torch.bool)),
        "softmax",
        2,
    ),
    "torch.div": (lambda x: torch.div(x, x), "div", 6),
    "torch.div(x1=, x2=)": (lambda x: torch.div(x1=x, x2=x), "div", 6),
    "torch.div(number, tensor)": (lambda x: torch.div(2, x), "div", 6),
    "torch.divide": (lambda x: torch.divide(x, 0, rounding_mode="trunc"), "div", 6),
    "torch.true_divide": (lambda x: torch.true_divide(x, x), "div", 6),
    "torch.floor_divide": (lambda x: torch.floor_divide(x, x), "div", 6),
    "Tensor.div": (lambda x: x.div(0.0), "div", 6),
    "Tensor.divide": (lambda x: x.divide(x, rounding_mode="floor"), "div", 6),
    "Tensor.true_divide": (lambda x: x.true_divide(x), "div", 6),
    "Tensor.floor_divide": (lambda x: x.floor_divide(x), "div", 6),
    "Tensor.div_": (lambda x: x.clone().div_(x), "div", 6),
    "Tensor.divide_": (lambda x: x.clone().divide_(x), "div", 6),
    "Tensor.true_divide_": (lambda x: x.clone().true_divide_(x), "div", 6),
    "Tensor.floor_divide_": (lambda x: x.clone().floor_divide_(x), "div", 6),
    "x / y": (lambda x: x / x, "div", 6),
    "1 / x": (lambda x: 1 / x, "div", 6),
    "x // y": (lambda x: x // x, "div", 6),
    "1 // x": (lambda x: 1 // x, "div", 6),
    "x /= y": (lambda x: operator.itruediv(x.clone(), x), "div", 6),
    "x //= y": (lambda x: operator.ifloordiv(x.clone(), x), "div", 6),
    "Tensor.__truediv__": (lambda x: torch.Tensor.__truediv__(x, x), "div", 6),
    "Tensor.__rtruediv__": (lambda x: x.__rtruediv__(1), "div", 6),
    "torch.reciprocal": (torch.reciprocal, "reciprocal", 6),
    "Tensor.reciprocal": (lambda x: x.reciprocal(), "reciprocal", 6),
    "Tensor.reciprocal_": (lambda x: x.clone().reciprocal_(), "reciprocal", 6),
    "torch.reciprocal_": (lambda x: torch.reciprocal_(x.clone()), "reciprocal", 6),
    "x ** -1": (lambda x: x**-1, "reciprocal", 6),
    "x ** -2.0": (lambda x: x**-2.0, "reciprocal", 6),
    "x ** -0.5": (lambda x: x**-0.5, "rsqrt", 6),
    "x **= -2": (lambda x: operator.ipow(x.clone(), -2), "reciprocal", 6),
    "torch.pow": (lambda x: torch.pow(x, -0.5), "rsqrt", 6),
    "torch.pow(exponent=)": (lambda x: torch.pow(x, exponent=-1), "reciprocal", 6),
    "Tensor.pow": (lambda x: x.pow(-1.0), "reciprocal", 6),
    "Tensor.pow_": (lambda x: x.clone().pow_(-1), "reciprocal", 6),
    "torch.rsqrt": (torch.rsqrt, "rsqrt", 6),
    "Tensor.rsqrt_": (lambda x: x.clone().rsqrt_(), "rsqrt", 6),
    "torch.sqrt": (lambda x: torch.sqrt(x - 1), "sqrt", 6),
    "Tensor.sqrt_": (lambda x: (x - 1).sqrt_(), "sqrt", 6),
    "x ** 0.5": (lambda x: (x - 1) ** 0.5, "sqrt", 6),
    "torch.log": (torch.log, "log", 6),
    "Tensor.log": (lambda x: x.log(), "log", 6),
    "Tensor.log_": (lambda x: x.clone().log_(), "log", 6),
}


def argument(operator: str) -> torch.Tensor:
    return EMPTY if operator in ("softmax", "log_softmax", "logsumexp") else ZERO


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_reaches_ours(spelling: str) -> None:
    function, name, expected = SPELLINGS[spelling]
    x = argument(name)
    for patch in (safeops.patch(policy="zero"), safeops.patch(name, "zero")):
        with patch:
            y = function(x)
        assert hits() == {name: expected}
        assert not y.isnan().any()
    with safeops.patch(observe=True):
        y = function(x)
    assert hits() == {name: expected}
    assert_same_bits(y, function(x))
    others = set(safeops._library.OPERATORS) - {name}
    with safeops.patch(others, policy="zero"):
        assert_same_bits(function(x), y)
    assert hits() == {}


def test_every_entry_of_the_table_is_spelled() -> None:
    class Names(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[Any] = set()

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.add(func)
            return func(*args, **(kwargs or {}))

    with Names() as names:
        for function, name, _ in SPELLINGS.values():
            function(argument(name).clone())
    missing = {
        stock
        for stock in TABLE
        if stock not in names.seen
        # Slots of operators: torch hands over Tensor.div and the like in their place.
        and stock not in (torch.Tensor.__truediv__, torch.Tensor.__div__, torch.Tensor.__idiv__)
        and stock not in (torch.Tensor.__itruediv__, torch.Tensor.__ifloordiv__)
    }
    simple = ("rsqrt", "rsqrt_", "sqrt", "sqrt_", "log_", "divide")
    assert {stock.__name__ for stock in missing} <= set(simple)
