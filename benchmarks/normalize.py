"""What normalize is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from comparisons import (
    Comparison,
    Fused,
    Operator,
    Shape,
    against_peers,
    label,
    one_pass,
    own_settings,
    threads_2_against_1,
)
from timing import Contender

import safeops

L2 = [(256, 256), (64, 1024), (1024, 64)]
MB_16 = [(4096, 1024), (65536, 64), (1024, 4096)]
MB_64 = [(4096, 4096)]
TINY_ROWS = [(1 << 20, n) for n in (2, 3, 4, 8)]
CHANNELS = [(16, 256, 56, 56), (1, 3072, 1024)]

NORMALIZE = Operator("normalize", "F.normalize", F.normalize, safeops.normalize, torch.zeros)


def comparisons(
    sized: Callable[[Shape], Shape], with_goals: bool, fused: Fused
) -> Iterator[Comparison]:
    stock = partial(against_peers, NORMALIZE, fused=fused)
    goals_16_mb = {"forward": 1.5, "backward": 6.0} if with_goals else {}
    goals_triples = {"forward": 4.0} if with_goals else {}

    for shape in L2:
        yield from stock("L2", sized(shape))
    for shape in MB_16:
        yield from stock("16 MB", sized(shape), goals=goals_16_mb)
    for shape in MB_64:
        yield from stock("64 MB", sized(shape))
    for shape in TINY_ROWS:
        goals = goals_triples if shape[-1] == 3 else {}
        yield from stock("tiny rows", sized(shape), goals=goals)
    for shape in CHANNELS:
        yield from stock("dim=1", sized(shape), dim=1)
    yield from stock("call", (4, 4))
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        yield from stock("dtype", sized((4096, 1024)), dtype=dtype)
    for shape in (*MB_16, *MB_64):
        yield against_copy(sized(shape))
    shapes = [sized(shape) for shape in ((256, 256), (4096, 1024), (1 << 20, 3))]
    yield from own_settings(NORMALIZE, str, shapes)
    for shape in (*MB_16, *MB_64, (1 << 20, 3)):
        yield from stock("2 threads", sized(shape), threads=2)
    yield from stock("2 threads", sized(CHANNELS[0]), dim=1, threads=2)
    for name in ("forward", "backward"):
        for shape in ((1024, 1024), (4096, 1024)):
            yield threads_2_against_1(NORMALIZE, "scaling", name, sized(shape))


def against_copy(shape: Shape) -> Comparison:
    def contenders() -> list[Contender]:
        x = torch.randn(shape)
        return [
            Contender("clone", x.clone),
            Contender("safeops", one_pass("forward", partial(safeops.normalize, dim=-1), x)),
        ]

    what = f"forward {label(shape, -1, torch.float32)}"
    return Comparison("copy", what, math.prod(shape), 1, contenders)
