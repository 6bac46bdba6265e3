"""Sinks and counters while threads hit, sinks come and go, and destructors run."""

from __future__ import annotations

import faulthandler
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

import safeops
from event_sources import hit, listen
from safeops import diagnostics
from singular_calls import rows

pytestmark = pytest.mark.usefixtures("no_sink_is_left")

THREADS, CALLS, ROWS = 8, 1000, 1000


@pytest.fixture
def no_deadlock() -> Iterator[None]:
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class Total:
    """Counts what it is told, from any thread."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, event: diagnostics.Event) -> None:
        with self._lock:
            self.rows[event.direction] += event.count
            self.calls[event.direction] += event.calls


def swap_sinks(
    meet: threading.Barrier, stop: threading.Event, failures: list[BaseException]
) -> None:
    """Attaches and removes sinks of all kinds, throwing and hitting ones among them."""

    def throws(event: diagnostics.Event) -> None:
        raise ValueError("swapped")

    def asks(event: diagnostics.Event) -> None:
        diagnostics.flush()
        safeops.normalize(rows(0), dim=-1)

    def removes_itself(event: diagnostics.Event) -> None:
        own[0].remove()

    own: list[diagnostics.Attachment] = []
    meet.wait(60)
    try:
        done = False
        while not done:
            done = stop.is_set()
            for sink in (throws, asks, removes_itself, Total()):
                for synchronous in (False, True):
                    attachment = listen(sink, synchronous=synchronous)
                    own[:] = [attachment]
                    stop.wait(0.002)
                    assert attachment.remove(60)
    except BaseException as error:
        failures.append(error)


def test_eight_threads_of_a_million_hits_lose_nothing(no_deadlock) -> None:
    always, always_synchronous = Total(), Total()
    meet, stop = threading.Barrier(THREADS + 2), threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        x = torch.zeros(ROWS, 2, requires_grad=True)
        meet.wait(60)
        try:
            for _ in range(CALLS):
                y = safeops.normalize(x, dim=-1, policy="zero")
                torch.autograd.grad(y, x, torch.ones_like(y))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    swapper = threading.Thread(target=swap_sinks, args=(meet, stop, failures))
    with listen(always), listen(always_synchronous, synchronous=True):
        for worker in (*workers, swapper):
            worker.start()
        meet.wait(60)
        for worker in workers:
            worker.join()
        stop.set()
        swapper.join()
        assert diagnostics.flush(60)
        (site,) = diagnostics.snapshot().sites
    assert failures == []
    expected = THREADS * CALLS * ROWS
    counted = {way: diagnostics.snapshot().total(direction=way) for way in ("forward", "backward")}
    assert counted == {"forward": expected, "backward": expected}
    # Every call joins what backward passes hit since the last one, at most one for each thread, so
    # the ring is never full and none of them loses its line.
    for total in (always, always_synchronous):
        assert total.rows == {"forward": expected, "backward": expected}
        assert total.calls == {"forward": THREADS * CALLS, "backward": THREADS * CALLS}
    assert (site.forward, site.backward) == (expected, expected)


def test_no_lock_is_held_around_a_sink() -> None:
    seen: list[int] = []

    def elsewhere() -> None:
        with listen(lambda event: None):
            safeops.normalize(rows(0), dim=-1)
            seen.append(len(diagnostics.snapshot().sites))

    def sink(event) -> None:
        worker = threading.Thread(target=elsewhere)
        worker.start()
        worker.join(60)

    x = torch.zeros(2, requires_grad=True)
    with listen(sink, synchronous=True):
        hit()
        safeops.sqrt(x, policy="zero").sum().backward()
        diagnostics.snapshot()
    assert seen == [1, 2]


def test_a_destructor_that_hits_while_an_event_is_handed_over() -> None:
    """With a thread of its own for the sink: where a synchronous sink is being called, what a
    destructor hits is counted and not published, as what the sink itself hits."""
    events: list[diagnostics.Event] = []

    class Hits:
        def __del__(self) -> None:
            hit(1)

    count = 0

    def trace(frame, kind, argument):
        nonlocal count
        code = frame.f_code
        # From there on the library's own note of the last hit has been read.
        if code.co_name in ("_remember", "_publish") or code.co_filename.endswith(
            ("_attachment.py", "_events.py")
        ):
            sys.settrace(None)
            count += 1
            Hits()
            sys.settrace(trace)
        return trace

    with listen(events.append):
        sys.settrace(trace)
        try:
            hit(100)
        finally:
            sys.settrace(None)
        assert diagnostics.flush(60)
    assert count > 20
    assert sum(event.count for event in events) == 100 + count == diagnostics.snapshot().total()


def test_a_full_ring_loses_lines_and_no_count() -> None:
    total = Total()
    x = torch.zeros(2, requires_grad=True)
    y = safeops.sqrt(x, policy="zero").sum()
    passes = 20000
    with listen(total):
        for _ in range(passes):
            torch.autograd.grad(y, x, retain_graph=True)
        assert diagnostics.flush(60)
    snapshot = diagnostics.snapshot()
    counted, (site,) = snapshot.total(direction="backward"), snapshot.sites
    assert counted == 2 * passes
    # What is published is what has a line; the rest is in the counters alone.
    assert 2 * 4096 <= total.rows["backward"] == site.backward < counted


def test_a_destructor_that_hits_during_a_call_that_does_not() -> None:
    events: list[diagnostics.Event] = []
    count = 0

    def trace(frame, kind, argument):
        nonlocal count
        if not frame.f_code.co_filename.endswith("_operator.py"):
            return None
        if kind == "line":
            sys.settrace(None)
            count += 1
            hit(1)
            sys.settrace(trace)
        return trace

    with listen(events.append, synchronous=True):
        sys.settrace(trace)
        try:
            safeops.normalize(torch.ones(2, 3), dim=-1)
        finally:
            sys.settrace(None)
    assert count > 5
    assert [(event.function, event.count) for event in events] == [("hit", 1)] * count
    (site,) = diagnostics.snapshot().sites
    assert (site.function, site.forward) == ("hit", count)
    assert diagnostics.snapshot().total() == count
