"""Counters for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from safeops import _library
from safeops.sinks._optional import import_for


class PrometheusCollector:
    """Shows the counters to Prometheus: ``safeops_singular_total`` and ``safeops_notice_total``.

    Both have the labels operator, condition, direction and device. They are read when Prometheus
    asks, so nothing is to be attached, and compiled code and C++ callers are in them. After
    :func:`safeops.diagnostics.reset` they start at 0, which Prometheus takes for a restart.

    Args:
        registry: the ``prometheus_client`` registry to register with; its global one if left out.

    Raises:
        ImportError: without ``prometheus_client`` (``pip install safeops[prometheus]``).
        ValueError: from ``prometheus_client``, if the registry has such a collector.

    Example:
        >>> collector = safeops.sinks.PrometheusCollector()
        >>> prometheus_client.start_http_server(8000)
    """

    def __init__(self, registry: Any = None) -> None:
        client = import_for("PrometheusCollector", "prometheus_client", "prometheus")
        self._family = import_for(
            "PrometheusCollector", "prometheus_client.core", "prometheus"
        ).CounterMetricFamily
        self._registry = client.REGISTRY if registry is None else registry
        self._registry.register(self)

    def describe(self) -> Iterator[Any]:
        """The metrics without samples; called by the registry."""
        labels = ["operator", "condition", "direction", "device"]
        yield self._family(
            "safeops_singular",
            "Singular rows or elements that safeops operators met.",
            None,
            labels,
        )
        yield self._family(
            "safeops_notice", "Rows that safeops operators took notice of.", None, labels
        )

    def collect(self) -> Iterator[Any]:
        """The metrics; called by the registry."""
        singular, notice = self.describe()
        for record in _library.records(wait=False):
            condition = _library.CONDITIONS[record.condition]
            family = singular if condition in _library.HIT_CONDITIONS else notice
            labels = (
                _library.OPERATORS[record.op],
                condition,
                _library.DIRECTIONS[record.direction],
                _library.DEVICES[record.device],
            )
            family.add_metric(labels, record.count)
        yield singular
        yield notice

    def close(self) -> None:
        """Takes it out of the registry."""
        self._registry.unregister(self)
