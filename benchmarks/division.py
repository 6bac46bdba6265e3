"""What div, reciprocal, rsqrt, sqrt and log are compared with: torch's operators, which are not
safe at zero, and the recipe that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax_peer
import torch
from comparisons import Call, Comparison, Fused, Shape, one_pass
from timing import Contender

import safeops

SIZES = {
    "L2": [(1 << 14,), (1 << 16,)],
    "4 MB": [(1 << 20,)],
    "16 MB": [(1 << 22,)],
    "64 MB": [(1 << 24,)],
}
RECIPE_SIZES = {kind: shapes[-1] for kind, shapes in SIZES.items()}
SHARES = (0.0, 0.01, 0.5)
BROADCAST = [(1024, 64), (65536, 64), (1 << 20, 3)]
OWN_SHAPES = [(1 << 16,), (1 << 20,), (1 << 24,)]
PASSES = ("forward", "forward+backward")

FORWARD_GOALS = {"L2": 0.87, "16 MB": 0.95, "64 MB": 0.95}
RECIPE_GOALS = {"L2": 8.0, "4 MB": 8.0, "16 MB": 4.5, "64 MB": 4.5}
RECIPE_GOAL_OF_HALF = 15.0

Tensors = list[torch.Tensor]


def is_nonzero(x: Any) -> Any:
    return x != 0


def is_positive(x: Any) -> Any:
    return x > 0


# Where the last operand is regular, value and slope.
REGULAR: Mapping[str, Callable[[Any], Any]] = {
    "div": is_nonzero,
    "reciprocal": is_nonzero,
    "rsqrt": is_positive,
    "sqrt": is_positive,
    "log": is_positive,
}


def comparisons(
    sized: Callable[[Shape], Shape], with_goals: bool, fused: Fused
) -> Iterator[Comparison]:
    for operator in REGULAR:
        yield from beside_torch(operator, sized, with_goals)
        yield from beside_recipe(operator, sized, with_goals, fused)
    for shape in BROADCAST:
        yield from broadcast(sized(shape))
    for shape in map(sized, OWN_SHAPES):
        yield from policies(shape)
    for shape in map(sized, OWN_SHAPES):
        yield from hits(shape)
    for shape in map(sized, OWN_SHAPES):
        yield from counting(shape)
    for shape in ((1 << 20,), (1 << 22,)):
        yield from plain("div", "div (2 threads)", sized(shape), threads=2)


def operands(
    operator: str, shape: Shape, share: float = 0.0, last: Shape | None = None
) -> Callable[[], Tensors]:
    """What the operator takes. This share of the last operand, of shape `last`, is zero."""

    def make() -> Tensors:
        numerator = [torch.randn(shape)] if operator == "div" else []
        x = torch.rand(last or shape) + 0.5
        return [*numerator, x.masked_fill(torch.rand_like(x) < share, 0.0)]

    return make


def label(name: str, shape: Shape, dtype: torch.dtype = torch.float32, note: str = "") -> str:
    return f"{name} {'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}{note}"


def double_where(where: Call, function: Call, regular: Callable[[Any], Any]) -> Call:
    """Where the last operand is not regular a 1 stands for it, and the value is 0: a single `where`
    after the operator would leave NaN in the gradient."""

    def recipe(*values: Any) -> Any:
        *others, x = values
        inside = regular(x)
        return where(inside, function(*others, where(inside, x, 1.0)), 0.0)

    return recipe


def beside_torch(
    operator: str, sized: Callable[[Shape], Shape], with_goals: bool
) -> Iterator[Comparison]:
    for kind, shapes in SIZES.items():
        goals = {"forward": FORWARD_GOALS.get(kind)} if with_goals else {}
        for shape in shapes:
            yield from plain(operator, f"{operator} ({kind})", sized(shape), goals=goals)
    for dtype in (torch.bfloat16, torch.float64):
        yield from plain(operator, f"{operator} (dtype)", sized((1 << 20,)), dtype=dtype)
    yield from plain(operator, f"{operator} (call)", (4, 4), policy=None)


def plain(
    operator: str,
    group: str,
    shape: Shape,
    *,
    dtype: torch.dtype = torch.float32,
    policy: str | None = "zero",
    threads: int = 1,
    goals: Mapping[str, float | None] | None = None,
) -> Iterator[Comparison]:
    """Beside torch's operator, where nothing is zero: what safety costs."""
    inputs = operands(operator, shape)
    product = getattr(safeops, operator)
    if policy is not None:
        product = partial(product, policy=policy)

    def contenders(name: str) -> list[Contender]:
        values = [x.to(dtype) for x in inputs()]
        calls = {f"torch.{operator}": getattr(torch, operator), "safeops": product}
        return [Contender(peer, one_pass(name, call, *values)) for peer, call in calls.items()]

    for name in PASSES:
        yield Comparison(
            group,
            label(name, shape, dtype),
            math.prod(shape),
            threads,
            partial(contenders, name),
            (goals or {}).get(name),
        )


def beside_recipe(
    operator: str, sized: Callable[[Shape], Shape], with_goals: bool, fused: Fused
) -> Iterator[Comparison]:
    for kind, shape in RECIPE_SIZES.items():
        for share in SHARES:
            goal = RECIPE_GOAL_OF_HALF if share == 0.5 else RECIPE_GOALS[kind]
            # Once beside the compilers is enough.
            compilers = fused if share == 0.01 else Fused()
            goals = {"forward+backward": goal} if with_goals else {}
            yield from against_recipe(operator, sized(shape), share, compilers, goals)


def against_recipe(
    operator: str, shape: Shape, share: float, fused: Fused, goals: Mapping[str, float]
) -> Iterator[Comparison]:
    inputs = operands(operator, shape, share)
    regular = REGULAR[operator]
    recipe = double_where(torch.where, getattr(torch, operator), regular)

    def contenders(name: str) -> list[Contender]:
        values = inputs()
        peers = {"double where": one_pass(name, recipe, *values)}
        if fused.torch:
            torch.compiler.reset()
            compiled = torch.compile(recipe, dynamic=False)
            peers["compiled double where"] = one_pass(name, compiled, *values)
        if fused.jax:
            call = double_where(*jax_peer.elementwise(operator), regular)
            peers["JAX double where"] = jax_peer.one_pass(name, call, values)
        product = partial(getattr(safeops, operator), policy="zero")
        peers["safeops"] = one_pass(name, product, *values)
        return [Contender(peer, call) for peer, call in peers.items()]

    for name in PASSES:
        yield Comparison(
            f"{operator} (double where)",
            label(name, shape, note=f" {share:.0%} zero"),
            math.prod(shape),
            1,
            partial(contenders, name),
            goals.get(name),
        )


def broadcast(shape: Shape) -> Iterator[Comparison]:
    """A divisor per row, as in a normalization."""
    inputs = operands("div", shape, last=(shape[0], 1))
    calls = {
        "torch.div": torch.div,
        "double where": double_where(torch.where, torch.div, is_nonzero),
        "safeops": partial(safeops.div, policy="zero"),
    }
    note = f" by {shape[0]}x1"
    yield from side_by_side("div (broadcast)", shape, note, calls, inputs)


def policies(shape: Shape) -> Iterator[Comparison]:
    names = ("nan", "epsilon", "zero", "raise", "stock")
    calls = {"torch.div": torch.div}
    calls |= {policy: partial(safeops.div, policy=policy) for policy in names}
    yield from side_by_side("div (policy, no hits)", shape, "", calls, operands("div", shape))


def side_by_side(
    group: str, shape: Shape, note: str, calls: Mapping[str, Call], inputs: Callable[[], Tensors]
) -> Iterator[Comparison]:
    """Calls of the same operands, of which the last is the product."""

    def contenders(name: str) -> list[Contender]:
        values = inputs()
        return [Contender(peer, one_pass(name, call, *values)) for peer, call in calls.items()]

    for name in PASSES:
        what = label(name, shape, note=note)
        yield Comparison(group, what, math.prod(shape), 1, partial(contenders, name))


def hits(shape: Shape) -> Iterator[Comparison]:
    shares: Sequence[float] = (*SHARES, 1.0)

    def contenders(name: str) -> list[Contender]:
        call = partial(safeops.div, policy="zero")
        return [
            Contender(f"{share:.0%} zero", one_pass(name, call, *operands("div", shape, share)()))
            for share in shares
        ]

    for name in PASSES:
        what = label(name, shape, note=" zero")
        yield Comparison("div (hits)", what, math.prod(shape), 1, partial(contenders, name))


def counting(shape: Shape) -> Iterator[Comparison]:
    def contenders(name: str, share: float) -> list[Contender]:
        call = one_pass(name, partial(safeops.div, policy="zero"), *operands("div", shape, share)())
        return [
            Contender(f"level {level}", call, partial(safeops.diagnostics.set_level, level))
            for level in (0, 1)
        ]

    for name in PASSES:
        for share in (0.0, 0.5):
            what = label(name, shape, note=f" {share:.0%} zero")
            chosen = partial(contenders, name, share)
            yield Comparison("div (counting)", what, math.prod(shape), 1, chosen)
