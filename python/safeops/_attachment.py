"""How one sink is called: in the thread of the call, or in a thread of its own with merging."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safeops._events import Event, Sink

# How long removing a sink, or the end of the interpreter, waits for what it has still to deliver.
PATIENCE_SECONDS = 2.0


class _Deliveries(threading.local):
    """Deliveries that this thread still owes; None unless it is inside a sink."""

    due: deque[tuple[Attachment, Event]] | None = None


_thread = _Deliveries()


def inside_a_sink() -> bool:
    return _thread.due is not None


def hand_out(deliveries: Iterable[tuple[Attachment, Event]]) -> None:
    """Calls sinks in this thread, or, inside a sink, as soon as that has returned."""
    if _thread.due is not None:
        _thread.due.extend(deliveries)
        return
    _thread.due = due = deque(deliveries)
    interruption: BaseException | None = None
    try:
        while due:
            attachment, event = due.popleft()
            try:
                attachment.call(event)
            except BaseException as error:
                interruption = interruption or error
    finally:
        _thread.due = None
    if interruption is not None:
        raise interruption


@contextlib.contextmanager
def _as_inside_a_sink() -> Iterator[None]:
    if _thread.due is not None:
        yield
        return
    _thread.due = due = deque()
    try:
        yield
    finally:
        _thread.due = None
        hand_out(due)


class _Merged:
    """Executions of one line that wait for a sink."""

    __slots__ = ("calls", "count", "first", "rows", "time")

    def __init__(self, first: Event) -> None:
        self.first = first
        self.count = self.rows = self.calls = 0
        self.time = first.time

    def add(self, event: Event) -> None:
        self.count += event.count
        self.rows += event.rows
        self.calls += event.calls
        self.time = event.time

    def event(self) -> Event:
        if self.calls == self.first.calls:
            return self.first
        return dataclasses.replace(
            self.first, count=self.count, rows=self.rows, calls=self.calls, time=self.time
        )


class Attachment:
    """One sink that is attached; :func:`safeops.diagnostics.add_sink` makes it.

    As a context manager it removes the sink at the end of the block.

    Attributes:
        sink: what is called.
        synchronous: whether it is called in the thread of the call.
        failures: how often the sink, or its ``close``, has raised an exception.
        last_failure: the last such exception, without its traceback, which would keep the frames
            of the program alive.
        finished: set once the sink has been removed and has had its last call.
    """

    def __init__(
        self,
        sink: Sink,
        synchronous: bool,
        detach: Callable[[Attachment], None],
        finish: Callable[[Attachment], AbstractContextManager[bool]],
    ) -> None:
        self.sink = sink
        self.synchronous = synchronous
        self.failures = 0
        self.last_failure: BaseException | None = None
        self.finished = threading.Event()
        self._detach, self._finish = detach, finish
        # Reentrant, and a queue that is: a destructor may call an operator at any moment.
        self._lock = threading.RLock()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting: dict[tuple[object, ...], _Merged] = {}
        self._asked: threading.Event | None = None
        self._removed = False
        self._calls_inside = 0
        if not synchronous:
            threading.Thread(target=self._run, name="safeops sink", daemon=True).start()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def remove(self, timeout: float = PATIENCE_SECONDS) -> bool:
        """Detaches the sink; it is called with what was counted so far, then closed.

        May be called by the sink itself, and again. Inside a sink it does not wait.

        Args:
            timeout: seconds to wait for that. A sink that blocks longer is left to its thread.

        Returns:
            Whether the sink has had its last call.
        """
        try:
            self._detach(self)
        finally:
            # Also if a late warning of a backward pass is an error.
            self._stop()
        return self.finished.wait(0 if inside_a_sink() else timeout)

    def offer(self, event: Event) -> None:
        """Leaves the event to the thread of this sink."""
        key = (
            event.filename,
            event.lineno,
            event.operator,
            event.module,
            event.condition,
            event.direction,
            event.policy,
        )
        with self._lock:
            if self._removed:
                return
            first = not self._waiting
            self._waiting.setdefault(key, _Merged(event)).add(event)
        if first:
            self._wake.put(None)

    def ask(self) -> threading.Event:
        """What is set when all that was offered so far is delivered."""
        if self.synchronous or self.finished.is_set():
            return _DELIVERED
        with self._lock:
            if self._removed:
                return self.finished
            if self._asked is None:
                self._asked = threading.Event()
                self._wake.put(None)
            return self._asked

    def call(self, event: Event) -> None:
        """Calls the sink in this thread. Keeps an Exception, lets anything else through."""
        with self._lock:
            if self.finished.is_set() or (self.synchronous and self._removed):
                return
            self._calls_inside += 1
        try:
            self.sink(event)
        except Exception as error:
            self._failed(error)
        finally:
            with self._lock:
                self._calls_inside -= 1
                last = self.synchronous and self._removed and self._calls_inside == 0
            if last:
                self._close()

    def forget_after_fork(self) -> None:
        """In the child: as if removed, without a call to the sink, which is the parent's."""
        self._lock = threading.RLock()
        self._removed = True
        self.finished = threading.Event()
        self.finished.set()

    def _run(self) -> None:
        removed = False
        while not removed:
            self._wake.get()
            with self._lock:
                batch, self._waiting = self._waiting, {}
                asked, self._asked = self._asked, None
                removed = self._removed
            for merged in batch.values():
                try:
                    hand_out([(self, merged.event())])
                except BaseException as error:
                    # Nobody is there whom it could interrupt.
                    self._failed(error)
            if asked is not None:
                asked.set()
        self._close()

    def _stop(self) -> None:
        with self._lock:
            first, self._removed = not self._removed, True
            idle = self.synchronous and self._calls_inside == 0
        if first and idle:
            self._close()
        elif first and not self.synchronous:
            self._wake.put(None)

    def _close(self) -> None:
        try:
            with self._finish(self) as last:
                if last and (close := getattr(self.sink, "close", None)) is not None:
                    with _as_inside_a_sink():
                        close()
        except Exception as error:
            self._failed(error)
        finally:
            self.finished.set()

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            self.failures += 1
            first = self.failures == 1
        if first:
            # A handler of the program that fails must not fail the call either.
            with contextlib.suppress(Exception):
                logging.getLogger("safeops").error(
                    "safeops.diagnostics: the sink %r raised %s; it stays attached, and its "
                    "further failures are counted, not logged",
                    self.sink,
                    type(error).__name__,
                    exc_info=error,
                )
        link: BaseException | None = error
        while link is not None and link.__traceback__ is not None:
            link.__traceback__ = None
            link = link.__context__
        self.last_failure = error


_DELIVERED = threading.Event()
_DELIVERED.set()
