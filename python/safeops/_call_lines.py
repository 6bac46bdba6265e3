"""Which lines of the caller's program met singular rows or elements.

The wrapper of an operator comes here only when the library's hit epoch moved. A forward call that
hit has a serial, the epoch that it set; its line is remembered under that serial, so that a
backward hit, which carries the serial of its forward call, finds the line. A forward call that met
no more than a value whose slope is singular has a serial as well, and a count of 0: it is counted,
warned of and published when its backward pass hits.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from multiprocessing.util import Finalize, register_after_fork
from types import FrameType
from typing import NamedTuple

from safeops import _call_stack, _events, _library
from safeops._attachment import PATIENCE_SECONDS, inside_a_sink
from safeops._errors import SingularityError, SingularityWarning
from safeops._events import Event, Frame

# A serial is needed until its backward pass has run; older ones lose their line, never their count.
_REMEMBERED_CALLS = 16384

_FORWARD = _library.DIRECTIONS.index("forward")


# By identity: two lines are one only if they are the same object.
@dataclass(slots=True, eq=False)
class CallLine:
    """One line of the caller's program that called one operator, and the rows it hit.

    At level 3 one line that is reached through several modules is several of these.
    """

    filename: str
    lineno: int
    function: str
    operator: str
    module: str | None = None
    stack: tuple[Frame, ...] | None = None
    condition: str = ""
    forward: int = 0
    backward: int = 0

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


class _Call(NamedTuple):
    """A forward call that hit, as its backward pass will want to know it."""

    line: CallLine
    stack: tuple[Frame, ...] | None
    policy: str
    step: int | None
    thread: int
    silent: bool  # made inside a sink
    unchosen: _Unchosen | None


class _LastCall(threading.local):
    noted = 0  # serial of the hit that was last taken for a call, made inside a sink or not
    serial = 0
    line: CallLine | None = None


# Reentrant: a destructor that runs while the lock is held may call an operator.
_lock = threading.RLock()
_lines: dict[tuple[str, int, str, str | None], CallLine] = {}
_call_of_serial: OrderedDict[int, _Call] = OrderedDict()
_warned: set[tuple[str, int, str]] = set()
_last_call = _LastCall()

# The hit epoch up to which backward hits have been given to their lines.
joined_epoch = 0

# Seconds that the end of the process still waits for sinks.
_patience = PATIENCE_SECONDS


def _hit_since(epoch: int) -> _library.Hit | None:
    """The hit of this thread's last call, if it began at `epoch`; other threads move it, too.

    A hit belongs to one call: a sink or a destructor may have run, and hit, since that call began.
    """
    hit = _library.last_hit()
    if hit is None or hit.direction != _FORWARD or hit.serial <= max(epoch, _last_call.noted):
        return None
    _last_call.noted = hit.serial
    return hit


def line_since(epoch: int) -> CallLine | None:
    """Line of this thread's last forward call that hit, in value or slope, if after `epoch`.

    Calls made inside a sink are passed over.
    """
    return _last_call.line if _last_call.serial > epoch else None


def _remember(
    hit: _library.Hit, frame: FrameType, policy: str, unchosen: _Unchosen | None
) -> _Call:
    filename, lineno = frame.f_code.co_filename, frame.f_lineno
    operator = _library.OPERATORS[hit.op]
    deep = _library.level() == 3
    module = _call_stack.module_path() if deep else None
    with _lock:
        line = _lines.get((filename, lineno, operator, module))
        if line is None:
            # Not a plain store: a destructor may have got here first.
            line = _lines.setdefault(
                (filename, lineno, operator, module),
                CallLine(filename, lineno, frame.f_code.co_name, operator, module),
            )
        if deep and line.stack is None:
            line.stack = _call_stack.stack(frame)
        line.add(hit)
        silent = inside_a_sink()
        stack = line.stack if deep else None
        thread = threading.get_ident()
        call = _Call(line, stack, policy or "stock", _events.step(), thread, silent, unchosen)
        _call_of_serial[hit.serial] = call
        if len(_call_of_serial) > _REMEMBERED_CALLS:
            _call_of_serial.popitem(last=False)
    if not silent:
        _last_call.serial, _last_call.line = hit.serial, line
    return call


def _event(call: _Call, hit: _library.Hit) -> Event:
    line = call.line
    return Event(
        operator=line.operator,
        condition=_library.CONDITIONS[hit.condition],
        direction=_library.DIRECTIONS[hit.direction],
        device=_library.DEVICES[hit.device],
        policy=call.policy,
        count=hit.count,
        rows=hit.rows,
        calls=1,
        first_row=hit.first_row,
        shape=_library.shape(hit),
        dtype=hit.dtype.decode(),
        filename=line.filename,
        lineno=line.lineno,
        function=line.function,
        module=line.module,
        stack=call.stack,
        step=call.step,
        thread=call.thread,
        time=time.time(),
    )


def _publish(call: _Call, hit: _library.Hit) -> None:
    if _events.attachments and hit.count and not call.silent:
        _events.publish([_event(call, hit)])


def join_backward_hits(warn: bool = True) -> None:
    """Gives the backward hits that the library holds to the lines of their forward calls.

    Publishes them, and warns for a line that has not warned yet if nobody chose a policy there.
    """
    global joined_epoch
    joined = []
    with _lock:
        # Read first: a hit that arrives meanwhile may or may not be among those taken.
        epoch = _library.hit_epoch.value
        for hit in _library.take_backward_hits():
            call = _call_of_serial.get(hit.serial)
            if call is None:
                continue
            call.line.add(hit)
            joined.append((call, hit))
        joined_epoch = epoch
    # Without the lock: a sink, a filter or a hook of the program may do anything. What it raises
    # keeps no other line from its warning.
    failure: BaseException | None = None
    try:
        if _events.attachments:
            _events.publish([_event(call, hit) for call, hit in joined if not call.silent])
    except BaseException as error:
        failure = error
    for call, hit in joined:
        try:
            if warn and call.unchosen is not None:
                _warn_once(call.line, hit, call.unchosen)
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


def note_hit(epoch: int, policy: str, unit: str, stock_gradient: str) -> None:
    """Records the line of the call that began at `epoch` and warns if nobody chose a policy."""
    hit = _hit_since(epoch)
    if hit is None:
        return
    frame = _call_stack.caller()
    unchosen = None
    if not policy:
        unchosen = _Unchosen(unit, stock_gradient, frame.f_globals.get("__name__"))
    call = _remember(hit, frame, policy, unchosen)
    _publish(call, hit)
    if unchosen is not None and hit.count:
        _warn_once(call.line, hit, unchosen)


def _warn_once(line: CallLine, hit: _library.Hit, unchosen: _Unchosen) -> None:
    key = line.filename, line.lineno, line.operator
    with _lock:
        if key in _warned:
            return
        _warned.add(key)
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
        _warned.discard(key)  # turned into an error: the next call must raise as well
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


def note_failed_call(epoch: int, error: Exception, policy: str) -> SingularityError | None:
    """Records the line of a call that began at `epoch` and failed after it hit.

    Returns the error with its fields if it is that of policy ``raise``, None for any other, such as
    the one that stops the recomputation of a checkpoint.
    """
    hit = _hit_since(epoch)
    if hit is None:
        return None
    if _library.level() != 0:
        _publish(_remember(hit, _call_stack.caller(), policy, None), hit)
    return singularity(hit, str(error)) if hit.raised else None


def singularity(hit: _library.Hit, sentence: str) -> SingularityError:
    """The error of policy ``raise``, with the fields of what was met."""
    return SingularityError(
        sentence,
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
            line.forward, line.backward, line.stack = 0, 0, None
        _warned.clear()


def _forget_after_fork() -> None:
    """The child counts its own; locks may have been held by threads that it does not have."""
    global _lock
    _lock = threading.RLock()
    _events.forget_after_fork()
    _library.reset()
    reset()
    _lines.clear()
    _call_of_serial.clear()
    _last_call.noted, _last_call.serial, _last_call.line = 0, 0, None


def _deliver_at_exit() -> None:
    """May run twice, at the end of multiprocessing and of the interpreter: patience is one."""
    global _patience
    if not _events.unfinished():
        return
    begin = time.monotonic()
    try:
        join_backward_hits(warn=False)
    finally:
        _events.remove_all(_patience)
        _patience = max(0.0, _patience - (time.monotonic() - begin))


def _deliver_at_exit_of_multiprocessing(_: object = None) -> None:
    Finalize(None, _deliver_at_exit, exitpriority=0)


_events.join_backward_hits = join_backward_hits
os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(_deliver_at_exit)
# Processes of multiprocessing, forked or spawned, may end without atexit. This may be one of them,
# and those that it forks forget what is to be done at their end.
_deliver_at_exit_of_multiprocessing()
register_after_fork(_deliver_at_exit, _deliver_at_exit_of_multiprocessing)
