"""Derivatives against finite differences: both orders, reverse and forward, batched or not."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import safeops
from samples import NOT_RAISING, POLICIES, identifier

DOUBLES = (torch.float64, torch.complex128)
SMOOTH = (1.0, 2.0, 3.0, 0.5, math.inf)
# A floor far above the step of the finite differences, so that both sides of it can be probed.
FLOOR = 0.5

FIRST = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
SECOND = {"check_fwd_over_rev": True, "check_rev_over_rev": True, "check_batched_grad": True}


def regular_points(dtype: torch.dtype) -> torch.Tensor:
    """No zero element and no two magnitudes alike: every norm is smooth here."""
    real = torch.tensor(
        [[[0.9, -1.3], [2.1, 0.4]], [[-0.7, 1.6], [0.55, -2.4]]], dtype=torch.float64
    )
    if dtype.is_complex:
        real = torch.complex(real, torch.tensor([0.3, -0.8], dtype=torch.float64) * real.flip(0))
    return real.requires_grad_()


@pytest.mark.parametrize("dim", [1, (0, 2)], ids=str)
@pytest.mark.parametrize("p", SMOOTH)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
def test_first_order_at_regular_points(
    dtype: torch.dtype, policy: str, p: float, dim: int | tuple[int, ...]
) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, p=p, dim=dim, policy=policy)

    assert gradcheck(run, regular_points(dtype), **FIRST)


@pytest.mark.parametrize("dim", [1, (0, 2)], ids=str)
@pytest.mark.parametrize("p", SMOOTH)
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
def test_second_order_at_regular_points(
    dtype: torch.dtype, p: float, dim: int | tuple[int, ...]
) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, p=p, dim=dim, policy="zero")

    assert gradgradcheck(run, regular_points(dtype), **SECOND)


@pytest.mark.parametrize("policy", POLICIES)
def test_second_order_at_regular_points_under_every_policy(policy: str) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, dim=-1, policy=policy)

    assert gradgradcheck(run, regular_points(torch.float64), **SECOND)


@pytest.mark.parametrize("p", [2.0, 3.0])
def test_third_order_at_regular_points(p: float) -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        y = safeops.normalize(x, p=p, dim=-1, policy="zero")
        weight = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
        (grad,) = torch.autograd.grad((y.square() * weight).sum(), x, create_graph=True)
        return grad

    assert gradgradcheck(gradient, regular_points(torch.float64))


def floored_rows(dtype: torch.dtype) -> torch.Tensor:
    """A zero row, a row below FLOOR and a regular one."""
    x = torch.tensor([[0, 0, 0], [0.1, -0.15, 0.05], [1.2, 0.7, -2]], dtype=torch.float64)
    if dtype.is_complex:
        x = torch.complex(x, 0.6 * x.flip(1))
    return x.requires_grad_()


@pytest.mark.parametrize("policy", ["epsilon", "stock"])
@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
def test_finite_differences_confirm_the_floored_formula_at_singular_rows(
    dtype: torch.dtype, p: float, policy: str
) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, p=p, dim=1, eps=FLOOR, policy=policy)

    assert gradcheck(run, floored_rows(dtype), **FIRST)
    assert gradgradcheck(run, floored_rows(dtype), **SECOND)
    g = torch.full((3, 3), 2.0, dtype=dtype)
    leaf = floored_rows(dtype)
    (grad,) = torch.autograd.grad(run(leaf), leaf, g)
    torch.testing.assert_close(grad[:2], g[:2] / FLOOR, rtol=0, atol=0)


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_zero_elements_of_regular_rows(policy: str) -> None:
    x = torch.tensor([[3.0, 0.0, 4.0], [0.0, 1.0, 0.0]], dtype=torch.float64, requires_grad=True)

    def run(t: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(t, dim=1, policy=policy)

    assert gradcheck(run, x, **FIRST)
    assert gradgradcheck(run, x, **SECOND)


@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_both_outputs_of_the_inner_forward(dtype: torch.dtype, p: float) -> None:
    forward = torch.ops.safeops._normalize_forward

    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return forward(x, p, [1], 0.0, "zero")

    assert gradcheck(run, regular_points(dtype), **FIRST)
    assert gradgradcheck(run, regular_points(dtype), check_fwd_over_rev=True)


@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("wanted", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)], ids=str)
def test_the_inner_backward_in_each_of_its_inputs(
    dtype: torch.dtype, p: float, wanted: tuple[int, int, int]
) -> None:
    # Its three inputs are independent variables here, not a forward's own outputs.
    backward = torch.ops.safeops._normalize_backward
    x = regular_points(dtype).detach()[0].clone()
    grad = x.flip(0, 1) * 0.7
    norm = torch.tensor([[1.7], [0.6]], dtype=torch.float64)
    inputs = [grad, x, norm]
    for tensor, differentiate in zip(inputs, wanted, strict=True):
        tensor.requires_grad_(bool(differentiate))

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return backward(*tensors, p, [1], 0.0, "zero")

    assert gradcheck(run, inputs, **FIRST)
    assert gradgradcheck(run, inputs, check_fwd_over_rev=True)


@pytest.mark.parametrize("value", [1e-150, 1e150])
def test_derivatives_far_from_one(value: float) -> None:
    # normalize is homogeneous of degree 0: the Jacobian at c * x is the Jacobian at x over c.
    x = torch.tensor([[0.9, -1.3, 2.1]], dtype=torch.float64)

    def run(t: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(t, dim=1, policy="zero")

    near = torch.autograd.functional.jacobian(run, x)
    far = torch.autograd.functional.jacobian(run, x * value)
    torch.testing.assert_close(far * value, near)
