"""Events as records of the standard library's logging."""

from __future__ import annotations

import logging

from safeops._events import Event


class LoggingSink:
    """Logs one line for an event; the event itself is the record's attribute ``event``.

    Args:
        logger: a logger or the name of one; the logger ``"safeops"`` if left out.
        level: level of the records.

    Example:
        >>> safeops.diagnostics.add_sink(safeops.sinks.LoggingSink(level=logging.INFO))
    """

    def __init__(
        self, logger: logging.Logger | str | None = None, level: int = logging.WARNING
    ) -> None:
        if logger is None or isinstance(logger, str):
            logger = logging.getLogger(logger or "safeops")
        self._logger = logger
        self._level = level

    def __call__(self, event: Event) -> None:
        self._logger.log(
            self._level,
            "safeops.%s: %d of %d singular in %s (%s, policy %s) at %s:%d in %s",
            event.operator,
            event.count,
            event.rows,
            event.direction,
            event.condition,
            event.policy,
            event.filename,
            event.lineno,
            event.module or event.function,
            extra={"event": event},
        )
