"""Which lines of the caller's program met singular rows or elements.

The wrapper of an operator comes here only when the library's hit epoch moved. A forward call that
hit has a serial, the epoch that it set; its line is remembered under that serial, so that a
backward hit, which carries the serial of its forward call, finds the line. A forward call that met
no more than a value whose slope is singular has a serial as well, and a count of 0: it is counted,
and warned of, when its backward pass hits.
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
from typing import NamedTuple

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


class _Unchosen(NamedTuple):
    """What the warning of a call says for which nobody chose a policy."""

    unit: str
    stock_gradient: str
    module: str | None


# Reentrant: a destructor that runs while the lock is held may call an operator.
_lock = threading.RLock()
_lines: dict[tuple[str, int, str], CallLine] = {}
_call_of_serial: OrderedDict[int, tuple[CallLine, _Unchosen | None]] = OrderedDict()

# The hit epoch up to which backward hits have been given to their lines.
joined_epoch = 0


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


def _remember(hit: _library.Hit, frame: FrameType, unchosen: _Unchosen | None) -> CallLine:
    filename, lineno = frame.f_code.co_filename, frame.f_lineno
    operator = _library.OPERATORS[hit.op]
    with _lock:
        line = _lines.setdefault(
            (filename, lineno, operator),
            CallLine(filename, lineno, frame.f_code.co_name, operator),
        )
        line.add(hit)
        _call_of_serial[hit.serial] = line, unchosen
        if len(_call_of_serial) > _REMEMBERED_CALLS:
            _call_of_serial.popitem(last=False)
    return line


def join_backward_hits() -> None:
    """Gives the backward hits that the library holds to the lines of their forward calls.

    Warns for a line that has not warned yet if nobody chose a policy there.
    """
    global joined_epoch
    unchosen_hits = []
    with _lock:
        # Read first: a hit that arrives meanwhile may or may not be among those taken.
        epoch = _library.hit_epoch.value
        for hit in _library.take_backward_hits():
            call = _call_of_serial.get(hit.serial)
            if call is None:
                continue
            line, unchosen = call
            line.add(hit)
            if unchosen is not None:
                unchosen_hits.append((line, hit, unchosen))
        joined_epoch = epoch
    # Without the lock: a filter or a hook of the program may do anything.
    for line, hit, unchosen in unchosen_hits:
        _warn_once(line, hit, unchosen)


def note_hit(epoch: int, policy: str, unit: str, stock_gradient: str) -> None:
    """Records the line of the call that began at `epoch` and warns if nobody chose a policy."""
    hit = _hit_since(epoch)
    if hit is None:
        return
    frame = _caller()
    unchosen = None
    if not policy:
        unchosen = _Unchosen(unit, stock_gradient, frame.f_globals.get("__name__"))
    line = _remember(hit, frame, unchosen)
    if unchosen is not None and hit.count:
        _warn_once(line, hit, unchosen)


def _warn_once(line: CallLine, hit: _library.Hit, unchosen: _Unchosen) -> None:
    with _lock:
        if line.warned:
            return
        line.warned = True
    try:
        # Without a registry, so that once per line is decided here and diagnostics.reset() works.
        warnings.warn_explicit(
            _sentence(hit, unchosen),
            SingularityWarning,
            line.filename,
            line.lineno,
            module=unchosen.module,
        )
    except BaseException:
        line.warned = False  # turned into an error: the next call must raise as well
        raise


def _sentence(hit: _library.Hit, unchosen: _Unchosen) -> str:
    unit = unchosen.unit
    where = "" if hit.direction == _FORWARD else " in the backward pass of this call"
    return (
        f"safeops.{_library.OPERATORS[hit.op]}: {hit.count} of {hit.rows} {unit}s are singular "
        f"({_library.CONDITIONS[hit.condition]}, first at {unit} {hit.first_row}) in a "
        f"{hit.dtype.decode()} tensor of shape {list(_library.shape(hit))}{where}, and nobody "
        f"chose a policy: the value is PyTorch's and the gradient there is "
        f"{unchosen.stock_gradient}; choose policy='zero', 'nan', 'epsilon' or 'raise' in the "
        f"call, in safeops.policy(...) or in SAFEOPS_POLICY, or policy='stock' to keep this "
        f"without the warning"
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
        _remember(hit, _caller(), None)
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
    join_backward_hits()
    with _lock:
        return [line for line in _lines.values() if line.forward or line.backward]


def reset() -> None:
    """Forgets counts and warnings, not serials: a later backward pass still finds its line."""
    global joined_epoch
    with _lock:
        joined_epoch = _library.hit_epoch.value
        _library.take_backward_hits()
        for line in _lines.values():
            line.forward, line.backward, line.warned = 0, 0, False
