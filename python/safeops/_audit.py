"""``safeops.audit``: a block of the program under watch, and the report of what it met."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from safeops import _events, _library, _patch
from safeops._recorder import Recorder
from safeops._report import Report

_LEVEL = 3

# The audits of the process that run, innermost last, what it had set before the first of them, and
# the step that they have set since. Another step is the program's own, which stays.
_running: list[Recorder] = []
_set_before: tuple[int, int | None] = (0, None)
_own_step: int | None = None
_lock = threading.RLock()


def _begin(recorder: Recorder) -> None:
    global _set_before
    with _lock:
        if not _running:
            _set_before = _library.level(), _events.step()
            _set_step(0)
        else:
            _set_own_step(0)
        _running.append(recorder)
        _library.set_level(_LEVEL)


def _stepped(recorder: Recorder) -> None:
    with _lock:
        if _running[-1:] == [recorder]:
            _set_own_step(recorder.steps.steps)


def _end(recorder: Recorder) -> None:
    with _lock:
        if recorder not in _running:  # in a child of fork
            return
        _running.remove(recorder)
        level, step = (_LEVEL, _running[-1].steps.steps) if _running else _set_before
        _library.set_level(level)
        _set_own_step(step)


def _set_own_step(step: int | None) -> None:
    if _events.step() == _own_step:
        _set_step(step)


def _set_step(step: int | None) -> None:
    global _own_step
    _own_step = step
    _events.set_step(step)


def _forget_after_fork() -> None:
    """A child counts its own, and threads that it does not have may have held the locks."""
    global _lock
    _lock = threading.RLock()
    if _running:
        _library.set_level(_set_before[0])
    for recorder in _running:
        recorder.lock, recorder.open = threading.RLock(), False
        recorder.steps.remove()
    _running.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


class audit:
    """Watches a block and reports which of its lines met singular rows, and what came of it.

    Without a policy nothing changes, not a bit: the stock functions run, and their inputs are
    looked at (``safeops.patch(observe=True)``). With one the block runs under
    ``safeops.patch(policy=...)``, so the report shows what is left under that policy.

    For every line that hit, the report has operator, condition, rows hit and seen in forward and
    backward, first and last optimizer step, the largest gradient it passed on, shapes, dtypes, the
    ``nn.Module``, what each policy would do there, and a suggestion.

    It belongs to the thread that entered it. Not observed are compiled code, other threads, worker
    processes and what ``safeops.patch.unreachable()`` lists; under a policy the hits of compiled
    code, and always those of direct calls in C++ and other threads, are counted without a line.
    Backward hits that arrive after the block do not count. Code in a checkpoint counts again when
    it is recomputed. Copies of the inputs of calls that hit wait for the backward pass, up to
    1 GiB, as under ``safeops.patch(observe=True)``. The largest gradient is taken over what the
    operator returned for all of its inputs, before sums over broadcast dims. Warnings that PyTorch
    gives in C++ may name a file of safeops as their place.

    While it runs, the diagnostics level is 3, which the program must not lower to 0, and
    :func:`safeops.diagnostics.step` is the number of completed optimizer steps, unless the program
    sets a step itself; the level, and the step if it was not the program's, are set back at the
    end. Audits nest.

    Args:
        policy: ``"stock"``, ``"nan"``, ``"epsilon"``, ``"zero"`` or ``"raise"``: the policy that
            the block runs under; None observes.
        operators: names of the operators to watch, ``["normalize", "softmax"]``; None means all.

    Returns:
        As a context manager, a :class:`safeops.Report`, which may be read at any time.

    Raises:
        ValueError: for an unknown policy or operator.

    Example:
        >>> with safeops.audit() as report:
        ...     train()
        >>> print(report)
        >>> pathlib.Path("report.html").write_text(report.to_html())
    """

    def __init__(self, policy: str | None = None, operators: Sequence[str] | None = None) -> None:
        covered = _patch.watched(operators, policy, None).operators
        self._operators = tuple(name for name in _library.OPERATORS if name in covered)
        self._policy = policy
        # By thread: what one has entered it leaves itself.
        self._entered: dict[int, list[ExitStack]] = {}

    def __enter__(self) -> Report:
        recorder = Recorder(self._policy, self._operators, _stepped)
        report = Report(recorder.contents)
        with ExitStack() as stack:
            stack.callback(recorder.steps.remove)
            _begin(recorder)
            stack.callback(_end, recorder)
            stack.callback(_events.add_sink(recorder, synchronous=True).remove)
            stack.callback(_finish, recorder, report)
            stack.enter_context(_patch.watched(self._operators, self._policy, recorder))
            here = self._entered.setdefault(threading.get_ident(), [])
            here.append(stack.pop_all())
        return report

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered[threading.get_ident()].pop().__exit__(kind, error, trace)


def _finish(recorder: Recorder, report: Report) -> None:
    report.freeze()
    recorder.open = False
