"""Events: what is published, to whom, and what a sink may do."""

from __future__ import annotations

import threading
import time
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import safeops
from event_sources import hit, listen
from safeops import _call_lines, _library, diagnostics
from singular_calls import here, rows

pytestmark = pytest.mark.usefixtures("no_sink_is_left")


# What an event says


def test_an_event_of_a_forward_hit() -> None:
    events: list[diagnostics.Event] = []
    diagnostics.set_step(7)
    with listen(events.append, synchronous=True):
        before = time.time()
        hit()
        after = time.time()
    (event,) = events
    assert before <= event.time <= after
    assert event == diagnostics.Event(
        operator="normalize",
        condition="zero_norm",
        direction="forward",
        device="cpu",
        policy="zero",
        count=2,
        rows=4,
        calls=1,
        first_row=2,
        shape=(4, 3),
        dtype="float32",
        filename=hit.__code__.co_filename,
        lineno=hit.__code__.co_firstlineno + 2,
        function="hit",
        module=None,
        stack=None,
        step=7,
        thread=threading.get_ident(),
        time=event.time,
    )


def test_an_event_of_a_backward_hit_is_of_the_forward_line_and_step() -> None:
    events: list[diagnostics.Event] = []
    x = rows(3).requires_grad_()
    with listen(events.append, synchronous=True):
        diagnostics.set_step(1)
        y, line = safeops.normalize(x, dim=-1, policy="nan"), here()
        y.sum().backward()
        diagnostics.set_step(2)
        assert len(events) == 1
        safeops.log(torch.ones(1))
    event = events[1]
    assert (event.direction, event.policy, event.count, event.rows) == ("backward", "nan", 3, 5)
    assert (event.filename, event.lineno, event.step, event.calls) == (__file__, line, 1, 1)


@pytest.mark.parametrize("ask", [diagnostics.snapshot, diagnostics.flush])
def test_backward_hits_are_published_when_they_are_joined(ask) -> None:
    events: list[diagnostics.Event] = []
    x = torch.zeros(3, requires_grad=True)
    with listen(events.append, synchronous=True):
        y = safeops.sqrt(x, policy="zero")
        assert events == []
        y.sum().backward()
        ask()
    assert [(e.operator, e.direction, e.count) for e in events] == [("sqrt", "backward", 3)]


def test_the_thread_of_an_event_is_that_of_the_forward_call() -> None:
    events: list[diagnostics.Event] = []
    roots: list[torch.Tensor] = []

    def forward() -> None:
        roots.append(safeops.log(torch.zeros(2, requires_grad=True), policy="zero"))

    worker = threading.Thread(target=forward)
    with listen(events.append, synchronous=True):
        worker.start()
        worker.join()
        roots[0].sum().backward()
    assert [(e.direction, e.thread) for e in events] == [
        ("forward", worker.ident),
        ("backward", worker.ident),
    ]


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_sink_gets_the_backward_hits_between_its_coming_and_its_going(synchronous: bool) -> None:
    events: list[diagnostics.Event] = []
    y = safeops.sqrt(torch.zeros(3, requires_grad=True), policy="zero").sum()
    y.backward(retain_graph=True)
    with listen(events.append, synchronous=synchronous) as attachment:
        assert events == []
        y.backward(retain_graph=True)
    assert attachment.finished.wait(60)
    y.backward()
    diagnostics.snapshot()
    assert [(event.direction, event.count) for event in events] == [("backward", 3)]


def test_a_reset_publishes_what_it_takes_away() -> None:
    events: list[diagnostics.Event] = []
    with listen(events.append, synchronous=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        safeops.sqrt(torch.zeros(3, requires_grad=True)).sum().backward()
        diagnostics.reset()
    assert [event.count for event in events] == [3]
    assert diagnostics.snapshot() == diagnostics.Snapshot((), ())


def test_a_late_warning_that_is_an_error_does_not_keep_a_sink_attached() -> None:
    events: list[diagnostics.Event] = []
    attachment = listen(events.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safeops.sqrt(torch.zeros(3, requires_grad=True)).sum().backward()
        with pytest.raises(safeops.SingularityWarning):
            attachment.remove()
    assert attachment.finished.wait(60)
    assert [event.count for event in events] == [3]


def test_where_nobody_chose_the_policy_is_stock() -> None:
    events: list[diagnostics.Event] = []
    with listen(events.append, synchronous=True), pytest.warns(safeops.SingularityWarning):
        safeops.normalize(rows(1), dim=-1)
    with listen(events.append, synchronous=True), safeops.policy("epsilon"):
        safeops.normalize(rows(1), dim=-1)
    assert [event.policy for event in events] == ["stock", "epsilon"]


def test_the_condition_is_that_of_most_rows() -> None:
    events: list[diagnostics.Event] = []
    x = torch.tensor([[1e-4, 0.0], [0.0, 0.0], [0.0, 1e-4], [1.0, 1.0]])
    with listen(events.append, synchronous=True):
        safeops.normalize(x, dim=-1, eps=1e-3, policy="zero")
    (event,) = events
    assert (event.condition, event.count, event.first_row) == ("below_eps", 3, 0)


def test_a_call_that_raises_is_published_before_its_error() -> None:
    events: list[diagnostics.Event] = []
    with (
        listen(events.append, synchronous=True),
        pytest.raises(safeops.SingularityError, match="met 2 singular rows"),
    ):
        safeops.normalize(rows(2), dim=-1, policy="raise")
    assert [(e.policy, e.count, e.function) for e in events] == [
        ("raise", 2, "test_a_call_that_raises_is_published_before_its_error")
    ]


def test_a_backward_pass_that_raises_is_published() -> None:
    events: list[diagnostics.Event] = []
    with listen(events.append, synchronous=True):
        y = safeops.sqrt(torch.zeros(2, requires_grad=True), policy="raise").sum()
        with pytest.raises(ValueError, match="policy 'raise' met 2 singular elements"):
            y.backward()
        diagnostics.snapshot()
    assert [(e.operator, e.direction, e.policy, e.count) for e in events] == [
        ("sqrt", "backward", "raise", 2)
    ]


def test_level_3_events_carry_module_and_stack() -> None:
    class Layer(torch.nn.Module):
        def forward(self, x):
            return safeops.normalize(x, dim=-1, policy="zero")

    events: list[diagnostics.Event] = []
    diagnostics.set_level(3)
    model = torch.nn.Sequential(Layer(), Layer())
    with listen(events.append, synchronous=True):
        model(rows(1).requires_grad_()).sum().backward()
        diagnostics.snapshot()
    assert [(e.direction, e.module) for e in events] == [
        ("forward", "Sequential.0"),
        ("forward", "Sequential.1"),
        ("backward", "Sequential.1"),
        ("backward", "Sequential.0"),
    ]
    assert {event.stack[-1].function for event in events} == {"forward"}


def test_nothing_is_published_of_notices_level_0_and_compiled_code() -> None:
    torch._dynamo.reset()
    events: list[diagnostics.Event] = []
    with listen(events.append, synchronous=True):
        safeops.normalize(torch.full((2, 3), torch.inf), dim=-1)
        torch.compile(hit, backend="eager")()
        diagnostics.set_level(0)
        hit()
        diagnostics.snapshot()
    assert events == []


def test_a_checkpoint_publishes_what_it_counts() -> None:
    events: list[diagnostics.Event] = []
    x = rows(1).requires_grad_()
    with listen(events.append, synchronous=True):
        y = checkpoint(lambda x: safeops.normalize(x, policy="zero"), x, use_reentrant=False)
        y.sum().backward()
        total = diagnostics.snapshot().total()
    assert sum(event.count for event in events) == total == 3


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "1"])
def test_steps_are_integers(wrong) -> None:
    diagnostics.set_step(5)
    with pytest.raises(ValueError, match="step must be an integer from 0, or None, got"):
        diagnostics.set_step(wrong)
    assert diagnostics.step() == 5


def interrupts(event: diagnostics.Event) -> None:
    raise KeyboardInterrupt


def hit_backward_of_two_lines() -> None:
    """Latent hits of two lines where nobody chose a policy, of which no call has told yet."""
    x = torch.zeros(3, requires_grad=True)
    one = safeops.sqrt(x)
    other = safeops.sqrt(x)
    (one + other).sum().backward()


def test_a_late_warning_that_is_an_error_keeps_no_other_line_from_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[int] = []

    def explicit(message, category, filename, lineno, module) -> None:
        lines.append(lineno)
        raise category(f"number {len(lines)}")

    monkeypatch.setattr(warnings, "warn_explicit", explicit)
    hit_backward_of_two_lines()
    with pytest.raises(safeops.SingularityWarning, match="number 1"):
        diagnostics.snapshot()
    first = hit_backward_of_two_lines.__code__.co_firstlineno
    assert sorted(lines) == [first + 3, first + 4]


def test_an_interruption_in_a_sink_keeps_no_line_from_its_late_warning() -> None:
    with listen(interrupts, synchronous=True):
        hit_backward_of_two_lines()
        with (
            pytest.warns(safeops.SingularityWarning) as caught,
            pytest.raises(KeyboardInterrupt),
        ):
            diagnostics.snapshot()
    assert len(caught) == 2


def test_an_interruption_keeps_no_other_attachment_attached() -> None:
    attachments = [listen(interrupts, synchronous=True) for _ in range(3)]
    safeops.sqrt(torch.zeros(3, requires_grad=True), policy="zero").sum().backward()
    with pytest.raises(KeyboardInterrupt):
        diagnostics.remove_sink(interrupts)
    assert all(attachment.finished.is_set() for attachment in attachments)


@pytest.mark.parametrize("synchronous", [False, True])
def test_what_the_end_of_a_sink_hits_is_counted_and_not_published(synchronous: bool) -> None:
    class Sink:
        def __call__(self, event) -> None: ...

        def close(self) -> None:
            hit(5)
            assert not diagnostics.flush(60)

    events: list[diagnostics.Event] = []
    with listen(events.append, synchronous=True):
        attachment = listen(Sink(), synchronous=synchronous)
        hit(1)
        assert attachment.remove(60)
        hit(2)
    assert attachment.failures == 0
    assert [event.count for event in events] == [1, 2]
    assert diagnostics.snapshot().total() == 1 + 5 + 2


# Whose a hit is, the line of the last call, and the cost without a sink


@pytest.mark.parametrize("level", [0, 1])
def test_a_hit_of_a_sink_is_not_that_of_the_call_that_joined(level: int) -> None:
    swallowed: list[Exception] = []

    def sink(event) -> None:
        diagnostics.set_level(level)
        try:
            safeops.div(torch.ones(1), torch.zeros(1), policy="raise")
        except safeops.SingularityError as error:
            swallowed.append(error)
        diagnostics.set_level(1)

    x = torch.ones(2, 3)
    root = safeops.sqrt(torch.zeros(3, requires_grad=True), policy="zero").sum()
    with listen(sink, synchronous=True):
        root.backward(retain_graph=True)
        with pytest.raises(IndexError):
            safeops.normalize(x, dim=9)
        root.backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            safeops.normalize(x, dim=-1)
    assert len(swallowed) == 2
    sites = diagnostics.snapshot().sites
    assert sorted(site.operator for site in sites) == ["div", "sqrt"][1 - level :]


def test_the_line_of_the_last_call_is_not_that_of_a_sink() -> None:
    def sink(event) -> None:
        safeops.log(torch.zeros(1), policy="zero")

    with listen(sink, synchronous=True):
        epoch = _library.hit_epoch.value
        hit()
    line = _call_lines.line_since(epoch)
    assert (line.operator, line.function) == ("normalize", "hit")
    assert _call_lines.line_since(_library.hit_epoch.value) is None


def test_latent_hits_and_failed_calls_have_a_line_too() -> None:
    epoch = _library.hit_epoch.value
    safeops.sqrt(torch.zeros(2, requires_grad=True), policy="zero")
    assert _call_lines.line_since(epoch).operator == "sqrt"
    epoch = _library.hit_epoch.value
    with pytest.raises(safeops.SingularityError):
        safeops.log(torch.zeros(2), policy="raise")
    assert _call_lines.line_since(epoch).operator == "log"


def test_without_a_sink_no_event_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(_call_lines, "_event", lambda *arguments: made.append(arguments))
    x = rows(1).requires_grad_()
    safeops.normalize(x, dim=-1, policy="zero").sum().backward()
    diagnostics.snapshot()
    assert made == []
