"""Patches under Dynamo, AOTAutograd and Inductor, in torch.export, and while TorchScript traces."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import safeops
from patch_samples import counted
from safeops._stock_calls import FUNCTIONAL
from samples import assert_same_bits

ZERO = torch.zeros(2, 3)
EMPTY = torch.full((2, 3), -torch.inf)

attention = nn.MultiheadAttention(4, 2, batch_first=True)
queries, padded = torch.randn(2, 3, 4), torch.tensor([[False] * 3, [True] * 3])

CALLS: dict[str, tuple[Any, torch.Tensor]] = {
    "F.normalize": (lambda x: F.normalize(x, dim=1), ZERO),
    "nn.Softmax": (nn.Softmax(1), EMPTY),
    "F.log_softmax": (lambda x: F.log_softmax(x, 1), EMPTY),
    "Tensor.softmax": (lambda x: x.softmax(-1), EMPTY),
    "torch.logsumexp": (lambda x: torch.logsumexp(x, 1), EMPTY),
    "x / y": (lambda x: x / x, ZERO),
    "1 / x": (lambda x: 1 / x, ZERO),
    "x // y": (lambda x: x // x, ZERO),
    "x.clone().div_": (lambda x: x.clone().div_(x), ZERO),
    "x ** -2": (lambda x: x**-2, ZERO),
    "torch.pow": (lambda x: torch.pow(x, -0.5), ZERO),
    "rsqrt_": (lambda x: x.clone().rsqrt_(), ZERO),
    "log": (lambda x: x.log(), ZERO),
    "attention": (
        lambda x: attention(
            queries + x.sum(), queries, queries, key_padding_mask=padded, need_weights=True
        )[1],
        ZERO,
    ),
}


@pytest.fixture
def counter():
    torch._dynamo.reset()
    # Not "eager": that runs the stock calls of a graph under the modes that are active then.
    yield CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()


@pytest.mark.parametrize("name", CALLS)
def test_compiled_code_follows_patches_as_eager_code_does(name: str, counter) -> None:
    function, x = CALLS[name]
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    stock = compiled(x)
    assert counted() == {}
    for policy in ("zero", "nan", "zero"):
        with safeops.patch(policy=policy):
            inside, counts = compiled(x), counted()
            assert_same_bits(inside, function(x))
            assert counts == counted() != {}
        assert_same_bits(compiled(x), stock)
        assert counted() == {}
    with safeops.patch(observe=True):
        assert_same_bits(compiled(x), stock)
    with safeops.patch(policy="zero"), safeops.patch(observe=True):
        assert_same_bits(compiled(x), stock)
    assert counted() == {}
    assert counter.frame_count <= 5  # stock, zero, nan, observe, observe inside of zero


def test_compiled_inside_first(counter) -> None:
    compiled = torch.compile(lambda x: F.softmax(x, 1) + 1 / x, backend=counter, fullgraph=True)
    with safeops.patch(policy="zero"):
        assert torch.equal(compiled(EMPTY), ZERO)
    assert compiled(EMPTY).isnan().all()
    with safeops.patch("div", policy="zero"):
        assert compiled(EMPTY).isnan().all()
    with safeops.patch("softmax", policy="zero"):
        assert torch.equal(compiled(EMPTY), ZERO)


def test_gradients_and_hits_of_compiled_code(counter) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, dim=1) + x.sqrt() + x**-0.5

    compiled = torch.compile(function, backend=counter, fullgraph=True)
    x = torch.tensor([[0.0, 0.0], [1.0, 4.0]])
    results = []
    for call in (function, compiled):
        leaf = x.clone().requires_grad_()
        counted()
        with safeops.patch(policy="zero"):
            call(leaf).sum().backward()
        results.append((leaf.grad, counted()))
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-6)
    assert results[0][1] == results[1][1] and len(results[0][1]) == 5


@pytest.mark.slow
def test_inductor() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: F.softmax(x, 1) * 2 + (1 / x).exp(), fullgraph=True)
    stock = compiled(EMPTY)
    with safeops.patch(policy="zero"):
        assert torch.equal(compiled(EMPTY), torch.ones(2, 3))
    assert stock.isnan().all() and compiled(EMPTY).isnan().all()
    torch._dynamo.reset()


def test_a_patch_entered_in_compiled_code(counter) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with safeops.patch(policy="zero"):
            inside = F.softmax(x, 1)
        return inside, x.softmax(1)

    for _ in range(2):
        inside, outside = torch.compile(function, backend=counter)(EMPTY)
        assert torch.equal(inside, ZERO) and outside.isnan().all()
    decorated = torch.compile(safeops.patch(policy="zero")(lambda x: 1 / x), backend=counter)
    assert torch.equal(decorated(ZERO), ZERO)
    assert F.softmax is FUNCTIONAL["softmax"]
    assert torch.overrides._get_current_function_mode_stack() == []
    torch._dynamo.reset()
    with pytest.raises(Exception, match="enter it around the call"):
        torch.compile(function, backend=counter, fullgraph=True)(EMPTY)


class Layers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(F.normalize(x, dim=-1), dim=-1) / x + F.log_softmax(x, dim=1)


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    x = torch.randn(3, 4)

    def targets() -> list[str]:
        exported = torch.export.export(Layers(), (x,), strict=strict)
        nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
        return [str(node.target) for node in nodes]

    with safeops.patch(policy="zero"):
        patched = targets()
    assert [name for name in patched if "safeops" in name] == [
        f"safeops.{name}.default" for name in ("normalize", "softmax", "div", "log_softmax")
    ]
    stock = targets()
    with safeops.patch(observe=True):
        assert targets() == stock
    assert not any("safeops" in name for name in stock)


def test_make_fx() -> None:
    x = torch.randn(3, 4)
    with safeops.patch("softmax", policy="zero"):
        graph = make_fx(Layers())(x).graph
    targets = [str(node.target) for node in graph.nodes]
    assert sum("safeops.softmax" in name for name in targets) == 1
    assert not any("safeops.normalize" in name for name in targets)


@pytest.mark.parametrize("keywords", [{"policy": "zero"}, {"observe": True}])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_script_and_traces_hold_stock(keywords: dict[str, Any]) -> None:
    x = torch.randn(3, 4)
    expected = Layers()(x)
    with safeops.patch(**keywords):
        scripted, scripted_function = torch.jit.script(Layers()), torch.jit.script(F.normalize)
        traced = torch.jit.trace(Layers(), x)
        symbolic = torch.fx.symbolic_trace(Layers())
        assert torch.equal(scripted(x), expected)
    assert torch.equal(scripted_function(x), F.normalize(x))
    assert torch.equal(scripted(x), expected) and torch.equal(traced(x), expected)
    assert "safeops::" not in str(traced.graph)
    functions = {node.target for node in symbolic.graph.nodes if node.op == "call_function"}
    assert {FUNCTIONAL["softmax"], FUNCTIONAL["normalize"]} <= functions
    counted()
    with safeops.patch(policy="zero"):
        scripted(torch.zeros(3, 4))
    assert counted() == {}
