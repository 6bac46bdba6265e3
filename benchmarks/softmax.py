"""What softmax, log_softmax and logsumexp are compared with, and softmax's `where`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from comparisons import (
    Call,
    Comparison,
    Fused,
    Operator,
    Shape,
    against_peers,
    own_settings,
    threads_2_against_1,
)

import safeops

Goals = Mapping[str, float]

L2 = [(1024, 64), (256, 256), (64, 1024)]
MB_16 = [(65536, 64), (4096, 1024), (1024, 4096)]
MB_64 = [(4096, 4096)]
VOCABULARY = [(64, 32000), (8, 128256)]
ONE_ROW = (1, 1 << 24)
ATTENTION = (8, 16, 197, 197)
TINY_ROWS = [(1 << 20, n) for n in (2, 3, 4, 8)]
CHANNELS = [(16, 256, 56, 56), (1, 3072, 1024)]

NO_GOALS: Goals = {}


def empty_rows(shape: Shape) -> torch.Tensor:
    return torch.full(shape, -math.inf)


SOFTMAX = Operator("softmax", "F.softmax", F.softmax, safeops.softmax, empty_rows, "softmax")
LOG_SOFTMAX = Operator(
    "log_softmax", "F.log_softmax", F.log_softmax, safeops.log_softmax, empty_rows, "log_softmax"
)
LOGSUMEXP = Operator(
    "logsumexp", "torch.logsumexp", torch.logsumexp, safeops.logsumexp, empty_rows, "logsumexp"
)


def comparisons(
    sized: Callable[[Shape], Shape], with_goals: bool, fused: Fused
) -> Iterator[Comparison]:
    def goal(**goals: float) -> Goals:
        return goals if with_goals else NO_GOALS

    yield from softmax(sized, goal, fused)
    yield from log_softmax(sized, fused)
    yield from logsumexp(sized, goal, fused)
    yield from masked(sized, goal, fused)
    shapes = [sized(shape) for shape in ((256, 256), (4096, 1024), (1 << 20, 3))]
    yield from own_settings(SOFTMAX, lambda kind: f"softmax ({kind})", shapes)
    yield from two_threads(sized, goal, fused)


def softmax(
    sized: Callable[[Shape], Shape], goal: Callable[..., Goals], fused: Fused
) -> Iterator[Comparison]:
    def stock(kind: str, shape: Shape, **options: object) -> Iterator[Comparison]:
        return against_peers(SOFTMAX, f"softmax ({kind})", sized(shape), fused=fused, **options)

    for shape in L2:
        forward = 2.2 if shape[-1] == 64 else 1.8
        yield from stock("L2", shape, goals=goal(forward=forward, backward=2.0))
    for shape in MB_16:
        forward = 2.2 if shape[-1] == 64 else 1.9
        yield from stock("16 MB", shape, goals=goal(forward=forward, backward=1.1))
    for shape in MB_64:
        yield from stock("64 MB", shape, goals=goal(forward=1.5, backward=1.05))
    for shape in VOCABULARY:
        yield from stock("vocabulary", shape, goals=goal(forward=2.0))
    yield from stock("one row", ONE_ROW, goals=goal(forward=1.6))
    yield from stock("attention", ATTENTION)
    for shape in TINY_ROWS:
        yield from stock("tiny rows", shape, goals=goal(forward=40.0))
    yield from stock("dim=1", CHANNELS[0], dim=1, goals=goal(forward=2.5))
    yield from stock("dim=1", CHANNELS[1], dim=1, goals=goal(forward=5.0))
    for dtype in (torch.bfloat16, torch.float16):
        yield from stock("dtype", (4096, 1024), dtype=dtype)
    yield from against_peers(SOFTMAX, "softmax (call)", (4, 4), fused=fused)


def log_softmax(sized: Callable[[Shape], Shape], fused: Fused) -> Iterator[Comparison]:
    def stock(kind: str, shape: Shape, **options: object) -> Iterator[Comparison]:
        group = f"log_softmax ({kind})"
        return against_peers(LOG_SOFTMAX, group, sized(shape), fused=fused, **options)

    for shape in L2:
        yield from stock("L2", shape)
    yield from stock("16 MB", (4096, 1024))
    for shape in MB_64:
        yield from stock("64 MB", shape)
    for shape in VOCABULARY:
        yield from stock("vocabulary", shape)
    yield from stock("tiny rows", (1 << 20, 3))
    yield from stock("dim=1", CHANNELS[0], dim=1)
    for dtype in (torch.bfloat16, torch.float16):
        yield from stock("dtype", (4096, 1024), dtype=dtype)
    yield from against_peers(LOG_SOFTMAX, "log_softmax (call)", (4, 4), fused=fused)


def logsumexp(
    sized: Callable[[Shape], Shape], goal: Callable[..., Goals], fused: Fused
) -> Iterator[Comparison]:
    def stock(kind: str, shape: Shape, **options: object) -> Iterator[Comparison]:
        group = f"logsumexp ({kind})"
        return against_peers(LOGSUMEXP, group, sized(shape), fused=fused, **options)

    for shape in L2:
        yield from stock("L2", shape)
    for shape in MB_16:
        goals = goal(forward=3.0) if shape[-1] == 64 else goal(forward=5.0, backward=5.0)
        yield from stock("16 MB", shape, goals=goals)
    for shape in MB_64:
        yield from stock("64 MB", shape, goals=goal(forward=3.5, backward=4.0))
    for shape in VOCABULARY:
        yield from stock("vocabulary", shape)
    yield from stock("one row", ONE_ROW)
    for shape in TINY_ROWS:
        yield from stock("tiny rows", shape)
    for shape in CHANNELS:
        yield from stock("dim=1", shape, dim=1)
    for dtype in (torch.bfloat16, torch.float16):
        yield from stock("dtype", (4096, 1024), dtype=dtype)
    yield from against_peers(LOGSUMEXP, "logsumexp (call)", (4, 4), fused=fused)


def masked(
    sized: Callable[[Shape], Shape], goal: Callable[..., Goals], fused: Fused
) -> Iterator[Comparison]:
    """With the recipe that is right at empty rows, and with the quicker one that is not."""
    batch, _, _, keys = attention = sized(ATTENTION)
    masks = (
        (attention, (batch, 1, 1, keys), " keys masked"),
        (attention, attention, " masked"),
        (sized((4096, 1024)), sized((4096, 1024)), " masked"),
    )
    for shape, mask_shape, note in masks:
        generator = torch.Generator().manual_seed(0)
        where = torch.rand(mask_shape, generator=generator) < 0.75
        product = partial(safeops.softmax, where=where, policy="zero")
        for name, recipe, ratio in (
            ("masked_fill, where", masked_fill_then_where(where), 10.0),
            ("masked_fill", masked_fill(where), 7.0),
        ):
            operator = Operator("softmax", name, recipe, product, empty_rows, "softmax")
            yield from against_peers(
                operator,
                "softmax (where)",
                shape,
                where=where,
                note=note,
                # Once beside the compilers is enough.
                fused=fused if ratio == 10.0 else Fused(),
                goals=goal(forward=ratio),
            )


def masked_fill(where: torch.Tensor) -> Call:
    left_out = ~where

    def recipe(x: torch.Tensor, dim: int) -> torch.Tensor:
        return F.softmax(x.masked_fill(left_out, -math.inf), dim=dim)

    return recipe


def masked_fill_then_where(where: torch.Tensor) -> Call:
    quick = masked_fill(where)

    def recipe(x: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.where(where, quick(x, dim), 0.0)

    return recipe


def two_threads(
    sized: Callable[[Shape], Shape], goal: Callable[..., Goals], fused: Fused
) -> Iterator[Comparison]:
    stock = partial(against_peers, SOFTMAX, "softmax (2 threads)", fused=fused, threads=2)
    for shape in (*MB_16[1:], *MB_64, ATTENTION):
        yield from stock(sized(shape))
    yield from stock(sized(ONE_ROW), goals=goal(forward=2.2))
    yield from stock(sized(CHANNELS[0]), dim=1)
    for name in ("forward", "backward"):
        for shape in ((1024, 1024), (4096, 1024)):
            yield threads_2_against_1(SOFTMAX, "softmax (scaling)", name, sized(shape))
