"""Compiled autograd over eager forward passes: the node enters the graph, still fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo import compiled_autograd
from torch._dynamo.backends.common import aot_autograd

import safeops
from samples import NOT_RAISING, counts

WEIGHT = torch.linspace(-1, 2, 12, dtype=torch.float64).view(4, 3)
BACKENDS = ("eager", "aot_eager", "inductor")


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    compiled_autograd.reset()
    yield
    torch._dynamo.reset()


def leaf() -> torch.Tensor:
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    x[1] = 0
    return x.requires_grad_()


def loss(x: torch.Tensor, policy: str = "zero", p: float = 2.0) -> torch.Tensor:
    y = safeops.normalize(x, p=p, dim=-1, policy=policy)
    return ((y + y**2) * WEIGHT).sum()


def compiler(backend: str) -> Callable[[torch.fx.GraphModule], object]:
    return lambda graph: torch.compile(graph, backend=backend, fullgraph=True)


def expected(policy: str = "zero", p: float = 2.0) -> torch.Tensor:
    x = leaf()
    (grad,) = torch.autograd.grad(loss(x, policy, p), x)
    counts()
    return grad


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward(backend: str) -> None:
    want, x = expected(), leaf()
    with compiled_autograd._enable(compiler(backend)):
        loss(x).backward()
    assert counts() == (1, 1)
    torch.testing.assert_close(x.grad, want)


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_every_policy_keeps_its_own_graph(policy: str) -> None:
    for current in (policy, "zero", policy):
        want, x = expected(current), leaf()
        with compiled_autograd._enable(compiler("aot_eager")):
            (grad,) = torch.autograd.grad(loss(x, current), x)
        torch.testing.assert_close(grad, want, equal_nan=True)
        assert counts() == (1, 1)


@pytest.mark.parametrize("p", [1.0, 3.0, float("inf")])
def test_the_order_of_the_norm_is_kept(p: float) -> None:
    want, x = expected(p=p), leaf()
    with compiled_autograd._enable(compiler("aot_eager")):
        loss(x, p=p).backward()
    torch.testing.assert_close(x.grad, want)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_second_order(backend: str) -> None:
    x = leaf()
    (first,) = torch.autograd.grad(loss(x), x, create_graph=True)
    (want,) = torch.autograd.grad((first * WEIGHT).sum(), x)
    counts()
    (first,) = torch.autograd.grad(loss(x), x, create_graph=True)
    with compiled_autograd._enable(compiler(backend)):
        (second,) = torch.autograd.grad((first * WEIGHT).sum(), x)
    assert counts() == (1, 2)
    torch.testing.assert_close(second, want)


def test_a_compiled_training_step() -> None:
    want, x = expected(), leaf()

    @torch.compile(backend="aot_eager")
    def train() -> None:
        loss(x).backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        train()
    torch.testing.assert_close(x.grad, want)


def test_the_kernel_stays_fused() -> None:
    codes: list[str] = []

    def keep(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        codes.append(graph.code)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep)
    with compiled_autograd._enable(lambda graph: torch.compile(graph, backend=backend)):
        loss(leaf()).backward()
    assert sum(code.count("safeops._normalize_backward") for code in codes) == 1


def test_saved_tensor_hooks() -> None:
    want, x = expected(), leaf()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        value = loss(x)
    with compiled_autograd._enable(compiler("aot_eager")):
        value.backward()
    torch.testing.assert_close(x.grad, want)


def test_the_graph_is_freed_as_in_eager() -> None:
    value = loss(leaf())
    with compiled_autograd._enable(compiler("eager")):
        value.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            value.backward()
