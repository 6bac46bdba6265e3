"""The latest events, in memory."""

from __future__ import annotations

from collections import deque

from safeops._events import Event


class RingBuffer:
    """Keeps the latest events; older ones make room.

    Args:
        capacity: how many events it holds.

    Raises:
        ValueError: if `capacity` is not an integer from 1.

    Example:
        >>> latest = safeops.sinks.RingBuffer(100)
        >>> attachment = safeops.diagnostics.add_sink(latest, synchronous=True)
        >>> y = safeops.normalize(torch.zeros(4, 3), policy="zero")
        >>> latest.events()[-1].count
        4
    """

    def __init__(self, capacity: int = 1024) -> None:
        if type(capacity) is not int or capacity < 1:
            raise ValueError(
                f"safeops.sinks.RingBuffer: capacity must be an integer from 1, got {capacity!r}"
            )
        self._events: deque[Event] = deque(maxlen=capacity)

    def __call__(self, event: Event) -> None:
        self._events.append(event)

    def __len__(self) -> int:
        return len(self._events)

    def events(self) -> list[Event]:
        """The events held, oldest first."""
        # To iterate over a deque to which another thread or a destructor appends is an error; a
        # copy is made in one go.
        return list(self._events.copy())

    def clear(self) -> None:
        """Forgets them."""
        self._events.clear()
