"""Attributes of torch that are replaced while a patch is in force in any thread."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple


class _Door(NamedTuple):
    place: Any
    name: str
    stock: Any
    replacement: Any


_doors: list[_Door] = []
_lock = threading.RLock()
_open = 0


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


# A thread that the child does not have may have held it.
os.register_at_fork(after_in_child=_renew_lock)


def add(place: Any, name: str, replacement: Any) -> None:
    """Adds an attribute of a module or class, and what stands in its place."""
    _doors.append(_Door(place, name, vars(place)[name], replacement))


def open_doors() -> None:
    """Replaces the attributes, unless an earlier call has; each call needs its `close_doors`."""
    global _open
    with _lock:
        _open += 1
        for door in _doors:
            # What somebody else has replaced stays theirs.
            if vars(door.place)[door.name] is door.stock:
                setattr(door.place, door.name, door.replacement)


def close_doors() -> None:
    """Puts the attributes back if no patch is in force in any thread."""
    global _open
    with _lock:
        _open -= 1
        for door in _doors:
            if not _open and vars(door.place)[door.name] is door.replacement:
                setattr(door.place, door.name, door.stock)
