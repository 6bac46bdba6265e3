"""Delivery: which thread calls a sink, what is merged, and what a sink may do."""

from __future__ import annotations

import logging
import threading
import warnings

import pytest
import torch

import safeops
from event_sources import hit, listen
from safeops import diagnostics
from singular_calls import rows

pytestmark = pytest.mark.usefixtures("no_sink_is_left")


def test_events_that_wait_are_merged_and_their_counts_exact() -> None:
    events: list[diagnostics.Event] = []
    entered, go_on = threading.Event(), threading.Event()

    def sink(event) -> None:
        entered.set()
        go_on.wait(60)
        events.append(event)

    with listen(sink):
        hit(1)
        entered.wait(60)
        diagnostics.set_step(3)
        for count in (4, 2, 3):
            hit(count)
        safeops.softmax(torch.full((2, 3), -torch.inf), -1, policy="zero")
        go_on.set()
        assert diagnostics.flush(60)
    assert [(e.operator, e.count, e.rows, e.calls) for e in events] == [
        ("normalize", 1, 3, 1),
        ("normalize", 9, 15, 3),
        ("softmax", 2, 2, 1),
    ]
    merged = events[1]
    assert (merged.first_row, merged.shape, merged.step) == (2, (6, 3), 3)


def test_policies_and_conditions_are_not_merged() -> None:
    events: list[diagnostics.Event] = []
    entered, go_on = threading.Event(), threading.Event()

    def sink(event) -> None:
        entered.set()
        go_on.wait(60)
        events.append(event)

    def line(x: torch.Tensor, policy: str) -> None:
        y = safeops.normalize(x, dim=-1, policy=policy, eps=1e-3)
        if y.requires_grad:
            y.sum().backward()

    with listen(sink):
        hit(1)
        entered.wait(60)
        for _ in range(2):
            line(rows(1), "zero")
            line(rows(2), "nan")
            line(rows(4).clamp(0, 1) * 1e-4 + rows(0, 6) * 1e-4, "zero")
            line(rows(8).requires_grad_(), "zero")
        diagnostics.snapshot()
        go_on.set()
        assert diagnostics.flush(60)
    assert [(e.condition, e.policy, e.direction, e.count, e.calls) for e in events[1:]] == [
        ("zero_norm", "zero", "forward", 2 * (1 + 8), 4),
        ("zero_norm", "nan", "forward", 2 * 2, 2),
        ("below_eps", "zero", "forward", 2 * 6, 2),
        ("zero_norm", "zero", "backward", 2 * 8, 2),
    ]


def test_what_waits_for_a_blocked_sink_is_bounded() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def sink(event) -> None:
        entered.set()
        go_on.wait(60)

    attachment = listen(sink)
    hit()
    entered.wait(60)
    for _ in range(500):
        hit().sum()
    assert [merged.calls for merged in attachment._waiting.values()] == [500]
    assert not diagnostics.flush(timeout=0.01)
    assert not attachment.remove(timeout=0.01)
    go_on.set()
    assert attachment.finished.wait(60)


def test_asynchronous_sinks_run_in_a_thread_of_their_own() -> None:
    threads: dict[str, set[threading.Thread]] = {"own": set(), "same": set()}
    with (
        listen(lambda event: threads["own"].add(threading.current_thread())),
        listen(lambda event: threads["same"].add(threading.current_thread()), synchronous=True),
    ):
        hit()
        hit()
    assert threads["same"] == {threading.current_thread()}
    (own,) = threads["own"]
    assert own is not threading.current_thread()
    assert own.daemon


def test_removing_delivers_what_waits_and_closes() -> None:
    class Sink:
        def __init__(self) -> None:
            self.log: list[object] = []

        def __call__(self, event) -> None:
            self.log.append(event.count)

        def close(self) -> None:
            self.log.append("closed")

    for synchronous in (False, True):
        sink = Sink()
        attachment = listen(sink, synchronous=synchronous)
        hit(2)
        assert attachment.remove(60)
        assert attachment.remove()
        hit(3)
        assert sink.log == [2, "closed"]


def test_a_sink_attached_twice_is_called_twice_and_closed_once() -> None:
    class Sink(list):
        closed = 0

        def __call__(self, event) -> None:
            assert not self.closed
            self.append(event)

        def close(self) -> None:
            self.closed += 1

    for synchronous in (False, True):
        sink = Sink()
        first = listen(sink, synchronous=synchronous)
        second = listen(sink, synchronous=synchronous)
        hit()
        assert first.remove(60)
        assert sink.closed == 0
        hit()
        assert second.remove(60)
        assert (len(sink), sink.closed) == (3, 1)


def test_remove_sink_removes_all_attachments_of_it() -> None:
    events: list[diagnostics.Event] = []
    listen(events.append, synchronous=True)
    listen(events.append)
    diagnostics.remove_sink(events.append)
    hit()
    assert events == []
    with pytest.raises(ValueError, match="remove_sink: sink must be attached, got <built-in"):
        diagnostics.remove_sink(events.append)


def test_equal_sinks_are_not_one_sink() -> None:
    class Equal:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self, event) -> None:
            self.count += 1

        def __eq__(self, other) -> bool:
            return True

        __hash__ = None

    one, other = Equal(), Equal()
    listen(one, synchronous=True)
    listen(other, synchronous=True)
    diagnostics.remove_sink(one)
    hit()
    diagnostics.remove_sink(other)
    assert (one.count, other.count) == (0, 1)


def test_a_sink_says_itself_that_it_is_synchronous() -> None:
    class Sink:
        synchronous = True

        def __call__(self, event) -> None: ...

    sink = Sink()
    with listen(sink) as by_itself, listen(sink, synchronous=False) as overruled:
        assert (by_itself.synchronous, overruled.synchronous) == (True, False)


@pytest.mark.parametrize("wrong", [None, "events.jsonl", 3])
def test_a_sink_must_be_callable(wrong) -> None:
    with pytest.raises(TypeError, match="add_sink: sink must be callable with one event, got"):
        diagnostics.add_sink(wrong)


# What a sink may do


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_sink_that_raises(synchronous: bool, caplog: pytest.LogCaptureFixture) -> None:
    events: list[diagnostics.Event] = []

    def sink(event) -> None:
        raise ArithmeticError(f"number {event.count}")

    with (
        listen(sink, synchronous=synchronous) as attachment,
        listen(events.append, synchronous=synchronous),
        caplog.at_level(logging.ERROR, "safeops"),
    ):
        for count in (1, 2, 3):
            y = hit(count)
            assert diagnostics.flush(60)
        assert torch.equal(y, torch.nn.functional.normalize(rows(3), dim=-1))
    assert attachment.failures == len(events) == 3
    assert str(attachment.last_failure) == "number 3"
    assert attachment.last_failure.__traceback__ is None
    (record,) = caplog.records
    assert "raised ArithmeticError" in record.getMessage()
    assert diagnostics.snapshot().total() == 6


def test_the_failure_that_is_kept_keeps_no_frame() -> None:
    def sink(event) -> None:
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise TypeError("outer") from error

    with listen(sink, synchronous=True) as attachment:
        hit()
    failure = attachment.last_failure
    assert failure.__cause__.__traceback__ is None
    assert failure.__traceback__ is None


def test_a_logging_handler_that_raises_fails_nothing() -> None:
    class Broken(logging.Handler):
        def emit(self, record) -> None:
            raise RuntimeError("no")

    handler, logger = Broken(), logging.getLogger("safeops")
    logger.addHandler(handler)
    try:
        with listen(lambda event: 1 / 0, synchronous=True) as attachment:
            hit()
    finally:
        logger.removeHandler(handler)
    assert attachment.failures == 1


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_in_a_synchronous_sink_reaches_the_caller(interruption) -> None:
    events: list[diagnostics.Event] = []

    def sink(event) -> None:
        raise interruption

    with listen(sink, synchronous=True) as attachment, listen(events.append, synchronous=True):
        with pytest.raises(interruption):
            hit(2)
        diagnostics.remove_sink(sink)
        hit(1)
    assert [event.count for event in events] == [2, 1]
    assert diagnostics.snapshot().total() == 3
    assert attachment.failures == 0


def test_an_interruption_in_a_thread_of_a_sink_is_a_failure() -> None:
    def sink(event) -> None:
        raise SystemExit

    with listen(sink) as attachment:
        hit()
        assert diagnostics.flush(60)
        hit()
        assert diagnostics.flush(60)
        assert attachment.failures == 2


@pytest.mark.parametrize("synchronous", [False, True])
def test_what_a_sink_itself_hits_is_counted_and_not_published(synchronous: bool) -> None:
    events: list[diagnostics.Event] = []

    def sink(event) -> None:
        events.append(event)
        x = rows(5).requires_grad_()
        safeops.normalize(x, dim=-1, policy="zero").sum().backward()

    with listen(sink, synchronous=synchronous):
        for _ in range(3):
            hit(1)
            diagnostics.flush(60)
    diagnostics.snapshot()
    assert [event.count for event in events] == [1, 1, 1]
    assert diagnostics.snapshot().total(direction="forward") == 3 * (1 + 5)
    assert diagnostics.snapshot().total(direction="backward") == 3 * 5


def test_hits_of_others_that_are_joined_inside_a_sink_follow_after_it() -> None:
    order: list[str] = []
    x = torch.zeros(3, requires_grad=True)
    root = safeops.sqrt(x, policy="zero")

    def sink(event) -> None:
        order.append(f"in {event.operator}")
        if event.operator == "normalize":
            root.sum().backward()
            diagnostics.snapshot()
        order.append(f"out {event.operator}")

    with listen(sink, synchronous=True):
        hit()
    assert order == ["in normalize", "out normalize", "in sqrt", "out sqrt"]


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_sink_removes_itself(synchronous: bool) -> None:
    events: list[diagnostics.Event] = []

    class Once:
        closed = 0

        def __call__(self, event) -> None:
            events.append(event)
            assert not diagnostics.flush()
            assert not attachment.remove(timeout=1e6)
            assert self.closed == 0

        def close(self) -> None:
            self.closed += 1

    once = Once()
    attachment = listen(once, synchronous=synchronous)
    hit(1)
    assert attachment.finished.wait(60)
    hit(2)
    assert [event.count for event in events] == [1]
    assert (once.closed, attachment.failures) == (1, 0)


def test_a_sink_adds_another_which_gets_the_next_event() -> None:
    events: list[diagnostics.Event] = []
    added: list[diagnostics.Attachment] = []

    def sink(event) -> None:
        if not added:
            added.append(listen(events.append, synchronous=True))

    with listen(sink, synchronous=True):
        hit(1)
        hit(2)
    added[0].remove()
    assert [event.count for event in events] == [2]


def test_a_sink_changes_nothing_of_the_warning() -> None:
    def line():
        return safeops.normalize(rows(1), dim=-1)

    events: list[diagnostics.Event] = []
    with listen(events.append, synchronous=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(safeops.SingularityWarning):
                line()
        warnings.simplefilter("always")
        with pytest.warns(safeops.SingularityWarning) as caught:
            line()
            line()
    assert len(caught) == 1
    assert [event.count for event in events] == [1, 1, 1, 1]
