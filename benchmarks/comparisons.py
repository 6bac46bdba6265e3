"""What is compared with what."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch
import torch.nn.functional as F
from timing import Contender

import safeops

Shape = tuple[int, ...]
Normalize = Callable[..., torch.Tensor]

PASSES = ("forward", "forward+backward", "backward")

L2 = [(256, 256), (64, 1024), (1024, 64)]
MB_16 = [(4096, 1024), (65536, 64), (1024, 4096)]
MB_64 = [(4096, 4096)]
TINY_ROWS = [(1 << 20, n) for n in (2, 3, 4, 8)]
CHANNELS = [(16, 256, 56, 56), (1, 3072, 1024)]


@dataclass(frozen=True)
class Comparison:
    """Contenders of which the last is the product and the others its peers.

    `goal` is the ratio to the first peer that the product must reach.
    """

    group: str
    what: str
    elements: int
    threads: int
    contenders: Callable[[], list[Contender]]
    goal: float | None = None


def smaller(shape: Shape) -> Shape:
    """A shape of the same kind for trying the benchmark itself."""
    return tuple(size if size <= 16 else max(2, size // 64) for size in shape)


def label(shape: Shape, dim: int, dtype: torch.dtype) -> str:
    return f"{'x'.join(map(str, shape))} dim={dim} {str(dtype).removeprefix('torch.')}"


def one_pass(name: str, normalize: Normalize, x: torch.Tensor, dim: int) -> Callable[[], object]:
    if name == "forward":
        return partial(normalize, x, dim=dim)
    x = x.clone().requires_grad_()
    gradient = torch.randn_like(x)
    if name == "forward+backward":
        return lambda: torch.autograd.grad(normalize(x, dim=dim), x, gradient)
    y = normalize(x, dim=dim)
    return partial(torch.autograd.grad, y, x, gradient, retain_graph=True)


def against_stock(
    group: str,
    shape: Shape,
    *,
    dim: int = -1,
    dtype: torch.dtype = torch.float32,
    threads: int = 1,
    compiled: bool = False,
    goals: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Comparison]:
    def contenders(name: str) -> list[Contender]:
        x = torch.randn(shape).to(dtype)
        peers: dict[str, Normalize] = {"F.normalize": F.normalize}
        # A compiled backward gives its saved tensors away and cannot run twice.
        if compiled and name != "backward":
            torch.compiler.reset()
            peers["compiled F.normalize"] = torch.compile(F.normalize, dynamic=False)
        peers["safeops"] = safeops.normalize
        return [Contender(peer, one_pass(name, call, x, dim)) for peer, call in peers.items()]

    for name in PASSES:
        yield Comparison(
            group,
            f"{name} {label(shape, dim, dtype)}",
            math.prod(shape),
            threads,
            partial(contenders, name),
            goals.get(name),
        )


def against_copy(shape: Shape) -> Comparison:
    def contenders() -> list[Contender]:
        x = torch.randn(shape)
        return [
            Contender("clone", x.clone),
            Contender("safeops", one_pass("forward", safeops.normalize, x, -1)),
        ]

    what = f"forward {label(shape, -1, torch.float32)}"
    return Comparison("copy", what, math.prod(shape), 1, contenders)


def threads_2_against_1(name: str, shape: Shape) -> Comparison:
    def contenders() -> list[Contender]:
        call = one_pass(name, safeops.normalize, torch.randn(shape), -1)
        return [
            Contender(f"{threads} threads", call, partial(torch.set_num_threads, threads))
            for threads in (1, 2)
        ]

    what = f"{name} {label(shape, -1, torch.float32)}"
    return Comparison("scaling", what, math.prod(shape), 2, contenders)


def zero_policy_against_stock(name: str, shape: Shape) -> Comparison:
    def contenders() -> list[Contender]:
        x = torch.randn(shape)
        return [
            Contender(policy, one_pass(name, partial(safeops.normalize, policy=policy), x, -1))
            for policy in ("stock", "zero")
        ]

    what = f"{name} {label(shape, -1, torch.float32)}"
    return Comparison("policy, no hits", what, math.prod(shape), 1, contenders)


def all_rows_zero_against_none(name: str, shape: Shape) -> Comparison:
    def contenders() -> list[Contender]:
        normalize = partial(safeops.normalize, policy="zero")
        return [
            Contender("no zero row", one_pass(name, normalize, torch.randn(shape), -1)),
            Contender("all rows zero", one_pass(name, normalize, torch.zeros(shape), -1)),
        ]

    what = f"{name} {label(shape, -1, torch.float32)} zero"
    return Comparison("hits", what, math.prod(shape), 1, contenders)


def counting_against_none(name: str, shape: Shape, hits: bool) -> Comparison:
    def contenders() -> list[Contender]:
        x = torch.zeros(shape) if hits else torch.randn(shape)
        call = one_pass(name, partial(safeops.normalize, policy="zero"), x, -1)
        return [
            Contender(f"level {level}", call, partial(safeops.diagnostics.set_level, level))
            for level in (0, 1)
        ]

    what = f"{name} {label(shape, -1, torch.float32)} {'all rows hit' if hits else 'no hits'}"
    return Comparison("counting", what, math.prod(shape), 1, contenders)


def comparisons(quick: bool, compiled: bool) -> Iterator[Comparison]:
    sized: Callable[[Shape], Shape] = smaller if quick else lambda shape: shape
    stock = partial(against_stock, compiled=compiled)
    goals_16_mb = {} if quick else {"forward": 1.5, "backward": 6.0}
    goals_triples = {} if quick else {"forward": 4.0}

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
    yield from own_settings(sized)
    for shape in (*MB_16, *MB_64, (1 << 20, 3)):
        yield from stock("2 threads", sized(shape), threads=2)
    yield from stock("2 threads", sized(CHANNELS[0]), dim=1, threads=2)
    for name in ("forward", "backward"):
        yield threads_2_against_1(name, sized((1024, 1024)))
        yield threads_2_against_1(name, sized((4096, 1024)))


def own_settings(sized: Callable[[Shape], Shape]) -> Iterator[Comparison]:
    for shape in (*MB_16, *MB_64):
        yield against_copy(sized(shape))
    shapes = [sized(shape) for shape in ((256, 256), (4096, 1024), (1 << 20, 3))]
    for name in ("forward", "backward"):
        for shape in shapes:
            yield zero_policy_against_stock(name, shape)
        for shape in shapes:
            yield all_rows_zero_against_none(name, shape)
        for hits in (False, True):
            for shape in shapes:
                yield counting_against_none(name, shape, hits)
