"""Calls that meet singular rows, and what they tell about the policy in force."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import torch

import safeops

POLICIES = ("stock", "nan", "epsilon", "zero", "raise")


def rows(zero: int, regular: int = 2, **options) -> torch.Tensor:
    """Regular rows, then zero rows."""
    return torch.cat([torch.ones(regular, 3, **options), torch.zeros(zero, 3, **options)])


def here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


def effective_policy(
    function: Callable[..., torch.Tensor] = safeops.normalize, **arguments: object
) -> str:
    """Tells the policies apart by the gradient of a float16 zero vector."""
    x = torch.zeros(3, dtype=torch.float16, requires_grad=True)
    try:
        y = function(x, dim=0, **arguments)
    except ValueError as error:
        assert "policy 'raise' met 1 singular row" in str(error)
        return "raise"
    y.sum().backward()
    gradient = x.grad[0].item()
    if math.isnan(gradient):
        return "nan"
    return {math.inf: "stock", 2.0**14: "epsilon", 0.0: "zero"}[gradient]


def effective_eps(**arguments: float) -> float:
    """The reciprocal of the gradient of a floored float64 zero vector."""
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    safeops.normalize(x, dim=0, policy="epsilon", **arguments).sum().backward()
    return 1 / x.grad[0].item()
