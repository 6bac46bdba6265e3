"""The JSONL file: whole lines, rotation, crashes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import safeops
from event_sources import hit, listen
from safeops import diagnostics
from safeops.sinks import JsonlSink

pytestmark = pytest.mark.usefixtures("no_sink_is_left")


def read(path: Path) -> list[dict[str, object]]:
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def events_of(*counts: int) -> list[diagnostics.Event]:
    events: list[diagnostics.Event] = []
    with listen(events.append, synchronous=True):
        for count in counts:
            hit(count)
    return events


def test_a_line_holds_the_fields_of_an_event(tmp_path: Path) -> None:
    class Layer(torch.nn.Module):
        def forward(self, x):
            return safeops.normalize(x, dim=-1, policy="zero")

    path = tmp_path / "hits.jsonl"
    diagnostics.set_level(3)
    diagnostics.set_step(3)
    events: list[diagnostics.Event] = []
    with listen(JsonlSink(path), synchronous=True), listen(events.append, synchronous=True):
        Layer()(torch.zeros(2, 3))
    (line,), (event,) = read(path), events
    assert line["stack"][-1] == {
        "filename": __file__,
        "lineno": event.lineno,
        "function": "forward",
    }
    assert (line["module"], line["step"], line["shape"]) == ("Layer", 3, [2, 3])
    assert list(line) == list(diagnostics.Event.__dataclass_fields__)
    for name in ("operator", "condition", "direction", "device", "policy", "count", "time"):
        assert line[name] == getattr(event, name)


def test_lines_are_appended_and_the_file_closed(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    for count in (1, 2):
        with listen(JsonlSink(path)) as attachment:
            hit(count)
            assert diagnostics.flush(60)
        assert attachment.failures == 0
    assert [line["count"] for line in read(path)] == [1, 2]
    sink = JsonlSink(path)
    sink.close()
    sink.close()
    with pytest.raises(ValueError, match=r"hits\.jsonl is closed"):
        sink(events_of(1)[0])


def test_no_line_crosses_a_page(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    (event,) = events_of(1)
    sink = JsonlSink(path)
    for _ in range(100):
        sink(event)
    sink.close()
    content, page = path.read_bytes(), os.sysconf("SC_PAGE_SIZE")
    assert len(content) > 5 * page
    for boundary in range(page, len(content), page):
        # What a kill at the boundary would leave is whole lines and spaces.
        assert content[:boundary].rpartition(b"\n")[2].strip(b" ") == b""
    assert len(read(path)) == 100


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"torn": tr', [b'{"torn": tr']),
        (b'{"a":1}\n{"torn": tr', [b'{"a":1}', b'{"torn": tr']),
        (b'{"a":1}\n', [b'{"a":1}']),
        (b'{"a":1}\n   ', [b'{"a":1}']),
        (b"", []),
    ],
)
def test_a_torn_line_is_ended_before_another_is_appended(
    tmp_path: Path, before: bytes, after: list[bytes]
) -> None:
    path = tmp_path / "hits.jsonl"
    path.write_bytes(before)
    with listen(JsonlSink(path)):
        hit(2)
        assert diagnostics.flush(60)
    lines = path.read_bytes().splitlines()
    assert lines[:-1] == after
    assert json.loads(lines[-1])["count"] == 2


def test_a_full_disk_tears_no_second_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hits.jsonl"
    one, two = events_of(1, 2)
    sink = JsonlSink(path)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:10]))
        with pytest.raises(OSError, match="took 10 of .* bytes; make room on its disk"):
            sink(one)
    sink(two)
    sink.close()
    torn, whole = path.read_bytes().splitlines()
    assert len(torn) == 10
    assert json.loads(whole)["count"] == 2


def test_rotation_renames_and_loses_nothing_that_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    sink = JsonlSink(path, max_bytes=1000, backups=2)
    events = events_of(*range(1, 10))
    for event in events:
        sink(event)
    sink.close()
    files = [path.with_name("hits.jsonl.2"), path.with_name("hits.jsonl.1"), path]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    counts = [line["count"] for file in files for line in read(file)]
    assert counts == list(range(10 - len(counts), 10))
    assert all(file.stat().st_size <= 1000 for file in files)
    assert len(counts) >= 5


@pytest.mark.parametrize("backups", [0, 2])
def test_rotation_that_could_not_open_shifts_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backups: int
) -> None:
    path = tmp_path / "hits.jsonl"
    sink = JsonlSink(path, max_bytes=1, backups=backups)
    events = events_of(1, 2, 3)
    sink(events[0])
    sink(events[1])

    def full(*arguments: object) -> int:
        raise OSError("no descriptor is left")

    with monkeypatch.context() as no_descriptor:
        no_descriptor.setattr(os, "open", full)
        for _ in range(3):
            with pytest.raises(OSError, match="no descriptor is left"):
                sink(events[2])
    sink(events[2])
    sink.close()
    files = [path, *(path.with_name(f"hits.jsonl.{i}") for i in range(1, backups + 1))]
    assert [line["count"] for file in files for line in read(file)] == [3, 2, 1][: len(files)]


@pytest.mark.parametrize("backups", [0, 1])
def test_a_file_that_was_removed_is_made_anew(tmp_path: Path, backups: int) -> None:
    path = tmp_path / "hits.jsonl"
    sink = JsonlSink(path, max_bytes=1, backups=backups)
    one, two = events_of(1, 2)
    sink(one)
    path.unlink()
    sink(two)
    sink.close()
    assert [line["count"] for line in read(path)] == [2]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_system_without_locks_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuses)
    path = tmp_path / "hits.jsonl"
    path.write_bytes(b"torn")
    JsonlSink(path).close()
    assert path.read_bytes() == b"torn\n"


def test_who_may_read_the_file_is_for_the_umask_to_say(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    umask = os.umask(0o002)
    try:
        JsonlSink(path).close()
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o664


def test_rotation_without_backups_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    sink = JsonlSink(path, max_bytes=1, backups=0)
    for event in events_of(1, 2):
        sink(event)
    sink.close()
    assert [line["count"] for line in read(path)] == [2]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bytes": 0}, "max_bytes must be an integer from 1, or None for no rotation, got 0"),
        ({"max_bytes": 1e6}, "max_bytes must be an integer from 1"),
        ({"backups": -1}, "backups must be an integer from 0, got -1"),
    ],
)
def test_rotation_is_given_in_whole_numbers(tmp_path: Path, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JsonlSink(tmp_path / "hits.jsonl", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        JsonlSink(tmp_path / "missing" / "hits.jsonl")


WRITER = """
import sys, torch, safeops
from safeops import diagnostics
sink = safeops.sinks.JsonlSink(sys.argv[1])
events = []
with diagnostics.add_sink(events.append, synchronous=True):
    safeops.normalize(torch.zeros(int(sys.argv[2]), 3), policy="zero")
print("begins", flush=True)
for _ in range(int(sys.argv[3])):
    sink(events[0])
"""


def writer(path: Path, count: int, times: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(count), str(times)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_process_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    for attempt in range(2):
        process = writer(path, 7, 10**9)
        assert process.stdout.readline() == "begins\n"
        deadline = time.monotonic() + 60
        while path.stat().st_size < (attempt + 1) * 10**6:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        process.stdout.close()
        content = path.read_bytes()
        lines = content.split(b"\n")
        assert lines.pop().strip(b" ") == b""
        assert {json.loads(line)["count"] for line in lines} == {7}


def test_two_processes_append_whole_lines_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    path.write_bytes(b'{"count":0}\n{"torn')
    times = 3000
    processes = [writer(path, count, times) for count in (3, 5)]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    whole, torn, *lines = path.read_bytes().splitlines()
    assert torn == b'{"torn'
    counts = [json.loads(line)["count"] for line in lines]
    assert (counts.count(3), counts.count(5), len(counts)) == (times, times, 2 * times)
