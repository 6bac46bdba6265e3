"""Counters as curves in TensorBoard."""

from __future__ import annotations

import os
from typing import Any

from safeops import _library
from safeops._events import step as current_step
from safeops.sinks._optional import import_for


class TensorBoardTotals:
    """Writes the counters as scalars ``safeops/OPERATOR/CONDITION/DIRECTION``.

    They are totals since the last reset, so a flat curve means that nothing was met. What compiled
    code and C++ callers met is in them.

    Args:
        writer: a ``torch.utils.tensorboard.SummaryWriter``, anything else with ``add_scalar``, or
            the directory for a writer of its own.

    Raises:
        ImportError: for a directory without ``tensorboard`` (``pip install safeops[tensorboard]``).
        TypeError: for anything else.

    Example:
        >>> curves = safeops.sinks.TensorBoardTotals("runs/1")
        >>> for step, batch in enumerate(loader):
        ...     train(batch)
        ...     curves.write(step)
        >>> curves.close()
    """

    def __init__(self, writer: Any) -> None:
        self._owned = isinstance(writer, str | os.PathLike)
        if self._owned:
            board = import_for("TensorBoardTotals", "torch.utils.tensorboard", "tensorboard")
            writer = board.SummaryWriter(os.fspath(writer))
        elif not hasattr(writer, "add_scalar"):
            raise TypeError(
                f"safeops.sinks.TensorBoardTotals: writer must have add_scalar, got "
                f"{type(writer).__name__}; pass a SummaryWriter or a directory"
            )
        self._writer = writer
        self._totals: dict[str, int] = {}

    def write(self, step: int | None = None) -> None:
        """Adds a point to every curve.

        Args:
            step: its place; :func:`safeops.diagnostics.step` if left out.
        """
        if step is None:
            step = current_step()
        # A curve that has begun goes on, also where a reset has set it to 0.
        self._totals = dict.fromkeys(self._totals, 0)
        for record in _library.records(wait=False):
            names = (
                _library.OPERATORS[record.op],
                _library.CONDITIONS[record.condition],
                _library.DIRECTIONS[record.direction],
            )
            tag = "/".join(("safeops", *names))
            self._totals[tag] = self._totals.get(tag, 0) + record.count
        for tag, total in self._totals.items():
            self._writer.add_scalar(tag, total, step)

    def close(self) -> None:
        """Closes the writer if it was made here."""
        if self._owned:
            self._writer.close()
