"""Processes that were forked or spawned count their own hits."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import safeops
from event_sources import hit, listen
from safeops import _call_lines, _events, _observe, _patch, _patch_doors, diagnostics
from singular_calls import rows

pytestmark = pytest.mark.usefixtures("no_sink_is_left")


def in_child(check: Callable[[], None]) -> None:
    """Runs `check` in a forked child; fails with what it says, or if it does not end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "done"
        try:
            check()
        except BaseException:
            said = traceback.format_exc()
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "done"


def test_a_child_starts_empty_and_counts_its_own() -> None:
    events: list[diagnostics.Event] = []
    x = torch.zeros(2, requires_grad=True)
    root = safeops.sqrt(x, policy="zero").sum()
    diagnostics.set_step(4)
    diagnostics.set_level(2)

    def check() -> None:
        assert diagnostics.snapshot() == diagnostics.Snapshot((), ())
        assert (diagnostics.step(), diagnostics.level()) == (4, 2)
        before = len(events)
        hit(3)
        y = safeops.sqrt(torch.zeros(2, requires_grad=True), policy="zero").sum()
        y.backward()
        snapshot = diagnostics.snapshot()
        assert snapshot.total("normalize") == 3
        assert snapshot.total("sqrt", direction="backward") == 2
        assert [site.operator for site in snapshot.sites] == ["normalize", "sqrt"]
        assert len(events) == before
        own: list[diagnostics.Event] = []
        with listen(own.append), listen(own.append, synchronous=True):
            hit(1)
            assert diagnostics.flush(60)
        assert [event.count for event in own] == [1, 1]

    with listen(events.append, synchronous=True), listen(events.append):
        hit(2)
        root.backward()
        in_child(check)
        assert diagnostics.snapshot().total("normalize") == 2
        assert diagnostics.snapshot().total("sqrt") == 2
        hit(1)
        assert diagnostics.flush(60)
    assert sum(event.count for event in events) == 2 * (2 + 2 + 1)


def test_a_child_has_no_sinks_and_closes_none() -> None:
    class Sink:
        closed = False

        def __call__(self, event) -> None: ...

        def close(self) -> None:
            self.closed = True

    sinks = Sink(), Sink()
    with listen(sinks[0]) as one, listen(sinks[1], synchronous=True) as other:

        def check() -> None:
            assert _events.attachments == ()
            assert one.remove(60)
            assert other.remove(60)
            assert not (sinks[0].closed or sinks[1].closed)
            assert diagnostics.flush(60)

        in_child(check)
        assert len(_events.attachments) == 2
        assert one.remove(60)
    assert sinks[0].closed
    assert sinks[1].closed


def test_a_fork_inside_a_sink() -> None:
    seen: list[int] = []

    def sink(event) -> None:
        seen.append(event.count)
        pid = os.fork()
        if pid == 0:
            # The child goes on behind the sink: nothing more may reach the sinks of the parent.
            return
        os.waitpid(pid, 0)

    parent = os.getpid()
    after: list[int] = []
    attachment = listen(sink, synchronous=True)
    listen(after.append, synchronous=True)
    hit(2)
    if os.getpid() != parent:
        os._exit(0 if after == [] and seen == [2] else 1)
    assert len(after) == 1
    diagnostics.remove_sink(after.append)
    attachment.remove()
    assert attachment.failures == 0


def test_a_fork_while_other_threads_hit_and_hold_the_locks() -> None:
    stop, held, release = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            x = rows(2).requires_grad_()
            safeops.normalize(x, dim=-1, policy="zero").sum().backward()

    def hold() -> None:
        with _call_lines._lock, _events._lock, attachment._lock:
            held.set()
            release.wait(120)

    def check() -> None:
        assert diagnostics.snapshot() == diagnostics.Snapshot((), ())
        for _ in range(100):
            x = rows(2).requires_grad_()
            safeops.normalize(x, dim=-1, policy="zero").sum().backward()
        with listen(lambda event: None):
            hit(1)
        assert diagnostics.snapshot().total(direction="forward") == 201
        assert diagnostics.snapshot().total(direction="backward") == 200
        assert sum(site.backward for site in diagnostics.snapshot().sites) == 200
        attachment.remove()

    workers = [threading.Thread(target=work) for _ in range(3)]
    with listen(lambda event: None) as attachment:
        for worker in workers:
            worker.start()
        try:
            for _ in range(5):
                in_child(check)
            holder = threading.Thread(target=hold)
            holder.start()
            held.wait(60)
            in_child(check)
        finally:
            release.set()
            stop.set()
            for worker in workers:
                worker.join()


class Batches(Dataset):
    """Item i hits i rows; its value is what the process has counted since it began."""

    def __init__(self) -> None:
        self.parent = os.getpid()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        safeops.normalize(torch.zeros(index, 3), dim=-1, policy="zero")
        assert os.getpid() != self.parent
        return index, os.getpid(), diagnostics.snapshot().total()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_worker_of_a_data_loader_counts_its_own(context: str) -> None:
    hit(5)
    loader = DataLoader(
        Batches(), batch_size=None, num_workers=2, multiprocessing_context=context, shuffle=False
    )
    counted: dict[int, int] = {}
    for index, pid, total in loader:
        counted[pid] = counted.get(pid, 0) + index
        assert counted[pid] == total
    assert len(counted) == 2
    assert sum(counted.values()) == 28
    assert diagnostics.snapshot().total() == 5


# The end of a process


def write_events(path: str) -> None:
    diagnostics.add_sink(safeops.sinks.JsonlSink(path))
    x = torch.zeros(3, requires_grad=True)
    safeops.sqrt(x, policy="zero").sum().backward()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_the_end_of_a_worker_delivers_what_waits(tmp_path: Path, context: str) -> None:
    path = tmp_path / "hits.jsonl"
    worker = multiprocessing.get_context(context).Process(target=write_events, args=(str(path),))
    worker.start()
    worker.join(120)
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["count"] == 3


def test_a_worker_that_imports_the_package_late_delivers_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    script = """
        import multiprocessing, sys

        def work(path):
            import torch, safeops
            safeops.diagnostics.add_sink(safeops.sinks.JsonlSink(path))
            x = torch.zeros(3, requires_grad=True)
            safeops.sqrt(x, policy="zero").sum().backward()

        worker = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        worker.start()
        worker.join(100)
        print(worker.exitcode)
    """
    result = run_bare_script(script, path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["count"] == 3


def run_script(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    begin = "import sys, threading, torch, safeops\nfrom safeops import diagnostics\n"
    return run_bare_script(begin + textwrap.dedent(text), *arguments)


def run_bare_script(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_end_of_the_interpreter_delivers_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    script = """
        diagnostics.add_sink(safeops.sinks.JsonlSink(sys.argv[1]))
        x = torch.zeros(3, requires_grad=True)
        safeops.sqrt(x, policy="zero").sum().backward()
        safeops.log(x.detach(), policy="zero")
        safeops.sqrt(x, policy="zero").sum().backward()
    """
    result = run_script(script, path)
    assert (result.returncode, result.stderr) == (0, "")
    # The last backward pass is joined by nothing but the end.
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(e["count"] for e in events if e["operator"] == "sqrt") == 6
    assert sum(e["count"] for e in events if e["operator"] == "log") == 3


def test_the_end_of_the_interpreter_does_not_wait_for_a_blocked_sink() -> None:
    script = """
        entered = threading.Event()
        def blocked(event):
            entered.set()
            threading.Event().wait()
        diagnostics.add_sink(blocked)
        seen = []
        diagnostics.add_sink(seen.append, synchronous=True)
        safeops.log(torch.zeros(2), policy="zero")
        entered.wait(60)
        print("end", len(seen))
    """
    result = run_script(script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "end 1\n", "")


def test_the_end_of_the_interpreter_gives_no_late_warning() -> None:
    script = """
        import warnings
        warnings.simplefilter("error")
        diagnostics.add_sink(lambda event: print(event.operator, event.count, flush=True))
        x = torch.zeros(3, requires_grad=True)
        safeops.sqrt(x).sum().backward()
    """
    result = run_script(script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "sqrt 3\n", "")


def test_the_end_of_the_interpreter_waits_for_a_sink_that_was_removed() -> None:
    script = """
        import atexit, time
        entered, ends = threading.Event(), threading.Event()
        class Sink:
            def __call__(self, event):
                entered.set()
                ends.wait(60)
                time.sleep(0.1)
                print("called", flush=True)
            def close(self):
                time.sleep(0.1)
                print("closed", flush=True)
        attachment = diagnostics.add_sink(Sink())
        safeops.log(torch.zeros(2), policy="zero")
        entered.wait(60)
        assert not attachment.remove(timeout=0)
        atexit.register(ends.set)
    """
    result = run_script(script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "called\nclosed\n", "")


def test_an_interruption_at_the_end_keeps_no_sink_from_its_end() -> None:
    script = """
        def interrupts(event):
            raise KeyboardInterrupt
        class Sink:
            def __call__(self, event):
                print(event.operator, event.count, flush=True)
            def close(self):
                print("closed", flush=True)
        diagnostics.add_sink(interrupts, synchronous=True)
        diagnostics.add_sink(Sink())
        x = torch.zeros(3, requires_grad=True)
        safeops.sqrt(x, policy="zero").sum().backward()
    """
    result = run_script(script)
    assert (result.returncode, result.stdout) == (0, "sqrt 3\nclosed\n")
    assert "in interrupts\nKeyboardInterrupt" in result.stderr


def test_a_child_patches_and_observes_whoever_held_the_locks_in_the_parent() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with _patch._leaving, _patch_doors._lock, _observe._Kept._lock:
            held.set()
            done.wait()

    def check() -> None:
        with safeops.patch(observe=True):
            torch.rsqrt(torch.zeros(3, requires_grad=True)).sum().backward()
        assert diagnostics.snapshot().total("rsqrt") == 6

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        in_child(check)
    finally:
        done.set()
        holder.join()
