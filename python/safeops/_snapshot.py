"""The counters and call lines of one moment."""

from __future__ import annotations

from dataclasses import dataclass

from safeops import _call_lines, _library
from safeops._events import Frame


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
        module: at level 3 the path of the ``nn.Module`` that called,
            ``"Transformer.layers.0.attention"``: a line reached through several modules is several
            sites. None below level 3 and outside modules.
        stack: at level 3 the frames that led to the line when it was first met, outermost first.
    """

    filename: str
    lineno: int
    function: str
    operator: str
    condition: str
    forward: int
    backward: int
    module: str | None = None
    stack: tuple[Frame, ...] | None = None


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

    Waits for the current CUDA streams of this thread. What other streams are at work on is read the
    next time; ``torch.cuda.synchronize()`` before it leaves nothing out.

    Publishes, as the next call of an operator would, what backward passes hit since the last one,
    and warns for lines that hit in backward alone while nobody had chosen a policy.
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
            line.module,
            line.stack,
        )
        for line in _call_lines.lines_that_hit()
    )
    return Snapshot(tuple(_record(raw) for raw in _library.records()), sites)
