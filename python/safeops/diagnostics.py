"""What the operators met: counters of singular rows and elements, and the lines that met them.

A *hit* is one singular row (or element) met by one execution of a forward or backward kernel. A
*notice* (``nonfinite_input``, ``rescued``, ``finite_min_row``) is counted in the same way, but it
changes no value, never warns and belongs to no line. Hits of compiled graphs and of C++ callers are
counted, and belong to no line either; nor do those of CUDA tensors, unless :func:`raise_mode` is
``"exact"``.

What is counted where the line is known is also published as an :class:`Event` to the sinks that
were attached with :func:`add_sink`; :mod:`safeops.sinks` has some.

Example:
    >>> safeops.diagnostics.reset()
    >>> y = safeops.normalize(torch.zeros(4, 3), policy="zero")
    >>> safeops.diagnostics.snapshot().total(operator="normalize", direction="forward")
    4
"""

from __future__ import annotations

from safeops import _call_lines, _deferred, _events, _library
from safeops._all_reduce import all_reduce
from safeops._attachment import Attachment
from safeops._events import Event, Frame, add_sink, remove_sink, set_step, step
from safeops._snapshot import Record, Site, Snapshot, snapshot

__all__ = [
    "Attachment",
    "Event",
    "Frame",
    "Record",
    "Site",
    "Snapshot",
    "add_sink",
    "all_reduce",
    "check",
    "flush",
    "level",
    "raise_mode",
    "remove_sink",
    "reset",
    "set_level",
    "set_raise_mode",
    "set_step",
    "snapshot",
    "step",
]


def reset() -> None:
    """Sets every counter and line to zero and lets every line warn again.

    What backward passes have hit until then is published, and not warned of.
    """
    _call_lines.join_backward_hits(warn=False)
    _library.reset()
    _call_lines.reset()


def flush(timeout: float | None = None) -> bool:
    """Waits until the sinks have been called with the events of the calls that have returned.

    Backward hits are joined with their lines first, in this thread: this calls the synchronous
    sinks, gives late warnings, and raises what those raise (a warning that is an error,
    KeyboardInterrupt). A call that another thread is making, and a synchronous sink that it is
    calling, is not waited for. What has no line (compiled code, C++ callers, backward hits that a
    full ring dropped) is counted and in no event.

    Args:
        timeout: seconds to wait for sinks with a thread of their own; without one a sink that
            blocks is waited for forever. Synchronous sinks are not bounded by it.

    Returns:
        Whether all of it was delivered, also where a sink raised. Inside a sink it does not wait
        and returns False.

    Example:
        >>> seen = []
        >>> attachment = safeops.diagnostics.add_sink(seen.append)
        >>> y = safeops.normalize(torch.zeros(4, 3), policy="zero")
        >>> safeops.diagnostics.flush(), sum(event.count for event in seen)
        (True, 4)
    """
    _call_lines.join_backward_hits()
    return _events.flush(timeout)


def level() -> int:
    """How much is recorded.

    0: nothing, and nothing warns. 1: counters, and the line of eager calls that hit (default). 2:
    also the shape and the dtype of the first offender. 3: also the stack of every line that hits
    and the path of the ``nn.Module`` that called; a call without a hit costs what it costs at 1.
    """
    return int(_library.level())


def set_level(level: int) -> None:
    """Sets how much is recorded, for the whole process; see :func:`level`.

    Raises:
        ValueError: for anything but 0, 1, 2 or 3; nothing is changed.
    """
    if type(level) is not int or not _library.set_level(level):
        raise ValueError(
            f"safeops.diagnostics.set_level: level must be 0, 1, 2 or 3, got {level!r}"
        )


def raise_mode() -> str:
    """When policy ``raise`` raises for what a CUDA kernel met; other devices always raise at once.

    ``"deferred"`` (default): in the next call on a CUDA tensor, in a backward pass or in
    :func:`check`, in the name of the earlier call. No call waits for its kernel; hits are counted,
    without a line, a warning or an event. ``"exact"``: in the call itself. Every call on a CUDA
    tensor then waits for its kernel, and hits are treated as on the CPU.
    """
    return _deferred.raise_mode()


def set_raise_mode(mode: str) -> None:
    """Sets the raise mode for the whole process; see :func:`raise_mode`.

    The environment variable ``SAFEOPS_RAISE_MODE``, read at import, sets it as well. Calls that are
    captured in a CUDA graph are deferred under either mode.

    Raises:
        ValueError: for anything but ``"deferred"`` and ``"exact"``; nothing is changed.
    """
    _deferred.set_raise_mode(mode, "safeops.diagnostics.set_raise_mode")


def check() -> None:
    """Raises the error of policy ``raise`` that CUDA calls have left behind, once they are done.

    Waits for the current streams of this thread, on every device in use. To be called after the
    last step, before a checkpoint is written, and after the replay of a CUDA graph: what a deferred
    call met is otherwise raised by the next call on a CUDA tensor. Does nothing without CUDA, and
    while this thread captures a graph.

    Raises:
        SingularityError: with the fields of the call that met it, but that ``count`` is 1 and
            ``condition`` what most rows of the operator have met of late. Its text names the line
            of an eager call.
        RuntimeError: if a device has failed.

    Example:
        >>> safeops.diagnostics.check()
    """
    _deferred.check()
