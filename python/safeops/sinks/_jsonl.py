"""Events as lines of JSON in a file."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import threading
import time

from safeops._events import Event

# A kill can stop a write where the kernel goes from one page of the file to the next.
_PAGE = os.sysconf("SC_PAGE_SIZE")


class JsonlSink:
    """Appends one line of JSON to a file for an event; its keys are the fields of the event.

    A line goes out in one write to a descriptor opened for appending, so several processes may
    append to one file (without `max_bytes`: they would rotate each other's file away). A line that
    would cross from one page of the file to the next is moved there by spaces before it, so a
    process that is killed leaves whole lines (but for one longer than a page: a deep stack at level
    3) if no other writes to the file; where several do, the kill may tear one. A line that was
    torn by that, a crash of the machine or a full disk is ended when a sink opens the file or
    writes again. The operating system is not asked to sync. After a fork, make a new sink in the
    child.

    Args:
        path: the file; it is created if it is missing, its directory is not.
        max_bytes: a line that would make the file longer goes to a new one: the file is renamed to
            ``path.1``, that to ``path.2`` and so on. Never, if left out.
        backups: how many renamed files are kept; with 0 the file starts anew.

    Raises:
        ValueError: if `max_bytes` is not an integer from 1, or `backups` none from 0.
        OSError: if the file cannot be opened.

    Example:
        >>> log = safeops.sinks.JsonlSink("hits.jsonl", max_bytes=10**7, backups=3)
        >>> attachment = safeops.diagnostics.add_sink(log)
    """

    def __init__(
        self, path: str | os.PathLike[str], max_bytes: int | None = None, backups: int = 1
    ) -> None:
        if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 1):
            raise ValueError(
                f"safeops.sinks.JsonlSink: max_bytes must be an integer from 1, or None for no "
                f"rotation, got {max_bytes!r}"
            )
        if type(backups) is not int or backups < 0:
            raise ValueError(
                f"safeops.sinks.JsonlSink: backups must be an integer from 0, got {backups!r}"
            )
        self._path = os.fspath(path)
        self._max_bytes = max_bytes
        self._backups = backups
        # Reentrant: a destructor that runs while it is held may hit.
        self._lock = threading.RLock()
        self._descriptor: int | None = _open(self._path)
        self._torn = False

    def __call__(self, event: Event) -> None:
        text = json.dumps(dataclasses.asdict(event), allow_nan=False, separators=(",", ":"))
        line = text.encode() + b"\n"
        with self._lock:
            if self._descriptor is None:
                raise ValueError(f"safeops.sinks.JsonlSink: {self._path} is closed")
            size, data = self._data(self._descriptor, line)
            if self._max_bytes is not None and size and size + len(data) > self._max_bytes:
                self._descriptor = self._rotated(self._descriptor)
                size, data = self._data(self._descriptor, line)
            written = os.write(self._descriptor, data)
            torn = self._torn = written != len(data)
        if torn:
            raise OSError(
                f"safeops.sinks.JsonlSink: {self._path} took {written} of {len(data)} bytes; make "
                f"room on its disk"
            )

    def close(self) -> None:
        """Closes the file. Can be called again."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _data(self, descriptor: int, line: bytes) -> tuple[int, bytes]:
        """Size of the file, and what to append to it for the line."""
        size = os.fstat(descriptor).st_size
        end = b"\n" if self._torn else b""
        left = _PAGE - (size + len(end)) % _PAGE
        return size, end + b" " * (left if left < len(line) <= _PAGE else 0) + line

    def _rotated(self, descriptor: int) -> int:
        # Not if it is gone: removed by others, or renamed by a rotation that could not open anew.
        if os.path.exists(self._path):
            names = [self._path, *(f"{self._path}.{i}" for i in range(1, self._backups + 1))]
            for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
                if os.path.exists(newer):
                    os.replace(newer, older)
            if not self._backups:
                os.unlink(self._path)
        # Opened before the old one is closed: if this fails, the next event tries again.
        fresh = _open(self._path)
        os.close(descriptor)
        self._torn = False
        return fresh


def _open(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        # Of several processes that find a torn line, one ends it, where the file can be locked.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _ends_torn(descriptor):
            os.write(descriptor, b"\n")
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _ends_torn(descriptor: int) -> bool:
    """Whether the file ends with part of a line, and not because one is being written."""
    seen = -1
    while True:
        size = os.fstat(descriptor).st_size
        start = max(0, size - _PAGE)
        tail = os.pread(descriptor, size - start, start).rpartition(b"\n")[2]
        if not tail.strip(b" "):
            return False
        if size == seen:
            return True
        seen = size
        time.sleep(0.01)
