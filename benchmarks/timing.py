"""Times callables against each other: interleaved rounds after warm-up, so that what disturbs the
machine disturbs them all alike."""

from __future__ import annotations

import gc
import math
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass


@dataclass(frozen=True)
class Contender:
    """What is timed. `prepare` runs before every sample and `scope` is entered around it, outside
    the clock."""

    name: str
    call: Callable[[], object]
    prepare: Callable[[], None] = lambda: None
    scope: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True)
class Plan:
    rounds: int
    sample_seconds: float
    clock: Callable[[], float]
    warm_up_seconds: float = 1.0


@dataclass(frozen=True)
class Spread:
    median: float
    p5: float
    p95: float


def spread(values: Sequence[float]) -> Spread:
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return Spread(statistics.median(values), cuts[0], cuts[-1])


def _sample(contender: Contender, calls: int, clock: Callable[[], float]) -> float:
    contender.prepare()
    call = contender.call
    with contender.scope():
        start = clock()
        for _ in range(calls):
            call()
        return (clock() - start) / calls


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _warm_up(contenders: Sequence[Contender], calls: Sequence[int], plan: Plan) -> None:
    # The allocator hands out ever new pages of its padding before it comes back to used ones.
    deadline = time.perf_counter() + plan.warm_up_seconds
    while time.perf_counter() < deadline:
        before = page_faults()
        for contender, count in zip(contenders, calls, strict=True):
            _sample(contender, count, plan.clock)
        if page_faults() == before:
            return


def _calls_per_sample(contender: Contender, plan: Plan) -> int:
    _sample(contender, 1, plan.clock)
    seconds = _sample(contender, 3, plan.clock)
    return max(1, math.ceil(plan.sample_seconds / max(seconds, 1e-9)))


def measure(contenders: Sequence[Contender], plan: Plan) -> list[list[float]]:
    """Seconds per call of every contender in every round."""
    calls = [_calls_per_sample(contender, plan) for contender in contenders]
    _warm_up(contenders, calls, plan)
    seconds: list[list[float]] = [[] for _ in contenders]
    gc.collect()
    gc.disable()
    try:
        for _ in range(plan.rounds):
            for contender, count, samples in zip(contenders, calls, seconds, strict=True):
                samples.append(_sample(contender, count, plan.clock))
    finally:
        gc.enable()
    return seconds
