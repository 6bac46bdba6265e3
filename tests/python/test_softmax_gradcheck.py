"""Derivatives against finite differences: both orders, reverse and forward, batched or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import safeops
from samples import NOT_RAISING, POLICIES
from softmax_samples import INF, LOGITS, NAMES, call

FIRST = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
SECOND = {"check_fwd_over_rev": True, "check_rev_over_rev": True, "check_batched_grad": True}
MASK = torch.tensor([[True, False], [True, True]])


def points() -> torch.Tensor:
    return torch.tensor(
        [[[0.9, -1.3], [2.1, 0.4]], [[-0.7, 1.6], [0.55, -2.4]]],
        dtype=torch.float64,
        requires_grad=True,
    )


def function(
    name: str, policy: str, dim: object, where: torch.Tensor | None = None
) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = call(name, x, dim, policy=policy, where=where)
        # Finite differences of -inf are NaN: what takes no part is left out.
        if name == "log_softmax" and where is not None:
            y = y.masked_select(where)
        return y

    return run


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_regular_points(name: str, policy: str, dim: int, masked: bool) -> None:
    where = None
    if masked:
        # At least one element of every row along dim 0 and along dim -1.
        where = torch.stack([MASK, MASK.flip(1) | MASK])
    run = function(name, policy, dim, where)
    # A selection of a mask has a size that depends on data, which vmap refuses.
    batched = not (masked and name == "log_softmax")
    first = FIRST | {"check_batched_grad": batched, "check_batched_forward_grad": batched}
    assert gradcheck(run, points(), **first)
    assert gradgradcheck(run, points(), **(SECOND | {"check_batched_grad": batched}))


@pytest.mark.parametrize("dim", [(0, 2), (0, 1, 2), ()], ids=str)
@pytest.mark.parametrize("where", [None, MASK], ids=["all", "where"])
def test_logsumexp_over_several_dims(where: torch.Tensor | None, dim: tuple[int, ...]) -> None:
    for keepdim in (False, True):

        def run(x: torch.Tensor, keepdim: bool = keepdim) -> torch.Tensor:
            return safeops.logsumexp(x, dim, keepdim, where=where, policy="zero")

        assert gradcheck(run, points(), **FIRST)
        assert gradgradcheck(run, points(), **SECOND)


@pytest.mark.parametrize("name", NAMES)
def test_third_order(name: str) -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        y = call(name, x, policy="zero")
        weight = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
        (grad,) = torch.autograd.grad((y.square() * weight).sum(), x, create_graph=True)
        return grad

    assert gradgradcheck(gradient, points())


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_rows_with_minus_infinity_have_the_derivatives_of_the_rest(name: str, policy: str) -> None:
    def run(t: torch.Tensor) -> torch.Tensor:
        x = torch.stack([t[0], torch.full_like(t[0], -INF), t[1], t[2]]).view(1, 4)
        y = call(name, x, policy=policy)
        return y if name == "logsumexp" else y[:, [0, 2, 3]]

    t = torch.tensor([0.3, -1.1, 0.8], dtype=torch.float64, requires_grad=True)
    assert gradcheck(run, t, **FIRST)
    assert gradgradcheck(run, t, **SECOND)


@pytest.mark.parametrize("policy", ["zero", "epsilon"])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_an_empty_row_are_zero_at_every_order(name: str, policy: str) -> None:
    x = torch.tensor([[-INF, -INF], [0.3, -1.0]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[0.7, -2.0], [1.0, 3.0]], dtype=torch.float64)
    y = call(name, x, policy=policy)
    y = torch.where(y == -INF, torch.zeros_like(y), y)
    total = (y * y * (weight if name != "logsumexp" else weight[:, 0])).sum()
    for _ in range(3):
        (grad,) = torch.autograd.grad(total, x, create_graph=True)
        assert grad[0].tolist() == [0, 0]
        assert grad[1].isfinite().all() and (grad[1] != 0).any()
        total = (grad * weight).sum()


@pytest.mark.parametrize("policy", ["stock", "nan"])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_an_empty_row_are_nan_at_every_order(name: str, policy: str) -> None:
    x = torch.tensor([[-INF, -INF], [0.3, -1.0]], dtype=torch.float64, requires_grad=True)
    y = call(name, x, policy=policy)
    (first,) = torch.autograd.grad(y.square().nan_to_num().sum(), x, create_graph=True)
    assert first[0].isnan().all() and first[1].isfinite().all()
    (second,) = torch.autograd.grad(first[1].sum() + first[0].nan_to_num().sum(), x)
    assert second[0].isnan().all() and second[1].isfinite().all()


@pytest.mark.parametrize("name", LOGITS)
def test_both_outputs_of_the_inner_forward(name: str) -> None:
    # The peak is marked as not differentiable.
    forward = getattr(torch.ops.safeops, f"_{name}_forward")
    out, peak = forward(points(), 1, torch.float64, None, 1e-12, "zero")
    assert out.requires_grad and not peak.requires_grad

    def run(x: torch.Tensor) -> torch.Tensor:
        return forward(x, 1, torch.float64, None, 1e-12, "zero")[0]

    assert gradcheck(run, points(), **FIRST)
    assert gradgradcheck(run, points(), check_fwd_over_rev=True)


def test_the_inner_forward_of_logsumexp() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.safeops._logsumexp_forward(x, [0, 2], None, "zero")[0]

    assert run(points()).shape == (1, 2, 1)
    assert gradcheck(run, points(), **FIRST)
    assert gradgradcheck(run, points(), check_fwd_over_rev=True)


@pytest.mark.parametrize("wanted", [(1, 1), (1, 0), (0, 1)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_inner_backward_in_each_of_its_inputs(name: str, wanted: tuple[int, int]) -> None:
    # Its inputs are independent variables here, not a forward's own outputs.
    x = points().detach()[0]
    backward = getattr(torch.ops.safeops, f"_{name}_backward")
    if name == "logsumexp":
        lse = torch.tensor([[1.7], [2.6]], dtype=torch.float64)
        inputs = [torch.tensor([[0.3], [-0.8]], dtype=torch.float64), x.clone()]

        def run(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return backward(grad, x, torch.logsumexp(x, 1, True) + 0 * lse, None, [1], "zero")

    else:
        peak = x.amax(1, keepdim=True)
        out = torch.softmax(x, 1) if name == "softmax" else torch.log_softmax(x, 1)
        inputs = [x.flip(0, 1) * 0.7, out]

        def run(grad: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            return backward(grad, out, peak, None, 1, torch.float64, "zero")

    for tensor, differentiate in zip(inputs, wanted, strict=True):
        tensor.requires_grad_(bool(differentiate))
    assert gradcheck(run, inputs, **FIRST)
    assert gradgradcheck(run, inputs, check_fwd_over_rev=True)
