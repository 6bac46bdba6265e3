"""Calls that publish events, and listeners to them."""

from __future__ import annotations

import torch

import safeops
from safeops import diagnostics
from singular_calls import rows

listen = diagnostics.add_sink


def hit(count: int = 2) -> torch.Tensor:
    """A forward call that meets `count` zero rows of `count` + 2."""
    return safeops.normalize(rows(count), dim=-1, policy="zero")
