"""Where events and counters can go.

`LoggingSink`, `JsonlSink`, `RingBuffer` and `NeuralDbgSink` take events
(:func:`safeops.diagnostics.add_sink`); any other callable of one argument is a sink as well.
`PrometheusCollector` and `TensorBoardTotals` read the counters, so they also see compiled code and
C++ callers. What needs another package imports it when it is made.

>>> log = safeops.sinks.JsonlSink("hits.jsonl")
>>> with safeops.diagnostics.add_sink(log):
...     train()
"""

from safeops.sinks._jsonl import JsonlSink
from safeops.sinks._logging import LoggingSink
from safeops.sinks._neuraldbg import NeuralDbgSink
from safeops.sinks._prometheus import PrometheusCollector
from safeops.sinks._ring_buffer import RingBuffer
from safeops.sinks._tensorboard import TensorBoardTotals

__all__ = [
    "JsonlSink",
    "LoggingSink",
    "NeuralDbgSink",
    "PrometheusCollector",
    "RingBuffer",
    "TensorBoardTotals",
]
