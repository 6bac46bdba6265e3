"""Events: what was counted where the line of the program is known, handed to sinks.

The reader of call lines publishes; who listens is an `Attachment`. Nothing of an operator waits
here: a synchronous sink is called once the operator has returned, any other in a thread of its own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinMethodType, MethodType

from safeops._attachment import Attachment, hand_out, inside_a_sink


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a call stack, as in a traceback."""

    filename: str
    lineno: int
    function: str


@dataclass(frozen=True, slots=True)
class Event:
    """Singular rows (or elements) that a line of the program met.

    Attributes:
        operator: name of the operator, ``"softmax"``.
        condition: the condition that most rows of the execution met, ``"empty_row"``.
        direction: ``"forward"`` or ``"backward"``.
        device: ``"cpu"`` or ``"cuda"``.
        policy: the policy of the call; ``"stock"`` also where nobody chose one.
        count: rows (elements, for element-wise operators) hit, over all conditions.
        rows: rows or elements seen by those executions.
        calls: executions merged into this event; 1 for a synchronous sink.
        first_row: lowest row hit by the first of them; shape, dtype, device, step and thread are
            those of the first as well.
        shape: shape of the input; only the first eight sizes are kept.
        dtype: its dtype as torch prints it without the prefix, ``"float32"``.
        filename, lineno, function: the line, that of the forward call for a backward hit.
        module: path of the ``nn.Module`` that called, ``"Transformer.layers.0.attention"``, at
            level 3; None below it and outside modules.
        stack: the frames that led to the line when it was first met, outermost first, at level 3.
        step: what :func:`set_step` had said when the forward call was made.
        thread: ``threading.get_ident()`` of the thread that made the forward call.
        time: seconds since the epoch when the last of the executions was noticed.
    """

    operator: str
    condition: str
    direction: str
    device: str
    policy: str
    count: int
    rows: int
    calls: int
    first_row: int
    shape: tuple[int, ...]
    dtype: str
    filename: str
    lineno: int
    function: str
    module: str | None
    stack: tuple[Frame, ...] | None
    step: int | None
    thread: int
    time: float


Sink = Callable[[Event], object]

# Replaced as a whole, so that the road of a hit reads it without the lock.
attachments: tuple[Attachment, ...] = ()
# Those that may still call their sink, removed ones included, and those that are closing theirs.
_unfinished: list[Attachment] = []
_closing: list[Attachment] = []
# Reentrant: a destructor that runs while the lock is held may call an operator.
_lock = threading.RLock()
_current_step: int | None = None


def join_backward_hits() -> None:
    """Publishes the backward hits that wait for their lines; the reader of lines puts it here."""


def publish(events: list[Event]) -> None:
    """Gives the events to all sinks. Raises nothing but what a synchronous sink raises that is no
    Exception, such as KeyboardInterrupt, and that after all sinks have been called."""
    due = []
    for event in events:
        for attachment in attachments:
            if attachment.synchronous:
                due.append((attachment, event))
            else:
                attachment.offer(event)
    if due:
        hand_out(due)


def add_sink(sink: Sink, *, synchronous: bool | None = None) -> Attachment:
    """Calls `sink` with an :class:`Event` whenever a line of the program hits.

    By default a thread delivers: events that wait for the sink and have line, module, condition,
    direction and policy in common are merged, so a slow sink costs neither time nor memory, and the
    counts stay exact.

    A synchronous sink is called in the thread that made the call, once for every execution that
    hit: after the operator has returned, or, for backward hits, at the next eager call,
    :func:`snapshot` or :func:`flush` of any thread. An exception that is no ``Exception``
    (KeyboardInterrupt, SystemExit) goes through to that caller after the other sinks were called.

    Any other exception is kept in the attachment and logged once, by the logger ``"safeops"``. What
    calls inside a sink hit is counted and not published. Code that was compiled, and C++ callers,
    have no lines and thus no events. A child of ``fork`` has no sinks.

    Args:
        sink: any callable. A sink attached twice is called twice. If it has a method ``close``, it
            is called when the last of its attachments has been removed.
        synchronous: whether to call it in the thread of the call; by default what its attribute
            ``synchronous`` says, False if it has none.

    Returns:
        An :class:`Attachment`: ``remove()``, ``failures``, ``last_failure``; as a context manager
        it removes the sink at the end of the block.

    Raises:
        TypeError: if `sink` cannot be called.

    Example:
        >>> events = []
        >>> with safeops.diagnostics.add_sink(events.append, synchronous=True):
        ...     y = safeops.normalize(torch.zeros(4, 3), policy="zero")
        >>> events[0].operator, events[0].count
        ('normalize', 4)
    """
    global attachments
    if not callable(sink):
        raise TypeError(
            f"safeops.diagnostics.add_sink: sink must be callable with one event, got "
            f"{type(sink).__name__}; pass a function, or an object with __call__"
        )
    if synchronous is None:
        synchronous = bool(getattr(sink, "synchronous", False))
    # What backward passes have hit so far is not news to it.
    join_backward_hits()
    attachment = Attachment(sink, synchronous, _detach, _finish)
    with _lock:
        _unfinished.append(attachment)
        attachments = (*attachments, attachment)
    return attachment


def remove_sink(sink: Sink) -> None:
    """Removes every attachment of `sink`; see :meth:`Attachment.remove`.

    Raises:
        ValueError: if it is not attached.
    """
    found = [attachment for attachment in attachments if _same(attachment.sink, sink)]
    if not found:
        raise ValueError(
            f"safeops.diagnostics.remove_sink: sink must be attached, got {sink!r}; it may have "
            f"been removed already (Attachment.remove() can be called again)"
        )
    failure: BaseException | None = None
    for attachment in found:
        try:
            attachment.remove()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


def flush(timeout: float | None = None) -> bool:
    """Waits until every event published so far is delivered; whether it is."""
    deadline = None if timeout is None else time.monotonic() + timeout
    if inside_a_sink():
        return False
    with _lock:
        answers = [attachment.ask() for attachment in _unfinished]
    return all(
        answer.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        for answer in answers
    )


def unfinished() -> list[Attachment]:
    """Those that have not delivered and closed yet, removed ones included."""
    with _lock:
        return [*_unfinished, *_closing]


def remove_all(timeout: float) -> None:
    """Lets every sink finish, for at most `timeout` seconds in all."""
    deadline = time.monotonic() + timeout
    failure: BaseException | None = None
    for attachment in attachments:
        try:
            attachment.remove(timeout=0)
        except BaseException as error:
            failure = failure or error
    for attachment in unfinished():
        attachment.finished.wait(max(0.0, deadline - time.monotonic()))
    if failure is not None:
        raise failure


def set_step(step: int | None) -> None:
    """Says which training step it is; events carry it. For the whole process; None for no step.

    Raises:
        ValueError: for anything but None and integers from 0.
    """
    global _current_step
    if step is not None and (type(step) is not int or step < 0):
        raise ValueError(
            f"safeops.diagnostics.set_step: step must be an integer from 0, or None, got {step!r}"
        )
    _current_step = step


def step() -> int | None:
    """The step that :func:`set_step` has set."""
    return _current_step


def _same(attached: Sink, sink: Sink) -> bool:
    # A bound method is another object at every access.
    return attached is sink or (
        isinstance(sink, MethodType | BuiltinMethodType) and attached == sink
    )


def _detach(attachment: Attachment) -> None:
    global attachments
    try:
        # While it is attached: the last backward pass is joined by no call that follows.
        if attachment in attachments:
            join_backward_hits()
    finally:
        with _lock:
            attachments = tuple(other for other in attachments if other is not attachment)


@contextlib.contextmanager
def _finish(attachment: Attachment) -> Iterator[bool]:
    """Gives whether the sink is to be closed: no other attachment needs it."""
    with _lock:
        last = attachment in _unfinished
        if last:
            _unfinished.remove(attachment)
            _closing.append(attachment)
            last = not any(_same(other.sink, attachment.sink) for other in _unfinished)
    try:
        yield last
    finally:
        with _lock:
            if attachment in _closing:
                _closing.remove(attachment)


def forget_after_fork() -> None:
    """The sinks of the parent have their files and threads there."""
    global attachments, _lock
    _lock = threading.RLock()
    for attachment in _unfinished:
        attachment.forget_after_fork()
    _unfinished.clear()
    _closing.clear()
    attachments = ()
