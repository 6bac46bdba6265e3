"""Derivatives against finite differences: both orders, reverse and forward, batched or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import safeops
from division_samples import UNARY
from samples import NOT_RAISING, POLICIES, identifier

DOUBLES = (torch.float64, torch.complex128)
FIRST = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
SECOND = {"check_fwd_over_rev": True, "check_rev_over_rev": True, "check_batched_grad": True}
# A floor far above the step of the finite differences, so that both sides of it can be probed.
FLOOR = 0.5
SHAPES = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((3,), ()),
    ((), (2, 2)),
    ((1,), (3,)),
]


def points(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Regular arguments of every operator: between 0.6 and 3, or as far from 0 in the plane."""
    generator = torch.Generator().manual_seed(seed)
    size, angle = torch.rand(2, *shape, dtype=torch.float64, generator=generator)
    x = 0.6 + 2.4 * size
    return (torch.polar(x, 3 * angle) if dtype.is_complex else x).requires_grad_()


def assert_both_orders(run: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    assert gradcheck(run, inputs, **FIRST)
    assert gradgradcheck(run, inputs, **SECOND)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_unary_operators_at_regular_points(name: str, dtype: torch.dtype, policy: str) -> None:
    operator = getattr(safeops, name)
    assert_both_orders(lambda x: operator(x, policy=policy), points(dtype, (2, 3)))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
def test_quotients_at_regular_points(dtype: torch.dtype, policy: str) -> None:
    a, b = points(dtype, (2, 3)), points(dtype, (2, 3), 1)
    assert_both_orders(lambda a, b: safeops.div(a, -b, policy=policy), a, b)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
def test_broadcast_quotients(
    dtype: torch.dtype, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    a, b = points(dtype, shapes[0]), points(dtype, shapes[1], 1)
    assert_both_orders(lambda a, b: safeops.div(a, b, policy="zero"), a, b)


@pytest.mark.parametrize("other", [2, -0.7, 1.5 - 0.5j], ids=str)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
def test_numbers_as_divisors(dtype: torch.dtype, policy: str, other: complex) -> None:
    assert_both_orders(lambda a: safeops.div(a, other, policy=policy), points(dtype, (3,)))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtypes", [DOUBLES, DOUBLES[::-1]], ids=str)
def test_a_real_and_a_complex_operand(dtypes: tuple[torch.dtype, ...], policy: str) -> None:
    a, b = points(dtypes[0], (3,)), points(dtypes[1], (3,), 1)
    assert_both_orders(lambda a, b: safeops.div(a, b, policy=policy), a, b)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)], ids=["a", "b"])
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
def test_one_operand_alone(dtype: torch.dtype, wanted: tuple[bool, bool]) -> None:
    a, b = points(dtype, (2, 3)).detach(), points(dtype, (3,), 1).detach()
    a.requires_grad_(wanted[0])
    b.requires_grad_(wanted[1])
    assert_both_orders(lambda a, b: safeops.div(a, b, policy="zero"), a, b)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_quotients_between_their_steps(mode: str, policy: str) -> None:
    a = torch.tensor([3.4, -7.6, 0.3], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.3, 2.1, -0.7], dtype=torch.float64, requires_grad=True)
    assert gradcheck(
        lambda a, b: safeops.div(a, b, rounding_mode=mode, policy=policy), (a, b), **FIRST
    )


@pytest.mark.parametrize("name", ["div", *UNARY])
def test_third_order(name: str) -> None:
    def gradient(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = getattr(safeops, name)(*inputs, policy="zero")
        weight = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
        return torch.autograd.grad((y.square() * weight).sum(), inputs, create_graph=True)

    inputs = [points(torch.float64, (3,), seed) for seed in range(2 if name == "div" else 1)]
    assert gradgradcheck(gradient, inputs)


def floored_points() -> torch.Tensor:
    """Negative, zero, below FLOOR, and regular."""
    return torch.tensor([-1.0, 0.0, 0.2, 0.8, 2.0], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", ["rsqrt", "sqrt", "log"])
def test_finite_differences_confirm_the_floored_formula(name: str) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return getattr(safeops, name)(x, eps=FLOOR, policy="epsilon")

    assert_both_orders(run, floored_points())
    x = floored_points()
    (grad,) = torch.autograd.grad(run(x).sum(), x)
    assert grad[:3].tolist() == [0, 0, 0] and (grad[3:] != 0).all()


@pytest.mark.parametrize("tensor", [True, False], ids=["tensor", "number"])
@pytest.mark.parametrize("divisor", [0.0, -0.0, 0.2, -0.2])
def test_finite_differences_confirm_a_floored_divisor_in_the_dividend(
    divisor: float, tensor: bool
) -> None:
    other = torch.tensor([divisor, 1.5, 0.5], dtype=torch.float64) if tensor else divisor

    def run(a: torch.Tensor) -> torch.Tensor:
        return safeops.div(a, other, eps=FLOOR, policy="epsilon")

    a = points(torch.float64, (3,))
    assert_both_orders(run, a)
    (grad,) = torch.autograd.grad(run(a).sum(), a)
    sign = torch.copysign(torch.ones(()), torch.tensor(divisor)).item()
    assert grad[0].item() == sign / FLOOR


def test_finite_differences_confirm_a_floored_complex_divisor_in_the_dividend() -> None:
    b = torch.tensor([0, 0.1 - 0.2j, 2 + 1j], dtype=torch.complex128)

    def run(a: torch.Tensor) -> torch.Tensor:
        return safeops.div(a, b, eps=FLOOR, policy="epsilon")

    assert_both_orders(run, points(torch.complex128, (3,)))


@pytest.mark.parametrize("number", [0.2, 0.1])
def test_below_the_floor_the_divisor_has_no_influence(number: float) -> None:
    # b' is constant on either side of 0, but jumps there: differences within one side confirm 0.
    b = torch.tensor([number, -number], dtype=torch.float64, requires_grad=True)
    assert_both_orders(lambda b: safeops.div(3.0, b, eps=FLOOR, policy="epsilon"), b)
    assert_both_orders(lambda b: safeops.reciprocal(b, eps=FLOOR, policy="epsilon"), b)


@pytest.mark.parametrize("wanted", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)], ids=str)
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
def test_the_inner_backward_of_quotients_in_each_of_its_inputs(
    dtype: torch.dtype, wanted: tuple[int, int, int]
) -> None:
    inputs = [points(dtype, (3,), seed).detach() for seed in range(3)]
    for tensor, differentiate in zip(inputs, wanted, strict=True):
        tensor.requires_grad_(bool(differentiate))

    def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        backward = torch.ops.safeops._div_backward
        da, db = backward(*tensors, None, 0.0, "zero", (True, True))
        # g / b does not depend on a, and gradcheck expects every output to depend.
        return (db,) if wanted == (0, 1, 0) else (da, db)

    assert gradcheck(run, inputs, **FIRST)
    assert gradgradcheck(run, inputs, check_fwd_over_rev=True)


@pytest.mark.parametrize("wanted", [(1, 1), (1, 0), (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", DOUBLES, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_the_inner_backward_in_each_of_its_inputs(
    name: str, dtype: torch.dtype, wanted: tuple[int, int]
) -> None:
    inputs = [points(dtype, (3,), seed).detach() for seed in range(2)]
    for tensor, differentiate in zip(inputs, wanted, strict=True):
        tensor.requires_grad_(bool(differentiate))

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return getattr(torch.ops.safeops, f"_{name}_backward")(*tensors, 0.0, "zero")

    assert gradcheck(run, inputs, **FIRST)
    assert gradgradcheck(run, inputs, check_fwd_over_rev=True)
