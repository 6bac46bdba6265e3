"""The softmax family as modules; they swap with those of ``torch.nn``."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from safeops import _policy
from safeops._softmax import log_softmax, softmax

__all__ = ["LogSoftmax", "Softmax"]


def _implicit_dim(function: str, rank: int) -> int:
    # In the words of torch, so that filters on its warning go on working.
    warnings.warn(
        f"Implicit dimension choice for {function} has been deprecated. "
        f"Change the call to include dim=X as an argument.",
        stacklevel=5,  # past two frames of this file and two of torch.nn.Module
    )
    return 0 if rank in (0, 1, 3) else 1


class _OverRows(torch.nn.Module):
    _function: Callable[..., Tensor]

    def __init__(self, dim: int | None = None, policy: str | None = None) -> None:
        super().__init__()
        if policy is not None:
            _policy.check_policy(policy, f"safeops.nn.{type(self).__name__}: policy")
        self.dim = dim
        self.policy = policy

    def forward(self, input: Tensor, where: Tensor | None = None) -> Tensor:
        dim = self.dim
        if dim is None:
            dim = _implicit_dim(self._function.__name__, input.dim())
        return self._function(input, dim, where=where, policy=self.policy)

    def extra_repr(self) -> str:
        policy = "" if self.policy is None else f", policy={self.policy!r}"
        return f"dim={self.dim}{policy}"


class Softmax(_OverRows):
    """Applies :func:`safeops.softmax`; swaps with ``torch.nn.Softmax``.

    Args:
        dim: dim of a row. None means dim 0 of an input with 0, 1 or 3 dims and dim 1 of any other,
            with a warning: torch calls that choice deprecated.
        policy: as in :func:`safeops.softmax`. None is resolved at every call.

    Shape:
        ``input`` of any shape; ``where``, a boolean tensor that broadcasts to it, False where an
        element takes no part; the output has the shape of ``input``.

    Raises:
        ValueError: for an unknown policy.

    Example:
        >>> attention = safeops.nn.Softmax(dim=-1, policy="zero")
        >>> attention(torch.zeros(2), where=torch.tensor([True, False]))
        tensor([1., 0.])
    """

    _function = staticmethod(softmax)


class LogSoftmax(_OverRows):
    """Applies :func:`safeops.log_softmax`; swaps with ``torch.nn.LogSoftmax``.

    Arguments, shapes and errors are those of :class:`Softmax`.

    Example:
        >>> safeops.nn.LogSoftmax(dim=-1)(torch.zeros(2))
        tensor([-0.6931, -0.6931])
    """

    _function = staticmethod(log_softmax)
