"""What a running audit sees: covered calls, events, gradients, steps."""

from __future__ import annotations

import linecache
import math
import platform
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from safeops import _call_lines, _call_stack, _library
from safeops._call_lines import CallLine
from safeops._events import Event
from safeops._report import AuditedLine, Contents, Notice, Unattributed
from safeops._steps import OptimizerSteps, StepHistogram

_KEPT_EXAMPLES = 8

_Line = tuple[str, int, str]  # file, number, operator


class _Seen:
    """What forward calls of one line saw, whether they hit or not."""

    __slots__ = ("calls", "rows")

    def __init__(self) -> None:
        self.rows = self.calls = 0

    def add(self, rows: int) -> None:
        self.rows += rows
        self.calls += 1


class _Hits:
    """What one line met of one condition."""

    def __init__(self, first: Event, step: int) -> None:
        self.first = first
        self.forward = self.backward = self.calls = 0
        self.first_step = self.last_step = step
        self.policies: dict[str, None] = {}
        self.shapes: dict[tuple[int, ...], None] = {}
        self.dtypes: dict[str, None] = {}
        self.modules: dict[str, None] = {}
        self.per_step = StepHistogram()

    def add(self, event: Event, step: int) -> None:
        if event.direction == "forward":
            self.forward += event.count
            self.calls += 1
        else:
            self.backward += event.count
        self.last_step = step
        self.per_step.add(step, event.count)
        _keep(self.policies, event.policy)
        _keep(self.shapes, event.shape)
        _keep(self.dtypes, event.dtype)
        if event.module is not None:
            _keep(self.modules, event.module)


def _keep(examples: dict[Any, None], example: Any) -> None:
    if len(examples) < _KEPT_EXAMPLES:
        examples[example] = None


class _LastHit(threading.local):
    """The last forward hit that this thread was told of."""

    line: _Line | None = None


class Recorder:
    """Collects what a running audit sees: it is the watcher of its patch, and a sink of events.

    Events of other threads are not for it, but for those of lines that its patch has seen: a mode
    belongs to the thread that entered it, events to the process.

    Args:
        policy, operators: those of the audit, for its report.
        stepped: is told when the number of completed optimizer steps has grown.
    """

    def __init__(
        self,
        policy: str | None,
        operators: tuple[str, ...],
        stepped: Callable[[Recorder], None],
    ) -> None:
        self._policy, self._operators = policy, operators
        # Reentrant: a destructor that runs while the lock is held may call an operator.
        self.lock = threading.RLock()
        self.open = True
        self._seen: dict[_Line, _Seen] = {}
        self._hits: dict[tuple[_Line, str], _Hits] = {}
        # By line alone: forward and backward may have met most of different conditions.
        self._gradients: dict[_Line, float] = {}
        self._attributed: Counter[tuple[str, str]] = Counter()
        self._last = _LastHit()
        self._thread = threading.get_ident()
        self._before = _counters()
        self.steps = OptimizerSteps(before=join, after=lambda _: stepped(self))

    def __call__(self, event: Event) -> None:
        """Takes an event, in the thread of the call that hit."""
        line = event.filename, event.lineno, event.operator
        step = self.steps.steps
        with self.lock:
            if event.thread != self._thread and line not in self._seen:
                return
            self._attributed[event.operator, event.direction] += event.count
            key = line, event.condition
            if key not in self._hits:
                self._hits[key] = _Hits(event, step)
            self._hits[key].add(event, step)
            if event.direction == "forward":
                # Of a call in another thread nothing else is seen.
                self._seen.setdefault(line, _Seen()).add(event.rows)
        if event.direction == "forward":
            self._last.line = line

    def saw(self, operator: str, rows: int, line: CallLine | None, node: Node | None) -> None:
        """Takes a covered call, after it ran; see ``_patch_mode.Watcher``."""
        if not self.open:
            return
        if line is None:
            frame = _call_stack.caller()
            key, told = (frame.f_code.co_filename, frame.f_lineno, operator), False
        else:
            key = line.filename, line.lineno, line.operator
            # A call that hit nothing but a slope, the root of 0, has had no event yet.
            told = self._last.line == key
        self._last.line = None
        if not told:
            with self.lock:
                self._seen.setdefault(key, _Seen()).add(rows)
        if node is not None:
            node.register_hook(partial(self._measure, key))

    def _measure(
        self,
        line: _Line,
        gradients: Sequence[Tensor | None],
        incoming: Sequence[Tensor | None],
    ) -> None:
        # Compiled autograd traces hooks. The node may outlive the audit, and its hook with it.
        if torch.compiler.is_compiling() or not self.open:
            return
        for gradient in gradients:
            if gradient is None or gradient.numel() == 0:
                continue
            # Whatever goes wrong, as with a gradient under vmap, must not fail the program.
            with suppress(Exception), torch._C.DisableTorchFunction(), torch.no_grad():
                size = float(torch.linalg.vector_norm(gradient, math.inf))
                with self.lock:
                    self._gradients[line] = _larger(self._gradients.get(line, 0.0), size)

    def contents(self) -> Contents:
        """What was found so far."""
        join()
        with self.lock:
            counted = {
                slot: count - before if count >= (before := self._before.get(slot, 0)) else count
                for slot, count in _counters().items()
            }
            return Contents(
                policy=self._policy,
                operators=self._operators,
                sites=tuple(self._site(*key) for key in self._hits),
                unattributed=self._unattributed(counted),
                notices=_notices(counted),
                steps=self.steps.steps,
                rows=sum(seen.rows for seen in self._seen.values()),
                calls=sum(seen.calls for seen in self._seen.values()),
                lines=len({line[:2] for line in self._seen}),
                versions={
                    "safeops": _library.version,
                    "torch": torch.__version__,
                    "python": platform.python_version(),
                },
            )

    def _site(self, line: _Line, condition: str) -> AuditedLine:
        hits = self._hits[line, condition]
        seen = self._seen.get(line) or _Seen()
        filename, lineno, operator = line
        return AuditedLine(
            filename=filename,
            lineno=lineno,
            function=hits.first.function,
            source=linecache.getline(filename, lineno).strip(),
            operator=operator,
            condition=condition,
            policies=tuple(hits.policies),
            forward=hits.forward,
            rows=seen.rows,
            calls=hits.calls,
            all_calls=seen.calls,
            backward=hits.backward,
            first_step=hits.first_step,
            last_step=hits.last_step,
            first_row=hits.first.first_row,
            largest_gradient=self._gradients.get(line),
            shapes=tuple(hits.shapes),
            dtypes=tuple(hits.dtypes),
            modules=tuple(hits.modules),
            stack=hits.first.stack or (),
            hits_per_step=hits.per_step.read(),
        )

    def _unattributed(self, counted: dict[tuple[str, str, str], int]) -> tuple[Unattributed, ...]:
        # An event names the condition that most of its rows met, so conditions cannot be told
        # apart here; operators and directions can.
        found = []
        for operator in _library.OPERATORS:
            hits = {
                (condition, direction): count
                for (name, condition, direction), count in counted.items()
                if name == operator and count and condition in _library.HIT_CONDITIONS
            }
            forward, backward = (
                max(
                    0,
                    sum(count for (_, one), count in hits.items() if one == direction)
                    - self._attributed[operator, direction],
                )
                for direction in ("forward", "backward")
            )
            if forward or backward:
                conditions = tuple(dict.fromkeys(condition for condition, _ in hits))
                found.append(Unattributed(operator, conditions, forward, backward))
        return tuple(found)


def _larger(one: float, other: float) -> float:
    """The larger, NaN before all."""
    return one if math.isnan(one) or one >= other else other


def join() -> None:
    # Without warnings: what the program did not choose is what the report is about.
    _call_lines.join_backward_hits(warn=False)


def _counters() -> dict[tuple[str, str, str], int]:
    """(operator, condition, direction) -> count, over all devices."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for record in _library.records():
        operator, condition = _library.OPERATORS[record.op], _library.CONDITIONS[record.condition]
        counts[operator, condition, _library.DIRECTIONS[record.direction]] += record.count
    return dict(counts)


def _notices(counted: dict[tuple[str, str, str], int]) -> tuple[Notice, ...]:
    totals: Counter[tuple[str, str]] = Counter()
    for (operator, condition, _), count in counted.items():
        if condition not in _library.HIT_CONDITIONS:
            totals[operator, condition] += count
    return tuple(Notice(*key, count) for key, count in totals.items() if count)
