"""Compiled autograd over eager forward passes: the nodes enter the graph, still fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo import compiled_autograd
from torch._dynamo.backends.common import aot_autograd

import safeops
from division_samples import EPS, NAMES, call, operands
from samples import NOT_RAISING, counts

# Which operands require grad; the divisor of "by a number" is one.
FORMS = [*NAMES, "only input", "only other", "broadcast", "by a number", "rounded"]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    compiled_autograd.reset()
    yield
    torch._dynamo.reset()


def compiler(backend: str) -> Callable[[torch.fx.GraphModule], object]:
    return lambda graph: torch.compile(graph, backend=backend, fullgraph=True)


def built(form: str, policy: str = "zero") -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A loss, and the leaves that it depends on."""
    if form in NAMES:
        leaves = [t.requires_grad_() for t in operands(form, torch.float64)]
        return call(form, *leaves, policy=policy).square().sum(), leaves
    a, b = operands("div", torch.float64)
    if form == "broadcast":
        a, b = a[:, :1].clone().requires_grad_(), b[0].clone().requires_grad_()
    leaves = {
        "only input": [a],
        "only other": [b],
        "broadcast": [a, b],
        "by a number": [a],
        "rounded": [a, b],
    }[form]
    for leaf in leaves:
        leaf.requires_grad_()
    other = 2.5 if form == "by a number" else b
    mode = "floor" if form == "rounded" else None
    return safeops.div(a, other, rounding_mode=mode, policy=policy).square().sum(), leaves


def operator_of(form: str) -> str:
    return form if form in NAMES else "div"


def assert_same(backend: str, form: str, policy: str = "zero") -> None:
    results = []
    for compiled in (False, True):
        loss, leaves = built(form, policy)
        if compiled:
            with compiled_autograd._enable(compiler(backend)):
                loss.backward()
        else:
            loss.backward()
        results.append([leaf.grad for leaf in leaves] + [counts(operator_of(form))])
    *grads, hits = results[1]
    for grad, want in zip(grads, results[0], strict=False):
        torch.testing.assert_close(grad, want, equal_nan=True)
    assert hits == results[0][-1]
    assert hits[1] == 0 if form == "by a number" else hits[1] > 0


@pytest.mark.parametrize(
    ("backend", "form"),
    [
        *(("eager", form) for form in FORMS),
        *(("aot_eager", form) for form in ("div", "broadcast", "by a number", "rsqrt")),
        *(("inductor", form) for form in ("broadcast", "sqrt")),
    ],
)
def test_backward(backend: str, form: str) -> None:
    assert_same(backend, form)


@pytest.mark.parametrize("form", ["div", "log", "rounded"])
def test_every_policy_keeps_its_own_graph(form: str) -> None:
    for policy in (*NOT_RAISING, NOT_RAISING[0]):
        assert_same("eager", form, policy)


def test_numbers_modes_and_eps_keep_their_own_graphs() -> None:
    x = torch.tensor([3.0, -1.0])
    cases = [(2, None, None), (4.0, None, None), (0, None, None), (EPS / 2, None, EPS)]
    for number, mode, eps in [*cases, (4.0, "trunc", None), *cases]:
        grads = []
        for compiled in (False, True):
            leaf = x.clone().requires_grad_()
            y = safeops.div(leaf, number, rounding_mode=mode, eps=eps, policy="epsilon")
            if compiled:
                with compiled_autograd._enable(compiler("eager")):
                    y.sum().backward()
            else:
                y.sum().backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("form", ["div", "sqrt"])
def test_second_order(form: str) -> None:
    seconds = []
    for compiled in (False, True):
        loss, leaves = built(form)
        firsts = torch.autograd.grad(loss, leaves, create_graph=True)
        total = sum(first.square().sum() for first in firsts)
        if compiled:
            with compiled_autograd._enable(compiler("aot_eager")):
                seconds.append(torch.autograd.grad(total, leaves))
        else:
            seconds.append(torch.autograd.grad(total, leaves))
    for want, second in zip(*seconds, strict=True):
        torch.testing.assert_close(second, want)


@pytest.mark.parametrize("form", NAMES)
def test_the_kernel_stays_fused(form: str) -> None:
    codes: list[str] = []

    def keep(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        codes.append(graph.code)
        return make_boxed_func(graph.forward)

    loss, _ = built(form)
    backend = aot_autograd(fw_compiler=keep)
    with compiled_autograd._enable(lambda graph: torch.compile(graph, backend=backend)):
        loss.backward()
    assert sum(code.count(f"safeops._{form}_backward.") for code in codes) == 1


def test_a_compiled_training_step() -> None:
    loss, (want,) = built("sqrt")
    loss.backward()
    (x,) = (t.requires_grad_() for t in operands("sqrt", torch.float64))

    @torch.compile(backend="aot_eager")
    def train() -> None:
        safeops.sqrt(x, policy="zero").square().sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        train()
    torch.testing.assert_close(x.grad, want.grad)


def test_an_in_place_division() -> None:
    grads = []
    for compiled in (False, True):
        a, b = (t.requires_grad_() for t in operands("div", torch.float64))
        y = safeops.div_(a * 1, b, policy="zero")
        if compiled:
            with compiled_autograd._enable(compiler("aot_eager")):
                y.square().sum().backward()
        else:
            y.square().sum().backward()
        grads.append((a.grad, b.grad))
    for want, grad in zip(*grads, strict=True):
        torch.testing.assert_close(grad, want)
