"""Patches in the backward pass: checkpoints, functions and hooks that the engine calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._guards import TracingContext, tracing
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils.checkpoint import checkpoint

import safeops
from patch_samples import counted
from samples import assert_same_bits

PATCHES: dict[str, dict[str, Any]] = {
    "zero": {"policy": "zero"},
    "observe": {"observe": True},
}


def function(x: torch.Tensor) -> torch.Tensor:
    return x.sqrt() * x.rsqrt().exp() + 1 / x + F.softmax(x, 0)


def gradient(x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    function(leaf).sum().backward()
    return leaf.grad


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_recompute_as_forward_computed(
    reentrant: bool, inside: bool, patch: str
) -> None:
    # At regular points, too: there nothing but what was saved can go wrong.
    for x in (torch.tensor([4.0, 9.0, 16.0]), torch.tensor([0.0, 4.0])):
        with safeops.patch(**PATCHES[patch]):
            expected = gradient(x)
            once = counted()
            leaf = x.clone().requires_grad_()
            loss = checkpoint(function, leaf, use_reentrant=reentrant).sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        assert_same_bits(leaf.grad, expected)
        twice = {key: n * (2 if key[2] == "forward" else 1) for key, n in once.items()}
        assert counted() == twice
    assert twice


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_forward_pass_without_a_patch_is_recomputed_without(reentrant: bool) -> None:
    x = torch.tensor([4.0, 9.0, 16.0])
    leaf = x.clone().requires_grad_()
    loss = checkpoint(function, leaf, use_reentrant=reentrant).sum()
    with safeops.patch(policy="zero"):
        loss.backward()
    assert_same_bits(leaf.grad, gradient(x))


def test_python_that_the_engine_calls_is_patched() -> None:
    class Divides(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g / torch.zeros(3)

    leaf = torch.ones(3, requires_grad=True)
    with safeops.patch(policy="zero"):
        Divides.apply(leaf).sum().backward()
    assert torch.equal(leaf.grad, torch.zeros(3))
    leaf.grad = None
    with safeops.patch(observe=True):
        Divides.apply(leaf).sum().backward()
    assert leaf.grad.isinf().all()


def test_a_backward_pass_keeps_the_policy_of_its_forward_pass() -> None:
    leaf = torch.zeros(3, requires_grad=True)
    with safeops.patch(policy="zero"):
        y = leaf.sqrt().sum()
    y.backward()
    assert torch.equal(leaf.grad, torch.zeros(3))


def test_a_thread_of_the_engine_that_gets_the_stack_but_no_context() -> None:
    # Engine threads of devices, and of deep recursion: simulated, as CPU needs none.
    answers: list[torch.Tensor] = []
    patch = safeops.patch(policy="zero")

    def engine(mode: Any) -> None:
        _push_mode(mode)
        answers.append(1 / torch.zeros(3))
        _pop_mode()

    with patch:
        (mode,) = _get_current_function_mode_stack()
        thread = threading.Thread(target=engine, args=(mode,))
        thread.start()
        thread.join()
    assert torch.equal(answers[0], torch.zeros(3))


def test_a_backward_graph_that_is_compiled_in_the_block_stays_as_it_is() -> None:
    with safeops.patch(policy="zero"):
        assert torch.equal(1 / torch.zeros(3), torch.zeros(3))
        with tracing(TracingContext(None)):
            assert (1 / torch.zeros(3)).isinf().all()
