"""Which lines of the caller's program met singular rows.

The wrapper of an operator comes here only when the library's hit epoch moved during a call. A
forward call that hit has a serial, the epoch that it set; its line is remembered under that serial,
so that a backward hit, which carries the serial of its forward call, finds the line.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from types import FrameType

import torch

from safeops import _library
from safeops._errors import SingularityError, SingularityWarning

# A serial is needed until its backward pass has run; older ones lose their line, never their count.
_REMEMBERED_CALLS = 16384

_FORWARD = _library.DIRECTIONS.index("forward")
_NOT_THE_CALLER = (
    os.path.dirname(__file__) + os.sep,
    os.path.dirname(torch.__file__) + os.sep,
    contextlib.__file__,
)


@dataclass(slots=True)
class CallLine:
    """One line of the caller's program that called one operator, and the rows it hit."""

    filename: str
    lineno: int
    function: str
    operator: str
    condition: str = ""
    forward: int = 0
    backward: int = 0
    warned: bool = False

    def add(self, hit: _library.Hit) -> None:
        if not self.forward and not self.backward:
            self.condition = _library.CONDITIONS[hit.condition]
        if hit.direction == _FORWARD:
            self.forward += hit.count
        else:
            self.backward += hit.count


# Reentrant: a destructor that runs while the lock is held may call an operator.
_lock = threading.RLock()
_lines: dict[tuple[str, int, str], CallLine] = {}
_line_of_serial: OrderedDict[int, CallLine] = OrderedDict()


def _hit_since(epoch: int) -> _library.Hit | None:
    """The hit of this thread's last call, if it began at `epoch`; other threads move it, too."""
    hit = _library.last_hit()
    if hit is None or hit.direction != _FORWARD or hit.serial <= epoch:
        return None
    return hit


def _caller() -> FrameType:
    """The frame that called the operator: not ours, not torch's, not a torch function mode's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_NOT_THE_CALLER)
        or frame.f_code.co_name == "__torch_function__"
    ):
        frame = frame.f_back
    return frame


def _remember(hit: _library.Hit, frame: FrameType) -> CallLine:
    filename, lineno = frame.f_code.co_filename, frame.f_lineno
    operator = _library.OPERATORS[hit.op]
    with _lock:
        line = _lines.setdefault(
            (filename, lineno, operator),
            CallLine(filename, lineno, frame.f_code.co_name, operator),
        )
        line.add(hit)
        _line_of_serial[hit.serial] = line
        if len(_line_of_serial) > _REMEMBERED_CALLS:
            _line_of_serial.popitem(last=False)
    join_backward_hits()
    return line


def join_backward_hits() -> None:
    """Gives the backward hits that the library holds to the lines of their forward calls."""
    with _lock:
        for hit in _library.take_backward_hits():
            line = _line_of_serial.get(hit.serial)
            if line is not None:
                line.add(hit)


def note_hit(epoch: int, policy: str, stock_gradient: str) -> None:
    """Records the line of the call that began at `epoch` and warns if nobody chose a policy."""
    hit = _hit_since(epoch)
    if hit is None:
        return
    frame = _caller()
    line = _remember(hit, frame)
    if policy:
        return
    with _lock:
        if line.warned:
            return
        line.warned = True
    try:
        # Without a registry, so that once per line is decided here and diagnostics.reset() works.
        warnings.warn_explicit(
            _sentence(hit, stock_gradient),
            SingularityWarning,
            line.filename,
            line.lineno,
            module=frame.f_globals.get("__name__"),
        )
    except BaseException:
        line.warned = False  # turned into an error: the next call must raise as well
        raise


def _sentence(hit: _library.Hit, stock_gradient: str) -> str:
    return (
        f"safeops.{_library.OPERATORS[hit.op]}: {hit.count} of {hit.rows} rows are singular "
        f"({_library.CONDITIONS[hit.condition]}, first at row {hit.first_row}) in a "
        f"{hit.dtype.decode()} tensor of shape {list(_library.shape(hit))}, and nobody chose a "
        f"policy: the value is PyTorch's and the gradient there is {stock_gradient}; choose "
        f"policy='zero', 'nan', 'epsilon' or 'raise' in the call, in safeops.policy(...) or in "
        f"SAFEOPS_POLICY, or policy='stock' to keep this without the warning"
    )


def note_failed_call(epoch: int, error: Exception) -> SingularityError | None:
    """Records the line of a call that began at `epoch` and failed after it hit.

    Returns the error with its fields if it is that of policy ``raise``, None for any other, such as
    the one that stops the recomputation of a checkpoint.
    """
    hit = _hit_since(epoch)
    if hit is None:
        return None
    if _library.level() != 0:
        _remember(hit, _caller())
    if not hit.raised:
        return None
    return SingularityError(
        str(error),
        operator=_library.OPERATORS[hit.op],
        condition=_library.CONDITIONS[hit.condition],
        count=hit.count,
        first_row=hit.first_row,
        shape=_library.shape(hit),
        dtype=hit.dtype.decode(),
    )


def lines_that_hit() -> list[CallLine]:
    """The lines with hits since the last reset, in the order in which they were first met."""
    with _lock:
        join_backward_hits()
        return [line for line in _lines.values() if line.forward or line.backward]


def reset() -> None:
    """Forgets counts and warnings, not serials: a later backward pass still finds its line."""
    with _lock:
        _library.take_backward_hits()
        for line in _lines.values():
            line.forward, line.backward, line.warned = 0, 0, False
