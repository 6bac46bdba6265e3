"""What patching, counting, sinks and audits cost: the same calls with and without them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from comparisons import Comparison, Fused, Shape, one_pass
from timing import Contender
from torch import nn

import safeops

Scope = Callable[[], AbstractContextManager[object]]

CALL = (4, 4)
PASSES = ("forward", "forward+backward")
POLICY = "zero"

# Beside level 1, in a call that meets nothing.
LEVEL_3_GOAL = 0.95

patched: Scope = partial(safeops.patch, policy=POLICY)
observed: Scope = partial(safeops.patch, observe=True)

# The stock call, and ours that a patch answers it with.
INTERCEPTED: Mapping[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "F.normalize": (F.normalize, partial(safeops.normalize, policy=POLICY)),
    "F.softmax": (
        partial(F.softmax, dim=-1),
        partial(safeops.softmax, dim=-1, policy=POLICY),
    ),
    "x.softmax": (
        partial(torch.Tensor.softmax, dim=-1),
        partial(safeops.softmax, dim=-1, policy=POLICY),
    ),
    "a / b": (operator.truediv, partial(safeops.div, policy=POLICY)),
}
PASSED_BY: Mapping[str, Callable[..., torch.Tensor]] = {
    "torch.add": torch.add,
    "F.relu": lambda a, b: F.relu(a),
    "matmul": torch.matmul,
}


def comparisons(
    sized: Callable[[Shape], Shape], with_goals: bool, fused: Fused
) -> Iterator[Comparison]:
    for name in INTERCEPTED:
        yield from intercepted(name)
    for name in PASSED_BY:
        yield passed_by(name, patched, "patch")
        yield passed_by(name, observed, "observe")
    for scope, product in ((patched, "patch"), (observed, "observe")):
        yield from inside_a_module(scope, product)
    for hits in (False, True):
        yield from levels(hits, LEVEL_3_GOAL if with_goals and not hits else None)
    for hits in (False, True):
        yield from sinks(hits)
    for hits in (False, True):
        yield from training(hits)


def operands(name: str) -> list[torch.Tensor]:
    x = torch.rand(CALL) + 0.5
    return [torch.randn(CALL), x] if name == "a / b" else [x]


def label(name: str, what: str, shape: Shape = CALL, note: str = "") -> str:
    return f"{name} {what} {'x'.join(map(str, shape))}{note}"


def intercepted(what: str) -> Iterator[Comparison]:
    stock, ours = INTERCEPTED[what]

    def under_a_patch(name: str) -> list[Contender]:
        inputs = operands(what)
        return [
            Contender("stock", one_pass(name, stock, *inputs)),
            Contender("direct", one_pass(name, ours, *inputs)),
            Contender("patch", one_pass(name, stock, *inputs), scope=patched),
        ]

    def observing(name: str) -> list[Contender]:
        inputs = operands(what)
        return [
            Contender("stock", one_pass(name, stock, *inputs)),
            Contender("observe", one_pass(name, stock, *inputs), scope=observed),
        ]

    for contenders in (under_a_patch, observing):
        for name in PASSES:
            yield Comparison(
                "patch (covered call)",
                label(name, what),
                math.prod(CALL),
                1,
                partial(contenders, name),
            )


def passed_by(what: str, scope: Scope, product: str) -> Comparison:
    def contenders() -> list[Contender]:
        call = partial(PASSED_BY[what], torch.randn(CALL), torch.randn(CALL))
        return [Contender("stock", call), Contender(product, call, scope=scope)]

    return Comparison("patch (other call)", label("forward", what), math.prod(CALL), 1, contenders)


class Attention(nn.Module):
    """A module that a patch reaches in two places, the second through a child."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        unit = F.normalize(x, dim=-1)
        return self.softmax(unit @ unit.mT) @ x


def inside_a_module(scope: Scope, product: str) -> Iterator[Comparison]:
    shape = (16, 16)

    def contenders(name: str) -> list[Contender]:
        call = one_pass(name, Attention(), torch.randn(shape))
        return [Contender("stock", call), Contender(product, call, scope=scope)]

    for name in PASSES:
        what = label(name, "attention", shape)
        yield Comparison("patch (module)", what, math.prod(shape), 1, partial(contenders, name))


def normalize_call(name: str, hits: bool) -> Callable[[], object]:
    x = torch.zeros(CALL) if hits else torch.randn(CALL)
    return one_pass(name, partial(safeops.normalize, dim=-1, policy=POLICY), x)


def hits_or_none(hits: bool) -> str:
    return " all rows hit" if hits else " no hits"


@contextmanager
def level(value: int) -> Iterator[None]:
    before = safeops.diagnostics.level()
    safeops.diagnostics.set_level(value)
    try:
        yield
    finally:
        safeops.diagnostics.set_level(before)


def levels(hits: bool, goal: float | None) -> Iterator[Comparison]:
    def contenders(name: str) -> list[Contender]:
        call = normalize_call(name, hits)
        return [
            Contender(f"level {value}", call, scope=partial(level, value)) for value in (1, 0, 3)
        ]

    for name in PASSES:
        what = label(name, "normalize", note=hits_or_none(hits))
        yield Comparison("level", what, math.prod(CALL), 1, partial(contenders, name), goal)


def sinks(hits: bool) -> Iterator[Comparison]:
    def contenders(name: str, synchronous: bool) -> list[Contender]:
        call = normalize_call(name, hits)
        attach = partial(safeops.diagnostics.add_sink, lambda event: None, synchronous=synchronous)
        product = "synchronous" if synchronous else "sink"
        return [Contender("no sink", call), Contender(product, call, scope=attach)]

    for name in PASSES:
        for synchronous in (False, True):
            what = label(name, "normalize", note=hits_or_none(hits))
            chosen = partial(contenders, name, synchronous)
            yield Comparison("sink", what, math.prod(CALL), 1, chosen)


def training_step(hits: bool) -> Callable[[], object]:
    """A step on a batch of 64, of which every eighth sample may be zero."""
    x, target = torch.randn(64, 64), torch.randint(10, (64,))
    if hits:
        x[::8] = 0
    # Without biases a sample of zeros has features of zeros.
    features = nn.Sequential(
        nn.Linear(64, 128, bias=False), nn.ReLU(), nn.Linear(128, 32, bias=False)
    )
    classes = nn.Linear(32, 10)
    # A rate of 0: the gradient of the stock function at a zero row ends no training here.
    optimizer = torch.optim.SGD([*features.parameters(), *classes.parameters()], lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        unit = F.normalize(features(x), dim=-1)
        F.cross_entropy(classes(unit), target).backward()
        optimizer.step()

    return step


TRAINING: Mapping[str, Scope] = {
    "patch": patched,
    "observe": observed,
    "audit": safeops.audit,
    "audit(policy)": partial(safeops.audit, POLICY),
}


def training(hits: bool) -> Iterator[Comparison]:
    def contenders(product: str) -> list[Contender]:
        step = training_step(hits)
        return [
            Contender("none", step, scope=nullcontext),
            Contender(product, step, scope=TRAINING[product]),
        ]

    for product in TRAINING:
        what = f"step of a small network{' 1/8 of rows hit' if hits else ' no hits'}"
        yield Comparison("audit (training)", what, 64, 1, partial(contenders, product))
