"""Optimizer steps: how many an audit has seen, and how many rows hit during each."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

MAX_BINS = 512


@dataclass(frozen=True, slots=True)
class HitsPerStep:
    """Rows hit, forward and backward, per bin of `width` steps; the first bin begins at step 0."""

    width: int
    counts: tuple[int, ...]

    def coarsened(self, width: int) -> HitsPerStep:
        """The same in bins of `width` steps, a multiple of this one."""
        merge = width // self.width
        return HitsPerStep(
            width,
            tuple(sum(self.counts[i : i + merge]) for i in range(0, len(self.counts), merge)),
        )


class StepHistogram:
    """Counts per step in at most 512 bins: they double in width when the steps outgrow them."""

    def __init__(self) -> None:
        self._width = 1
        self._counts: list[int] = []

    def add(self, step: int, count: int) -> None:
        while step // self._width >= MAX_BINS:
            self._width *= 2
            self._counts = [sum(self._counts[i : i + 2]) for i in range(0, len(self._counts), 2)]
        bin_ = step // self._width
        self._counts.extend([0] * (bin_ + 1 - len(self._counts)))
        self._counts[bin_] += count

    def read(self) -> HitsPerStep:
        return HitsPerStep(self._width, tuple(self._counts))


class OptimizerSteps:
    """Counts completed steps; optimizers that take turns, as those of a GAN, make one together.

    A step begins when an optimizer steps that took part in the last one already, or when none that
    took part is left. So the first step of an optimizer beside one that lives is no step of its
    own.

    Args:
        before: called before a step counts, for what still belongs to the step that ends.
        after: called with the number of steps when it has grown.
    """

    def __init__(self, before: Callable[[], None], after: Callable[[int], None]) -> None:
        self.steps = 0
        self._before, self._after = before, after
        self._took_part: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._lock = threading.RLock()

        # Compiled steps break the graph here: a count is no operation on tensors. The optimizers
        # have this decorator, too; torch._dynamo.disable takes seconds to import, step or no step.
        @torch._disable_dynamo
        def stepped(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self._stepped(optimizer)

        self._handle = register_optimizer_step_post_hook(stepped)

    def _stepped(self, optimizer: Optimizer) -> None:
        self._before()
        with self._lock:
            begins = not self._took_part or optimizer in self._took_part
            if begins:
                self._took_part.clear()
                self.steps += 1
            self._took_part.add(optimizer)
            steps = self.steps
        if begins:
            self._after(steps)

    def remove(self) -> None:
        self._handle.remove()
