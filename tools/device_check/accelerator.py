"""The device under check: a GPU, or in a dry run the CPU in its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

Call = Callable[[], object]


class Accelerator(Protocol):
    device: str
    defers: bool  # whether policy raise is told of after the call

    def synchronize(self) -> None: ...

    def capture(self, call: Call) -> Call:
        """Something that repeats the call; the call itself is not made."""

    def seconds(self, call: Call, repetitions: int) -> float:
        """Per call."""


class Gpu:
    device = "cuda"
    defers = True

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def capture(self, call: Call) -> Call:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    def seconds(self, call: Call, repetitions: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repetitions):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / repetitions


class Cpu:
    device = "cpu"
    defers = False

    def synchronize(self) -> None:
        pass

    def capture(self, call: Call) -> Call:
        return call

    def seconds(self, call: Call, repetitions: int) -> float:
        start = time.perf_counter()
        for _ in range(repetitions):
            call()
        return (time.perf_counter() - start) / repetitions


def accelerator(dry: bool) -> Accelerator:
    return Cpu() if dry else Gpu()
