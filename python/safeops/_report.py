"""What an audit found: plain data, and its views as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safeops import _remedies, _report_text
from safeops._events import Frame
from safeops._remedies import Remedy
from safeops._steps import HitsPerStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class AuditedLine:
    """One line of the program that met one condition of one operator.

    Attributes:
        filename, lineno, function: the line, as in a traceback.
        source: its text, stripped; empty where it cannot be read.
        operator: name of the operator, ``"softmax"``.
        condition: what was met, ``"empty_row"``. A pass, forward or backward, that met several
            conditions is counted as a whole under the one that most of its rows met.
        policies: the policies in force at the calls that hit, ``"stock"`` where nobody chose.
        forward: rows (elements, for element-wise operators) hit by forward calls, most of them
            by `condition`.
        rows: rows that all forward calls of this operator on this line saw, hit or not.
        calls: forward calls that hit.
        all_calls: all forward calls of this operator on this line.
        backward: rows hit by backward passes of the line, most of them by `condition`.
        first_step, last_step: optimizer steps completed before the first and the last hit.
        first_row: lowest row of the first call that hit.
        largest_gradient: the largest magnitude that a call of this operator on this line which
            hit passed on in its gradients, whatever the condition, regular rows included; NaN if
            one was NaN, None where no backward pass was seen.
        shapes, dtypes: of the inputs of calls that hit, the first eight different ones.
        modules: paths of the ``nn.Module`` that called, the first eight different ones.
        stack: frames that led to the first hit, outermost first.
        hits_per_step: rows hit in both directions over the steps.
    """

    filename: str
    lineno: int
    function: str
    source: str
    operator: str
    condition: str
    policies: tuple[str, ...]
    forward: int
    rows: int
    calls: int
    all_calls: int
    backward: int
    first_step: int
    last_step: int
    first_row: int
    largest_gradient: float | None
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    modules: tuple[str, ...]
    stack: tuple[Frame, ...]
    hits_per_step: HitsPerStep

    @property
    def remedies(self) -> dict[str, Remedy]:
        """What each policy does at such a row."""
        return _remedies.remedies(self.operator, self.condition)

    @property
    def suggestion(self) -> str:
        """What to think of it, and to do about it."""
        return _remedies.suggestion(
            self.operator, self.condition, self.policies, self.backward, self.largest_gradient
        )


@dataclass(frozen=True, slots=True)
class Unattributed:
    """Hits that belong to no line: of compiled graphs, of C++ callers, of other threads."""

    operator: str
    conditions: tuple[str, ...]
    forward: int
    backward: int


@dataclass(frozen=True, slots=True)
class Notice:
    """How often a condition was noticed that changes no value, in both directions."""

    operator: str
    condition: str
    count: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The data of a report, at one moment.

    Attributes:
        policy: the policy of the audit; None where it observed.
        operators: the operators that it covered.
        sites: lines that hit, in the order in which they were first met.
        unattributed: hits without a line.
        notices: what was noticed.
        steps: optimizer steps completed.
        rows, calls, lines: how much was seen: rows and calls of covered operators, and the lines
            that made them.
        versions: of safeops, torch and Python.
    """

    policy: str | None
    operators: tuple[str, ...]
    sites: tuple[AuditedLine, ...]
    unattributed: tuple[Unattributed, ...]
    notices: tuple[Notice, ...]
    steps: int
    rows: int
    calls: int
    lines: int
    versions: Mapping[str, str]


class Report:
    """What a :class:`safeops.audit` found.

    It may be read at any time inside the block, and is complete after it. ``print(report)`` shows
    a table, :meth:`to_json`, :meth:`to_html` and :meth:`plot` other views; in a notebook it shows
    itself. The data are attributes, those of one moment together in ``contents``:

    Attributes:
        policy: the policy of the audit; None where it observed.
        operators: names of the operators covered.
        sites: lines that hit, in the order in which they were first met: file, line, operator,
            condition, rows hit and seen, steps, largest gradient, remedies, suggestion.
        unattributed: hits of compiled graphs, C++ callers and other threads, which have no line.
        notices: totals of ``nonfinite_input``, ``rescued`` and ``finite_min_row``.
        steps: optimizer steps completed; those of several optimizers that take turns count once.
        rows, calls, lines: how many rows, calls and lines of the program were seen.
        versions: of safeops, torch and Python.

    Example:
        >>> with safeops.audit() as report:
        ...     y = torch.nn.functional.normalize(torch.zeros(2, 3), dim=-1)
        >>> [(site.operator, site.condition, site.forward) for site in report.sites]
        [('normalize', 'zero_norm', 2)]
    """

    def __init__(self, contents: Contents | Callable[[], Contents]) -> None:
        self._contents = contents

    @property
    def contents(self) -> Contents:
        return self._contents() if callable(self._contents) else self._contents

    def freeze(self) -> None:
        """Keeps what was found so far as all that there is."""
        self._contents = self.contents

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in Contents.__dataclass_fields__:
            raise AttributeError(f"'Report' object has no attribute {name!r}")
        return getattr(self.contents, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *Contents.__dataclass_fields__]

    def __getstate__(self) -> Contents:
        return self.contents

    def __setstate__(self, contents: Contents) -> None:
        self._contents = contents

    def __str__(self) -> str:
        columns = shutil.get_terminal_size((_report_text.MOST_WIDTH, 24)).columns
        width = min(max(columns, _report_text.LEAST_WIDTH), _report_text.MOST_WIDTH)
        return _report_text.text(self.contents, width)

    def __repr__(self) -> str:
        contents = self.contents
        return f"<safeops.Report: {len(contents.sites)} sites, {contents.steps} steps>"

    def to_json(self, indent: int | None = 2) -> str:
        """The report as JSON.

        Args:
            indent: spaces per level; None puts everything on one line.

        Returns:
            An object with the attributes of the report as keys and ``"format":
            "safeops.audit/1"``. Gradients that are not finite are the strings ``"inf"`` and
            ``"nan"``, which JSON has no numbers for.
        """
        data = {"format": "safeops.audit/1", **_plain(self.contents)}
        for entry, site in zip(data["sites"], self.contents.sites, strict=False):
            entry["remedies"] = {name: _plain(remedy) for name, remedy in site.remedies.items()}
            entry["suggestion"] = site.suggestion
        return json.dumps(data, indent=indent, allow_nan=False)

    def to_html(self) -> str:
        """The report as one page of HTML that needs nothing else, for a file or a mail.

        Plots are part of it if matplotlib is installed (``pip install safeops[report]``).
        """
        from safeops import _report_page

        return _report_page.page(self.contents)

    def _repr_html_(self) -> str:
        from safeops import _report_page

        return _report_page.fragment(self.contents)

    def plot(self, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
        """Plots rows hit over the optimizer steps, and per line.

        Args:
            axes: two axes of matplotlib to draw on; None makes a figure of pyplot's.

        Returns:
            The two axes.

        Raises:
            ImportError: without matplotlib.

        Example:
            >>> report.plot()
            >>> plt.savefig("hits.png")
        """
        from safeops import _report_page

        return _report_page.plot(self.contents, axes)


def _plain(value: Any) -> Any:
    """Dataclasses, tuples and floats as what JSON has."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
