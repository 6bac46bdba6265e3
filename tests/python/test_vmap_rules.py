"""Batching rules against a loop over the examples."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, hessian, jacrev, vmap

import safeops

POLICIES = ("stock", "nan", "epsilon", "zero")


@pytest.fixture(autouse=True)
def without_fallback():
    """Torch's slow loop over examples would hide a missing rule."""
    enabled = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(enabled)


def batch(*shape: int) -> torch.Tensor:
    """Random values with zero rows along every dim of the first example."""
    x = torch.randn(*shape, dtype=torch.float64)
    x.select(0, 0).zero_()
    return x


def close(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13, equal_nan=True)


def loop(function, x, in_dim=0, out_dim=0):
    return torch.stack([function(example) for example in x.unbind(in_dim)], out_dim)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3, (0, 2), (-1, -2), ()])
def test_dims_of_the_example(policy, dim) -> None:
    x = batch(3, 2, 4, 5)

    def function(example):
        return safeops.normalize(example, dim=dim, policy=policy)

    close(vmap(function)(x), loop(function, x))


@pytest.mark.parametrize("in_dim", [0, 1, 2, -1])
@pytest.mark.parametrize("out_dim", [0, 1, 2, -1])
def test_in_and_out_dims(in_dim, out_dim) -> None:
    x = batch(3, 4, 5)

    def function(example):
        return safeops.normalize(example, dim=-1, policy="zero")

    close(vmap(function, in_dim, out_dim)(x), loop(function, x, in_dim, out_dim))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf, 0.5])
def test_other_norms(p) -> None:
    x = batch(3, 4, 5)

    def function(example):
        return safeops.normalize(example, p, 1, policy="stock")

    close(vmap(function)(x), loop(function, x))


@pytest.mark.parametrize("dim", [0, -1, ()])
def test_scalars(dim) -> None:
    x = torch.tensor([2.0, 0.0, -3.0], dtype=torch.float64)

    def function(example):
        return safeops.normalize(example, dim=dim, policy="zero")

    assert torch.equal(vmap(function)(x), torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64))
    close(vmap(grad(function))(x), loop(grad(function), x))


def test_nested() -> None:
    x = batch(3, 2, 4, 5)

    def function(example):
        return safeops.normalize(example, dim=-2, policy="epsilon", eps=1e-3)

    expected = torch.stack([loop(function, part) for part in x])
    close(vmap(vmap(function))(x), expected)
    close(vmap(vmap(function, 1), 0)(x.transpose(1, 2)), expected)


def test_the_defaults_of_the_schema_reach_the_rule() -> None:
    x = batch(3, 4, 5)
    normalize = torch.ops.safeops.normalize.default
    close(vmap(normalize)(x), loop(normalize, x))
    close(vmap(lambda e: normalize(e, dim=[0]))(x), loop(lambda e: normalize(e, dim=[0]), x))


def test_inner_operators() -> None:
    x = batch(3, 4, 5)
    weight = torch.randn_like(x)

    def forward(example):
        return torch.ops.safeops._normalize_forward.default(example, 2.0, [-1], 0.0, "zero")

    def backward(g, out, norm):
        return torch.ops.safeops._normalize_backward.default(g, out, norm, 2.0, [-1], 0.0, "zero")

    out, norm = vmap(forward)(x)
    assert norm.shape == (3, 4, 1)
    close(out, loop(lambda example: forward(example)[0], x))
    close(norm, loop(lambda example: forward(example)[1], x))
    expected = torch.stack([backward(*example) for example in zip(weight, out, norm, strict=True)])
    close(vmap(backward)(weight, out, norm), expected)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dim", [0, -1, (0, 1)])
def test_gradients_per_example(policy, dim) -> None:
    x = batch(3, 4, 5)
    weight = torch.randn(4, 5, dtype=torch.float64)

    def loss(example):
        return (safeops.normalize(example, dim=dim, policy=policy, eps=1e-3) * weight).sum()

    close(vmap(grad(loss))(x), loop(grad(loss), x))
    close(grad(lambda x: vmap(loss)(x).sum())(x), loop(grad(loss), x))


@pytest.mark.parametrize("policy", POLICIES)
def test_unbatched_outputs_with_batched_gradients(policy) -> None:
    x = batch(2, 3)

    def function(x):
        return safeops.normalize(x, dim=-1, policy=policy, eps=1e-3)

    by_row = torch.autograd.functional.jacobian(function, x)
    close(jacrev(function)(x), by_row)

    leaf = x.clone().requires_grad_()
    y = function(leaf)
    basis = torch.eye(6, dtype=torch.float64).view(6, 2, 3)
    (batched,) = torch.autograd.grad(y, leaf, basis, is_grads_batched=True)
    close(batched.view(2, 3, 2, 3), by_row)


def test_batched_outputs_with_an_unbatched_gradient() -> None:
    out = batch(3, 4)
    norm = out.norm(dim=-1, keepdim=True)
    grad_out = torch.randn(4, dtype=torch.float64)

    def backward(out, norm):
        return torch.ops.safeops._normalize_backward.default(
            grad_out, out, norm, 2.0, [0], 0.0, "zero"
        )

    expected = torch.stack([backward(*example) for example in zip(out, norm, strict=True)])
    close(vmap(backward)(out, norm), expected)


def test_second_derivatives_per_example() -> None:
    x = torch.randn(3, 4, dtype=torch.float64)

    def loss(normalize):
        return lambda example: normalize(example, dim=0).pow(3).sum()

    close(vmap(hessian(loss(safeops.normalize)))(x), loop(hessian(loss(F.normalize)), x))


@pytest.mark.parametrize("dim", [2, -3, (0, 5)])
def test_dim_out_of_range(dim) -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        vmap(lambda example: safeops.normalize(example, dim=dim))(torch.ones(3, 4, 5))


def test_raise_names_the_row_of_the_whole_batch() -> None:
    x = torch.ones(3, 4, 5)
    x[1, 2] = 0
    with pytest.raises(safeops.SingularityError) as raised:
        vmap(lambda example: safeops.normalize(example, dim=-1, policy="raise"))(x)
    assert (raised.value.count, raised.value.first_row) == (1, 6)


def test_counts_are_those_of_the_loop() -> None:
    x = batch(3, 4, 5)

    def function(example):
        return safeops.normalize(example, dim=-1, policy="zero")

    loop(function, x)
    by_loop = safeops.diagnostics.snapshot().total()
    safeops.diagnostics.reset()
    vmap(function)(x)
    assert safeops.diagnostics.snapshot().total() == by_loop == 4
