"""Errors of policy ``raise`` that a CUDA call leaves behind, and the lines they belong to.

Under raise mode ``"deferred"`` a call does not wait for its kernel. What the kernel meets is thrown
by a later call on a CUDA tensor, which is another's error there, or taken by :func:`check`. Every
such call has a number; its line is remembered under it.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from safeops import _call_lines, _call_stack, _library
from safeops._errors import SingularityError

RAISE_MODES = ("deferred", "exact")

# More than a device has ever queued.
_REMEMBERED_LAUNCHES = 16384

_lock = threading.RLock()
_line_of_launch: dict[int, tuple[str, int]] = {}
# Kept for good: a graph that is replayed raises in the name of the call that was captured.
_line_of_captured: dict[int, tuple[str, int]] = {}


def last_launch(arguments: tuple[Any, ...]) -> int | None:
    """This thread's last number, before a call with these arguments; None on other devices."""
    for value in arguments[:2]:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return _library.last_launch()
    return None


def note_launch(before: int) -> None:
    """Remembers the line of a call that may yet be found to have met something singular."""
    launched = _library.last_launch()
    if launched == before:
        return
    frame = _call_stack.caller()
    captured = torch.cuda.is_current_stream_capturing()
    with _lock:
        lines = _line_of_captured if captured else _line_of_launch
        lines[launched] = frame.f_code.co_filename, frame.f_lineno
        while len(_line_of_launch) > _REMEMBERED_LAUNCHES:
            del _line_of_launch[next(iter(_line_of_launch))]


def is_of_earlier_call(error: Exception) -> bool:
    """Whether an error that a call threw is what an earlier one has left behind."""
    # A call's own error says how many rows there were.
    return isinstance(error, ValueError) and "policy 'raise' met a singular" in str(error)


def error_of_earlier_call(error: Exception) -> SingularityError | None:
    """That error in the name of the earlier call, which it was thrown in place of just now."""
    if not is_of_earlier_call(error):
        return None
    return _error(_library.raised_launch(), str(error))


def _error(launch: int, sentence: str) -> SingularityError:
    with _lock:
        line = _line_of_launch.get(launch) or _line_of_captured.get(launch)
    if line is not None:
        sentence = f"{sentence}; it was called at {line[0]}:{line[1]}"
    hit = _library.last_hit()
    # Of a call that too many others followed the library knows no more than the row.
    if hit is None or sentence.startswith("safeops: "):
        return SingularityError(sentence)
    return _call_lines.singularity(hit, sentence)


def check() -> None:
    """See :func:`safeops.diagnostics.check`."""
    found, sentence = _library.check()
    if found == 1:
        raise _error(_library.raised_launch(), sentence)
    if found:
        raise RuntimeError(f"safeops.diagnostics.check: a CUDA device has failed: {sentence}")


def raise_mode() -> str:
    return RAISE_MODES[_library.raise_mode()]


def set_raise_mode(mode: object, place: str) -> None:
    if not isinstance(mode, str) or mode not in RAISE_MODES:
        raise ValueError(f"{place}: the raise mode must be 'deferred' or 'exact', got {mode!r}")
    _library.set_raise_mode(RAISE_MODES.index(mode))


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    _line_of_launch.clear()
    _line_of_captured.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def _read_environment() -> None:
    text = os.environ.get("SAFEOPS_RAISE_MODE", "")
    if text:
        set_raise_mode(text, f"SAFEOPS_RAISE_MODE={text!r}")


_read_environment()
