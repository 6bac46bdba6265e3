"""Events for NeuralDBG."""

from __future__ import annotations

import os
from typing import Any

from safeops._events import Event
from safeops.sinks._optional import import_for


class NeuralDbgSink:
    """Puts events among those of a NeuralDBG session, as data anomalies.

    They stand where they happened: the sink is synchronous, and carries the session's own step. The
    layer is named by the module path (level 3) or the function, and by the line, which is what
    NeuralDBG's explanations and graphs show; operator, condition, counts and policy are in the
    metadata.

    NeuralDBG keeps all its events in memory, one for every execution that hits and none is dropped:
    for a long run that hits often, attach the sink for a part of it.

    Args:
        dbg: a ``neuraldbg.NeuralDbg``.

    Raises:
        ImportError: without ``neuraldbg`` (``pip install safeops[neuraldbg]``).
        TypeError: if `dbg` has no list of events and no step.

    Example:
        >>> with NeuralDbg(model) as dbg:
        ...     with safeops.diagnostics.add_sink(safeops.sinks.NeuralDbgSink(dbg)):
        ...         train(model)
        >>> dbg.explain_failure("data_anomaly")
    """

    synchronous = True

    def __init__(self, dbg: Any) -> None:
        package = import_for("NeuralDbgSink", "neuraldbg", "neuraldbg")
        if not isinstance(getattr(dbg, "events", None), list) or not hasattr(dbg, "step"):
            raise TypeError(
                f"safeops.sinks.NeuralDbgSink: dbg must be a neuraldbg.NeuralDbg, got "
                f"{type(dbg).__name__}"
            )
        self._dbg = dbg
        self._make, self._kind = package.SemanticEvent, package.EventType.DATA_ANOMALY

    def __call__(self, event: Event) -> None:
        # Its exports take flat scalars only.
        metadata: dict[str, str | int | float] = {
            "source": "safeops",
            "operator": event.operator,
            "condition": event.condition,
            "direction": event.direction,
            "policy": event.policy,
            "device": event.device,
            "count": event.count,
            "rows": event.rows,
            "first_row": event.first_row,
            "shape": "x".join(map(str, event.shape)),
            "dtype": event.dtype,
            "filename": event.filename,
            "lineno": event.lineno,
            "function": event.function,
            "module": event.module or "",
        }
        place = f"{os.path.basename(event.filename)}:{event.lineno}"
        self._dbg.events.append(
            self._make(
                event_type=self._kind,
                layer_name=f"{event.module or event.function} ({place})",
                step=self._dbg.step,
                from_state="normal",
                to_state=event.condition,
                confidence=1.0,
                metadata=metadata,
            )
        )
