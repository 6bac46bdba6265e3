"""Kinds of comparison, for any operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import jax_peer
import torch
from timing import Contender

import safeops

Shape = tuple[int, ...]
Call = Callable[..., torch.Tensor]

PASSES = ("forward", "forward+backward", "backward")


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


@dataclass(frozen=True)
class Operator:
    """An operator of the product and what it is compared with, all called as `call(x, dim=dim)`.

    `singular` makes an input of singular rows only. `jax` is the name of JAX's operator.
    """

    name: str
    peer_name: str
    peer: Call
    product: Call
    singular: Callable[[Shape], torch.Tensor]
    jax: str = ""


@dataclass(frozen=True)
class Fused:
    """Which fusing compilers are peers, too."""

    torch: bool = False
    jax: bool = False


def smaller(shape: Shape) -> Shape:
    """A shape of the same kind for trying the benchmark itself."""
    return tuple(size if size <= 16 else max(2, size // 64) for size in shape)


def label(shape: Shape, dim: int, dtype: torch.dtype) -> str:
    return f"{'x'.join(map(str, shape))} dim={dim} {str(dtype).removeprefix('torch.')}"


def one_pass(
    name: str, call: Callable[..., torch.Tensor], *inputs: torch.Tensor
) -> Callable[[], object]:
    """One of PASSES, with the gradients of all inputs."""
    if name == "forward":
        return partial(call, *inputs)
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = call(*leaves)
    gradient = torch.randn_like(y)
    if name == "forward+backward":
        del y
        return lambda: torch.autograd.grad(call(*leaves), leaves, gradient)
    return partial(torch.autograd.grad, y, leaves, gradient, retain_graph=True)


def against_peers(
    operator: Operator,
    group: str,
    shape: Shape,
    *,
    dim: int = -1,
    dtype: torch.dtype = torch.float32,
    threads: int = 1,
    fused: Fused,
    where: torch.Tensor | None = None,
    goals: Mapping[str, float] = MappingProxyType({}),
    note: str = "",
) -> Iterator[Comparison]:
    def contenders(name: str) -> list[Contender]:
        x = torch.randn(shape).to(dtype)
        peers = {operator.peer_name: one_pass(name, partial(operator.peer, dim=dim), x)}
        # A compiled backward gives its saved tensors away and cannot run twice.
        if fused.torch and name != "backward":
            torch.compiler.reset()
            compiled = torch.compile(operator.peer, dynamic=False)
            peers[f"compiled {operator.peer_name}"] = one_pass(name, partial(compiled, dim=dim), x)
        if fused.jax and operator.jax and name != "backward" and threads == 1:
            masks = [] if where is None else [where]
            call = jax_peer.along(operator.jax, dim)
            peers[f"JAX {operator.jax}"] = jax_peer.one_pass(name, call, [x], masks)
        peers["safeops"] = one_pass(name, partial(operator.product, dim=dim), x)
        return [Contender(peer, call) for peer, call in peers.items()]

    for name in PASSES:
        yield Comparison(
            group,
            f"{name} {label(shape, dim, dtype)}{note}",
            math.prod(shape),
            threads,
            partial(contenders, name),
            goals.get(name),
        )


def threads_2_against_1(operator: Operator, group: str, name: str, shape: Shape) -> Comparison:
    def contenders() -> list[Contender]:
        call = one_pass(name, partial(operator.product, dim=-1), torch.randn(shape))
        return [
            Contender(f"{threads} threads", call, partial(torch.set_num_threads, threads))
            for threads in (1, 2)
        ]

    what = f"{name} {label(shape, -1, torch.float32)}"
    return Comparison(group, what, math.prod(shape), 2, contenders)


def zero_policy_against_stock(
    operator: Operator, group: str, name: str, shape: Shape
) -> Comparison:
    def contenders() -> list[Contender]:
        x = torch.randn(shape)
        return [
            Contender(policy, one_pass(name, partial(operator.product, dim=-1, policy=policy), x))
            for policy in ("stock", "zero")
        ]

    what = f"{name} {label(shape, -1, torch.float32)}"
    return Comparison(group, what, math.prod(shape), 1, contenders)


def all_rows_singular_against_none(
    operator: Operator, group: str, name: str, shape: Shape
) -> Comparison:
    def contenders() -> list[Contender]:
        call = partial(operator.product, dim=-1, policy="zero")
        return [
            Contender("no row singular", one_pass(name, call, torch.randn(shape))),
            Contender("all singular", one_pass(name, call, operator.singular(shape))),
        ]

    what = f"{name} {label(shape, -1, torch.float32)} zero"
    return Comparison(group, what, math.prod(shape), 1, contenders)


def counting_against_none(
    operator: Operator, group: str, name: str, shape: Shape, hits: bool
) -> Comparison:
    def contenders() -> list[Contender]:
        x = operator.singular(shape) if hits else torch.randn(shape)
        call = one_pass(name, partial(operator.product, dim=-1, policy="zero"), x)
        return [
            Contender(f"level {level}", call, partial(safeops.diagnostics.set_level, level))
            for level in (0, 1)
        ]

    what = f"{name} {label(shape, -1, torch.float32)} {'all rows hit' if hits else 'no hits'}"
    return Comparison(group, what, math.prod(shape), 1, contenders)


def own_settings(
    operator: Operator, group: Callable[[str], str], shapes: list[Shape]
) -> Iterator[Comparison]:
    """The product against itself: policies, hits, counting."""
    for name in ("forward", "backward"):
        for shape in shapes:
            yield zero_policy_against_stock(operator, group("policy, no hits"), name, shape)
        for shape in shapes:
            yield all_rows_singular_against_none(operator, group("hits"), name, shape)
        for hits in (False, True):
            for shape in shapes:
                yield counting_against_none(operator, group("counting"), name, shape, hits)
