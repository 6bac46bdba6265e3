"""Singular elements at first and second order, in reverse, forward and mixed mode."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import func

import safeops
from division_samples import EPS, NAMES, call, stock
from samples import NOT_RAISING

Loss = Callable[[torch.Tensor], torch.Tensor]

ZERO, BELOW, LAST = 1, 2, 4
SINGULAR, REGULAR = [ZERO, BELOW, LAST], [0, 3]
WEIGHT = torch.tensor([-1.0, 0.7, 1.3, 2.0, 0.4], dtype=torch.float64)


def points(name: str) -> torch.Tensor:
    """One row for every operand; the last element is singular in another way than the others."""
    last = [2.0, 0.0, EPS / 2, 1.5, -1.0]
    if name == "reciprocal":
        last[LAST] = -EPS / 2
    if name == "div":
        last[LAST] = -0.0
        return torch.tensor([[0.9, -1.3, 2.1, 0.4, 1.1], last], dtype=torch.float64)
    return torch.tensor([last], dtype=torch.float64)


def tangent_of(x: torch.Tensor) -> torch.Tensor:
    return torch.linspace(2, -3, x.numel(), dtype=torch.float64).view(x.shape).cos()


def loss_under(name: str, policy: str) -> Loss:
    def loss(x: torch.Tensor) -> torch.Tensor:
        y = call(name, *x, eps=EPS, policy=policy)
        return ((y + y**2) * WEIGHT).sum()

    return loss


def floored(name: str, x: torch.Tensor, i: int) -> torch.Tensor:
    """The floored formula at a singular element, in operations without a singular branch."""
    if name == "div":
        return x[0, i] / math.copysign(EPS, points(name)[1, i].item())
    value = {
        "reciprocal": math.copysign(1 / EPS, points(name)[0, i].item()),
        "rsqrt": EPS**-0.5,
        "sqrt": EPS**0.5,
        "log": math.log(EPS),
    }[name]
    return x[0, i] * 0 + value


def exact_loss(name: str, policy: str) -> Loss:
    """The table's formula, an element at a time."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(())
        for i in range(x.shape[1]):
            if i in REGULAR or policy == "stock":
                y = stock(name, *x[:, i])
            elif policy == "epsilon":
                y = floored(name, x, i)
            else:
                y = (x[:, i] * 0).sum()
            total = total + (y + y**2) * WEIGHT[i]
        return total

    return loss


def reverse(loss: Loss, x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf), leaf)[0]


def reverse_with_graph(loss: Loss, x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf), leaf, create_graph=True)[0].detach()


FIRST_ORDER: dict[str, Callable[[Loss, torch.Tensor], torch.Tensor]] = {
    "reverse": reverse,
    "reverse with graph": reverse_with_graph,
    "func.grad": lambda loss, x: func.grad(loss)(x),
    "func.jacrev": lambda loss, x: func.jacrev(loss)(x),
    "func.jacfwd": lambda loss, x: func.jacfwd(loss)(x),
}


def reverse_over_reverse(loss: Loss, x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    return torch.autograd.grad(grad, leaf, tangent_of(x))[0]


def forward_over_reverse(loss: Loss, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), tangent_of(x))
        (grad,) = torch.autograd.grad(loss(dual), dual, create_graph=False)
        tangent = forward_ad.unpack_dual(grad).tangent
        assert tangent is not None, "the tangent of the gradient was lost"
        return tangent.detach()


def reverse_over_forward(loss: Loss, x: torch.Tensor) -> torch.Tensor:
    return func.grad(lambda x: func.jvp(loss, (x,), (tangent_of(x),))[1])(x)


def times_tangent(matrix: torch.Tensor) -> torch.Tensor:
    # An element's gradient depends on that element alone; other entries may hold 0 * NaN.
    own = torch.arange(matrix.shape[1])
    return torch.einsum("ikj,ji->ki", matrix[:, own, :, own], tangent_of(matrix[0, 0]))


SECOND_ORDER: dict[str, Callable[[Loss, torch.Tensor], torch.Tensor]] = {
    "reverse over reverse": reverse_over_reverse,
    "forward over reverse": forward_over_reverse,
    "reverse over forward": reverse_over_forward,
    "jvp of grad": lambda loss, x: func.jvp(func.grad(loss), (x,), (tangent_of(x),))[1],
    "grad of grad": lambda loss, x: func.grad(lambda x: (func.grad(loss)(x) * tangent_of(x)).sum())(
        x
    ),
    "hessian": lambda loss, x: times_tangent(func.hessian(loss)(x)),
    "jacrev of jacrev": lambda loss, x: times_tangent(func.jacrev(func.jacrev(loss))(x)),
    "jacrev of jacfwd": lambda loss, x: times_tangent(func.jacrev(func.jacfwd(loss))(x)),
    "jacfwd of jacfwd": lambda loss, x: times_tangent(func.jacfwd(func.jacfwd(loss))(x)),
}

# Forward mode carries NaN * 0 from a marked element into the loss, so into every column.
MIXES_ELEMENTS = ("func.jacfwd", "jacrev of jacfwd", "jacfwd of jacfwd")


def assert_elements(actual: torch.Tensor, expected: torch.Tensor, policy: str, mode: str) -> None:
    if policy in ("zero", "epsilon") or mode not in MIXES_ELEMENTS:
        torch.testing.assert_close(actual[:, REGULAR], expected[:, REGULAR])
    if policy == "nan":
        assert actual[:, SINGULAR].isnan().all()
    elif policy == "zero":
        assert (actual[:, SINGULAR] == 0).all()
    elif policy == "epsilon":
        torch.testing.assert_close(actual[:, SINGULAR], expected[:, SINGULAR])
    else:
        assert not actual[-1, ZERO].isfinite()


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("mode", FIRST_ORDER)
@pytest.mark.parametrize("name", NAMES)
def test_first_order(name: str, mode: str, policy: str) -> None:
    x = points(name)
    grad = FIRST_ORDER[mode](loss_under(name, policy), x)
    assert_elements(grad, func.grad(exact_loss(name, policy))(x), policy, mode)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("mode", SECOND_ORDER)
@pytest.mark.parametrize("name", NAMES)
def test_second_order(name: str, mode: str, policy: str) -> None:
    x = points(name)
    product = SECOND_ORDER[mode](loss_under(name, policy), x)
    assert_elements(product, reverse_over_reverse(exact_loss(name, policy), x), policy, mode)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", NAMES)
def test_zero_is_zero_at_both_orders_whatever_comes_from_above(name: str, bad: float) -> None:
    x, g = points(name).requires_grad_(), WEIGHT.clone()
    g[SINGULAR] = bad
    g.requires_grad_()
    y = call(name, *x, eps=EPS, policy="zero")
    (grad,) = torch.autograd.grad(y, x, g, create_graph=True)
    assert (grad[:, SINGULAR] == 0).all() and grad[:, REGULAR].isfinite().all()
    upstream = tangent_of(x)
    upstream[:, SINGULAR] = bad
    second, second_g = torch.autograd.grad(grad, (x, g), upstream)
    assert (second[:, SINGULAR] == 0).all() and second[:, REGULAR].isfinite().all()
    assert (second_g[SINGULAR] == 0).all() and second_g[REGULAR].isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", NAMES)
def test_zero_is_zero_in_forward_mode_whatever_comes_in(name: str, bad: float) -> None:
    x = points(name)
    tangent = tangent_of(x)
    tangent[:, SINGULAR] = bad
    y, dy = func.jvp(lambda x: call(name, *x, eps=EPS, policy="zero"), (x,), (tangent,))
    assert (y[SINGULAR] == 0).all()
    assert (dy[SINGULAR] == 0).all() and dy[REGULAR].isfinite().all()


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_forward_mode_at_singular_elements(name: str, policy: str) -> None:
    x = points(name)
    t = tangent_of(x)
    _, dy = func.jvp(lambda x: call(name, *x, eps=EPS, policy=policy), (x,), (t,))
    if policy == "nan":
        assert dy[SINGULAR].isnan().all()
    elif policy == "zero":
        assert (dy[SINGULAR] == 0).all()
    elif policy == "epsilon":
        signs = torch.copysign(torch.ones(5, dtype=torch.float64), x[-1])
        want = t[0] * signs / EPS if name == "div" else torch.zeros_like(t[0])
        torch.testing.assert_close(dy[SINGULAR], want[SINGULAR])
    else:
        assert not dy[ZERO].isfinite()
    _, expected = func.jvp(lambda x: stock(name, *x), (x,), (t,))
    torch.testing.assert_close(dy[REGULAR], expected[REGULAR])


def test_the_floored_quotient_is_linear_in_the_incoming_gradient() -> None:
    x, g = points("div").requires_grad_(), WEIGHT.clone().requires_grad_()
    y = safeops.div(*x, eps=EPS, policy="epsilon")
    (grad,) = torch.autograd.grad(y, x, g, create_graph=True)
    t = tangent_of(x)
    in_x, in_g = torch.autograd.grad(grad, (x, g), t)
    assert (in_x[:, SINGULAR] == 0).all()
    signs = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(in_g[SINGULAR], t[0, SINGULAR] * signs / EPS)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_regular_elements_do_not_feel_singular_neighbours(name: str, policy: str) -> None:
    x = points(name)
    together = reverse_over_reverse(loss_under(name, policy), x)[:, REGULAR]
    t = tangent_of(x)[:, REGULAR]

    def alone(x: torch.Tensor) -> torch.Tensor:
        y = call(name, *x, eps=EPS, policy=policy)
        return ((y + y**2) * WEIGHT[REGULAR]).sum()

    leaf = x[:, REGULAR].clone().requires_grad_()
    (grad,) = torch.autograd.grad(alone(leaf), leaf, create_graph=True)
    (second,) = torch.autograd.grad(grad, leaf, t)
    torch.testing.assert_close(together, second, rtol=1e-13, atol=1e-13)
