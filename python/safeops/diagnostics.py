"""What the operators met: counters of singular rows and elements, and the lines that met them.

A *hit* is one singular row (or element) met by one execution of a forward or backward kernel. A
*notice* (``nonfinite_input``, ``rescued``, ``finite_min_row``) is counted in the same way, but it
changes no value, never warns and belongs to no line. Hits of compiled graphs and of C++ callers are
counted, and belong to no line either.

Example:
    >>> safeops.diagnostics.reset()
    >>> y = safeops.normalize(torch.zeros(4, 3), policy="zero")
    >>> safeops.diagnostics.snapshot().total(operator="normalize", direction="forward")
    4
"""

from __future__ import annotations

from dataclasses import dataclass

from safeops import _call_lines, _library

__all__ = ["Record", "Site", "Snapshot", "level", "reset", "set_level", "snapshot"]


@dataclass(frozen=True, slots=True)
class Record:
    """One counter that is not zero.

    Attributes:
        operator: name of the operator, ``"softmax"``.
        condition: why the rows were counted, ``"zero_norm"``.
        direction: ``"forward"`` or ``"backward"``.
        device: ``"cpu"`` or ``"cuda"``.
        count: rows since the last reset (elements, for element-wise operators).
        first_row: row of the first hit since the last reset, row-major over the dims kept; element
            of the result for element-wise operators.
        shape: shape of that input at level 2, else None.
        dtype: its dtype as torch prints it without the prefix at level 2, else None.
    """

    operator: str
    condition: str
    direction: str
    device: str
    count: int
    first_row: int
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """One line of the program whose eager calls hit.

    Attributes:
        filename, lineno, function: the line, as in a traceback.
        operator: name of the operator, ``"softmax"``.
        condition: the condition that most rows of the first call that hit there met.
        forward: rows hit by forward calls of this line.
        backward: rows hit by the backward passes of those calls.
    """

    filename: str
    lineno: int
    function: str
    operator: str
    condition: str
    forward: int
    backward: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters and call lines of one moment."""

    records: tuple[Record, ...]
    sites: tuple[Site, ...]

    def total(
        self,
        operator: str | None = None,
        condition: str | None = None,
        direction: str | None = None,
    ) -> int:
        """Sums the records that match every name given.

        Args:
            operator: ``"normalize"``; all operators if left out.
            condition: a hit or a notice by name; all hits and no notice if left out.
            direction: ``"forward"`` or ``"backward"``; both if left out.

        Raises:
            ValueError: for an unknown name.
        """
        _check_name("operator", operator, _library.OPERATORS)
        _check_name("condition", condition, _library.CONDITIONS)
        _check_name("direction", direction, _library.DIRECTIONS)
        conditions = _library.HIT_CONDITIONS if condition is None else {condition}
        return sum(
            record.count
            for record in self.records
            if operator in (None, record.operator)
            and record.condition in conditions
            and direction in (None, record.direction)
        )


def _check_name(argument: str, name: str | None, known: tuple[str, ...]) -> None:
    if name is not None and name not in known:
        raise ValueError(
            f"safeops.diagnostics.Snapshot.total: {argument} must be one of {', '.join(known)}, "
            f"got {name!r}; leave it out to sum over all"
        )


def _record(raw: _library.Record) -> Record:
    return Record(
        operator=_library.OPERATORS[raw.op],
        condition=_library.CONDITIONS[raw.condition],
        direction=_library.DIRECTIONS[raw.direction],
        device=_library.DEVICES[raw.device],
        count=raw.count,
        first_row=raw.first_row,
        shape=_library.shape(raw) if raw.dims >= 0 else None,
        dtype=raw.dtype.decode() or None,
    )


def snapshot() -> Snapshot:
    """Reads all counters and call lines. Never blocks an operator.

    Warns, as the next call of an operator would, for lines that hit in backward alone while nobody
    had chosen a policy.
    """
    sites = tuple(
        Site(
            line.filename,
            line.lineno,
            line.function,
            line.operator,
            line.condition,
            line.forward,
            line.backward,
        )
        for line in _call_lines.lines_that_hit()
    )
    return Snapshot(tuple(_record(raw) for raw in _library.records()), sites)


def reset() -> None:
    """Sets every counter and line to zero and lets every line warn again."""
    _library.reset()
    _call_lines.reset()


def level() -> int:
    """How much is recorded.

    0: nothing, and nothing warns. 1: counters, and the line of eager calls that hit (default). 2:
    also the shape and the dtype of the first offender.
    """
    return int(_library.level())


def set_level(level: int) -> None:
    """Sets how much is recorded, for the whole process; see :func:`level`.

    Raises:
        ValueError: for anything but 0, 1 or 2; nothing is changed.
    """
    if type(level) is not int or not _library.set_level(level):
        raise ValueError(f"safeops.diagnostics.set_level: level must be 0, 1 or 2, got {level!r}")
