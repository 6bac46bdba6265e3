"""Logging, the ring buffer, and what reads the counters or feeds other tools."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import safeops
from event_sources import hit, listen
from safeops import _library, diagnostics, sinks

pytestmark = pytest.mark.usefixtures("no_sink_is_left")


def hit_everything() -> None:
    """Hits forward and backward, of two operators, and one notice."""
    x = torch.zeros(4, 3, requires_grad=True)
    safeops.normalize(x, dim=-1, policy="zero").sum().backward()
    safeops.log(torch.zeros(5), policy="zero")
    safeops.normalize(torch.full((2, 3), torch.inf), dim=-1)


# Logging


def test_logging_says_what_and_where(caplog: pytest.LogCaptureFixture) -> None:
    with (
        listen(sinks.LoggingSink(), synchronous=True),
        listen(sinks.LoggingSink("safeops.hits", logging.INFO), synchronous=True),
        caplog.at_level(logging.INFO),
    ):
        hit(2)
    first, second = caplog.records
    event = first.event
    assert first.getMessage() == (
        f"safeops.normalize: 2 of 4 singular in forward (zero_norm, policy zero) at "
        f"{event.filename}:{event.lineno} in hit"
    )
    assert (first.name, first.levelno) == ("safeops", logging.WARNING)
    assert (second.name, second.levelno) == ("safeops.hits", logging.INFO)
    assert second.event is event


def test_logging_takes_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    with listen(sinks.LoggingSink(logging.getLogger("mine")), synchronous=True):
        hit()
    assert [record.name for record in caplog.records] == ["mine"]


# Ring buffer


def test_a_ring_buffer_keeps_the_latest() -> None:
    ring = sinks.RingBuffer(3)
    with listen(ring, synchronous=True):
        for count in range(1, 6):
            hit(count)
    assert [event.count for event in ring.events()] == [3, 4, 5]
    assert len(ring) == 3
    ring.clear()
    assert (ring.events(), len(ring)) == ([], 0)


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True])
def test_a_ring_buffer_holds_at_least_one(wrong) -> None:
    with pytest.raises(ValueError, match="RingBuffer: capacity must be an integer from 1, got"):
        sinks.RingBuffer(wrong)


@pytest.mark.parametrize("kind", ["ring", "jsonl"])
def test_a_destructor_that_hits_while_a_sink_is_read_or_closed(tmp_path: Path, kind: str) -> None:
    ring = sinks.RingBuffer()
    sink, read = (
        (ring, ring.events)
        if kind == "ring"
        else (log := sinks.JsonlSink(tmp_path / "hits.jsonl"), log.close)
    )
    hits = 0

    def trace(frame, kind, argument):
        nonlocal hits
        if frame.f_code is not read.__code__:
            return None
        if kind == "line":
            # In Python a destructor runs between any two lines.
            sys.settrace(None)
            hits += 1
            hit(1)
            sys.settrace(trace)
        return trace

    def work() -> None:
        sys.settrace(trace)
        read()
        sys.settrace(None)

    with listen(sink, synchronous=True):
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(60)
        assert not worker.is_alive()
    assert hits >= 1


# Prometheus


def test_prometheus_shows_the_counters() -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    collector = sinks.PrometheusCollector(registry)
    labels = {"operator": "normalize", "device": "cpu"}

    def singular(condition: str, direction: str, name: str = "singular") -> float | None:
        return registry.get_sample_value(
            f"safeops_{name}_total", {**labels, "condition": condition, "direction": direction}
        )

    assert singular("zero_norm", "forward") is None
    hit_everything()
    assert singular("zero_norm", "forward") == 4
    assert singular("zero_norm", "backward") == 4
    assert singular("nonfinite_input", "forward", "notice") == 2
    assert singular("nonfinite_input", "forward") is None
    torch.compile(hit, backend="eager")(3)
    assert singular("zero_norm", "forward") == 7
    text = client.generate_latest(registry).decode()
    assert "# TYPE safeops_singular_total counter" in text
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        sinks.PrometheusCollector(registry)
    collector.close()
    assert client.generate_latest(registry) == b""


# TensorBoard


class Writer:
    def __init__(self) -> None:
        self.points: list[tuple[str, int, int | None]] = []

    def add_scalar(self, tag: str, value: int, step: int | None) -> None:
        self.points.append((tag, value, step))


def test_tensorboard_gets_totals_of_hits_and_notices() -> None:
    writer = Writer()
    curves = sinks.TensorBoardTotals(writer)
    curves.write(0)
    assert writer.points == []
    hit_everything()
    curves.write(1)
    hit(2)
    diagnostics.set_step(9)
    curves.write()
    diagnostics.reset()
    curves.write(10)
    tags = [
        "safeops/normalize/zero_norm/forward",
        "safeops/normalize/zero_norm/backward",
        "safeops/normalize/nonfinite_input/forward",
        "safeops/log/zero_argument/forward",
    ]
    expected = [([4, 4, 2, 5], 1), ([6, 4, 2, 5], 9), ([0, 0, 0, 0], 10)]
    assert writer.points == [
        (tag, total, step)
        for totals, step in expected
        for tag, total in zip(tags, totals, strict=True)
    ]
    curves.close()


def test_tensorboard_opens_a_writer_for_a_directory(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = sinks.TensorBoardTotals(tmp_path)
    hit(2)
    curves.write(5)
    curves.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (point,) = events.Scalars("safeops/normalize/zero_norm/forward")
    assert (point.step, point.value) == (5, 2)


def test_tensorboard_needs_a_writer() -> None:
    with pytest.raises(TypeError, match="writer must have add_scalar, got int; pass a Summary"):
        sinks.TensorBoardTotals(3)


# NeuralDBG


def test_neuraldbg_gets_data_anomalies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    neuraldbg = pytest.importorskip("neuraldbg")
    monkeypatch.chdir(tmp_path)  # it makes directories where it is
    model = torch.nn.Linear(3, 3)
    diagnostics.set_level(3)
    with neuraldbg.NeuralDbg(model) as dbg, listen(sinks.NeuralDbgSink(dbg)) as attachment:
        assert attachment.synchronous
        dbg.step = 2
        hit(2)
        (event,) = dbg.events
        assert (event.event_type, event.step) == (neuraldbg.EventType.DATA_ANOMALY, 2)
        assert (event.from_state, event.to_state) == ("normal", "zero_norm")
        lineno = hit.__code__.co_firstlineno + 2
        assert event.layer_name == f"hit (event_sources.py:{lineno})"
        assert event.metadata["filename"] == hit.__code__.co_filename
        assert (event.metadata["lineno"], event.metadata["count"]) == (lineno, 2)
        assert (event.metadata["policy"], event.metadata["operator"]) == ("zero", "normalize")
        assert {type(value) for value in event.metadata.values()} <= {str, int, float}
        (hypothesis,) = dbg.explain_failure("data_anomaly")
        assert hypothesis.causal_chain == [f"{event.layer_name}@2"]
        assert event.layer_name in dbg.export_mermaid_causal_graph()
    assert attachment.failures == 0


def test_neuraldbg_needs_a_session() -> None:
    pytest.importorskip("neuraldbg")
    with pytest.raises(TypeError, match=r"dbg must be a neuraldbg.NeuralDbg, got Writer"):
        sinks.NeuralDbgSink(Writer())


# Readers of counters


def test_metrics_do_not_wait_for_cuda_and_snapshots_do(monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("prometheus_client")
    waited: list[bool] = []

    def records(*, wait: bool = True) -> list[_library.Record]:
        waited.append(wait)
        return []

    monkeypatch.setattr(_library, "records", records)
    list(sinks.PrometheusCollector(client.CollectorRegistry()).collect())
    sinks.TensorBoardTotals(Writer()).write(1)
    assert waited and not any(waited)
    waited.clear()
    safeops.diagnostics.snapshot()
    assert waited == [True]


# Packages that are not there


def test_packages_are_imported_on_demand_and_a_missing_one_is_named_with_its_extra() -> None:
    extras = {"PrometheusCollector": "prometheus", "TensorBoardTotals": "tensorboard"}
    extras["NeuralDbgSink"] = "neuraldbg"
    script = f"""
import sys, safeops
packages = {{"prometheus_client", "tensorboard", "neuraldbg", "matplotlib"}}
print(sorted(packages.intersection(sys.modules)))
sys.modules.update(dict.fromkeys(packages))
for name in {[*extras]}:
    try:
        getattr(safeops.sinks, name)(*() if name == "PrometheusCollector" else (".",))
    except ImportError as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    loaded, *sentences = result.stdout.splitlines()
    assert (loaded, result.stderr) == ("[]", "")
    for sentence, (name, extra) in zip(sentences, extras.items(), strict=True):
        assert sentence.startswith(f"safeops.sinks.{name}: ")
        assert sentence.endswith(f"; install it with `pip install safeops[{extra}]`")
