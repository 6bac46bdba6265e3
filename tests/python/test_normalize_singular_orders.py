"""Singular rows at first and second order, in reverse, forward and mixed mode."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import func

import safeops

# Row 1 is zero and row 3 is below EPS; the others are regular.
EPS = 1e-3
ROWS = torch.tensor(
    [[0.9, -1.3, 2.1], [0, 0, 0], [0.4, 1.1, -0.2], [2e-4, -1e-4, 3e-4]], dtype=torch.float64
)
SINGULAR, REGULAR = [1, 3], [0, 2]
WEIGHT = torch.linspace(-1, 2, 12, dtype=torch.float64).view(4, 3)
TANGENT = torch.linspace(2, -3, 12, dtype=torch.float64).view(4, 3).cos()
POLICIES = ("stock", "epsilon", "nan", "zero")

Loss = Callable[[torch.Tensor], torch.Tensor]


def loss_under(policy: str) -> Loss:
    def loss(x: torch.Tensor) -> torch.Tensor:
        y = safeops.normalize(x, dim=1, eps=EPS, policy=policy)
        return ((y + y**2) * WEIGHT).sum()

    return loss


def exact_loss(policy: str) -> Loss:
    """The table's formula, a row at a time, in operations without a singular branch."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(())
        for i in range(len(ROWS)):
            y = x[i] / x[i].square().sum().sqrt() if i in REGULAR else x[i] / EPS
            if i in SINGULAR and policy == "zero":
                y = x[i] * 0
            total = total + ((y + y**2) * WEIGHT[i]).sum()
        return total

    return loss


def reverse(loss: Loss) -> torch.Tensor:
    x = ROWS.clone().requires_grad_()
    return torch.autograd.grad(loss(x), x)[0]


def reverse_with_graph(loss: Loss) -> torch.Tensor:
    x = ROWS.clone().requires_grad_()
    return torch.autograd.grad(loss(x), x, create_graph=True)[0].detach()


def forward_by_rows(loss: Loss) -> torch.Tensor:
    return func.jacfwd(loss)(ROWS)


FIRST_ORDER = {
    "reverse": reverse,
    "reverse with graph": reverse_with_graph,
    "func.grad": lambda loss: func.grad(loss)(ROWS),
    "func.jacrev": lambda loss: func.jacrev(loss)(ROWS),
    "func.jacfwd": forward_by_rows,
}


def reverse_over_reverse(loss: Loss) -> torch.Tensor:
    x = ROWS.clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss(x), x, create_graph=True)
    return torch.autograd.grad(grad, x, TANGENT)[0]


def forward_over_reverse(loss: Loss) -> torch.Tensor:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(ROWS.clone().requires_grad_(), TANGENT)
        (grad,) = torch.autograd.grad(loss(x), x, create_graph=False)
        tangent = forward_ad.unpack_dual(grad).tangent
        assert tangent is not None, "the tangent of the gradient was lost"
        return tangent.detach()


def reverse_over_forward(loss: Loss) -> torch.Tensor:
    return func.grad(lambda x: func.jvp(loss, (x,), (TANGENT,))[1])(ROWS)


def hessian_times_tangent(matrix: torch.Tensor) -> torch.Tensor:
    # A row's gradient depends on that row alone; the other blocks of the matrix may hold 0 * NaN.
    return torch.einsum("ijil,il->ij", matrix, TANGENT)


SECOND_ORDER = {
    "reverse over reverse": reverse_over_reverse,
    "forward over reverse": forward_over_reverse,
    "reverse over forward": reverse_over_forward,
    "jvp of grad": lambda loss: func.jvp(func.grad(loss), (ROWS,), (TANGENT,))[1],
    "grad of grad": lambda loss: func.grad(lambda x: (func.grad(loss)(x) * TANGENT).sum())(ROWS),
    "hessian": lambda loss: hessian_times_tangent(func.hessian(loss)(ROWS)),
    "jacrev of jacrev": lambda loss: hessian_times_tangent(func.jacrev(func.jacrev(loss))(ROWS)),
    "jacrev of jacfwd": lambda loss: hessian_times_tangent(func.jacrev(func.jacfwd(loss))(ROWS)),
    "jacfwd of jacfwd": lambda loss: hessian_times_tangent(func.jacfwd(func.jacfwd(loss))(ROWS)),
}


# Forward mode carries NaN * 0 from a marked row into the loss, so into every column.
MIXES_ROWS_UNDER_NAN = ("func.jacfwd", "jacrev of jacfwd", "jacfwd of jacfwd")


def assert_rows(actual: torch.Tensor, expected: torch.Tensor, policy: str, mode: str) -> None:
    if policy != "nan" or mode not in MIXES_ROWS_UNDER_NAN:
        torch.testing.assert_close(actual[REGULAR], expected[REGULAR])
    if policy == "nan":
        assert actual[SINGULAR].isnan().all()
    elif policy == "zero":
        assert (actual[SINGULAR] == 0).all()
    else:
        torch.testing.assert_close(actual[SINGULAR], expected[SINGULAR])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mode", FIRST_ORDER)
def test_first_order(mode: str, policy: str) -> None:
    grad = FIRST_ORDER[mode](loss_under(policy))
    expected = func.grad(exact_loss(policy))(ROWS)
    assert_rows(grad, expected, policy, mode)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mode", SECOND_ORDER)
def test_second_order(mode: str, policy: str) -> None:
    product = SECOND_ORDER[mode](loss_under(policy))
    expected = reverse_over_reverse(exact_loss(policy))
    assert_rows(product, expected, policy, mode)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_zero_is_zero_at_both_orders_whatever_comes_from_above(bad: float) -> None:
    x = ROWS.clone().requires_grad_()
    g = WEIGHT.clone()
    g[SINGULAR] = bad
    g.requires_grad_()
    y = safeops.normalize(x, dim=1, eps=EPS, policy="zero")
    (grad,) = torch.autograd.grad(y, x, g, create_graph=True)
    assert (grad[SINGULAR] == 0).all() and grad[REGULAR].isfinite().all()
    upstream = TANGENT.clone()
    upstream[SINGULAR] = bad
    second, second_g = torch.autograd.grad(grad, (x, g), upstream)
    assert (second[SINGULAR] == 0).all() and second[REGULAR].isfinite().all()
    assert (second_g[SINGULAR] == 0).all() and second_g[REGULAR].isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_zero_is_zero_in_forward_mode_whatever_comes_in(bad: float) -> None:
    tangent = TANGENT.clone()
    tangent[SINGULAR] = bad

    def run(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, dim=1, eps=EPS, policy="zero")

    y, dy = func.jvp(run, (ROWS,), (tangent,))
    assert (y[SINGULAR] == 0).all() and (dy[SINGULAR] == 0).all()
    assert dy[REGULAR].isfinite().all()


@pytest.mark.parametrize("policy", POLICIES)
def test_forward_mode_at_singular_rows(policy: str) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, dim=1, eps=EPS, policy=policy)

    _, dy = func.jvp(run, (ROWS,), (TANGENT,))
    if policy == "nan":
        assert dy[SINGULAR].isnan().all()
    elif policy == "zero":
        assert (dy[SINGULAR] == 0).all()
    else:
        torch.testing.assert_close(dy[SINGULAR], TANGENT[SINGULAR] / EPS)
    _, expected = func.jvp(lambda x: x / x.norm(dim=1, keepdim=True), (ROWS,), (TANGENT,))
    torch.testing.assert_close(dy[REGULAR], expected[REGULAR])


@pytest.mark.parametrize("policy", ["stock", "epsilon"])
def test_the_floored_formula_is_linear_in_the_incoming_gradient(policy: str) -> None:
    x = ROWS.clone().requires_grad_()
    g = WEIGHT.clone().requires_grad_()
    y = safeops.normalize(x, dim=1, eps=EPS, policy=policy)
    (grad,) = torch.autograd.grad(y, x, g, create_graph=True)
    in_x, in_g = torch.autograd.grad(grad, (x, g), TANGENT)
    assert (in_x[SINGULAR] == 0).all()
    torch.testing.assert_close(in_g[SINGULAR], TANGENT[SINGULAR] / EPS)


@pytest.mark.parametrize("value", [0.0, 1e-200, 1e-320])
@pytest.mark.parametrize("policy", ["stock", "zero"])
def test_second_order_is_finite_at_the_edge_of_the_exponent_range(
    policy: str, value: float
) -> None:
    x = torch.full((1, 3), value, dtype=torch.float64, requires_grad=True)
    y = safeops.normalize(x, dim=1, eps=1e-12, policy=policy)
    (grad,) = torch.autograd.grad((y * WEIGHT[:1]).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert grad.isfinite().all() and (second == 0).all()


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero"])
def test_regular_rows_do_not_feel_singular_neighbours_at_second_order(policy: str) -> None:
    together = reverse_over_reverse(loss_under(policy))[REGULAR]

    def alone(x: torch.Tensor) -> torch.Tensor:
        y = safeops.normalize(x, dim=1, eps=EPS, policy=policy)
        return ((y + y**2) * WEIGHT[REGULAR]).sum()

    x = ROWS[REGULAR].clone().requires_grad_()
    (grad,) = torch.autograd.grad(alone(x), x, create_graph=True)
    (second,) = torch.autograd.grad(grad, x, TANGENT[REGULAR])
    torch.testing.assert_close(together, second, rtol=1e-13, atol=1e-13)
