"""Values, gradients, hits and errors of the division family, policy by policy."""

from __future__ import annotations

import math

import pytest
import torch

import division_reference as reference
import safeops
from division_samples import (
    EPS,
    INF,
    NAMES,
    NAN,
    ZERO_CONDITION,
    assert_equal,
    call,
    edges,
    hits,
    numbers,
    operands,
    stock,
    values_and_gradients,
    wide,
)
from reference import ulps, widen
from samples import NOT_RAISING, POLICIES, REAL, count, counts, identifier, skip_on_cuda

pytestmark = pytest.mark.usefixtures("every_device")

OPS = torch.ops.safeops
SIGNED_ZEROS = (0.0, -0.0)


def counted(name: str, direction: str) -> dict[str, int]:
    return {
        record.condition: record.count
        for record in safeops.diagnostics.snapshot().records
        if (record.operator, record.direction) == (name, direction)
    }


def without_zeros(found: dict[str, int]) -> dict[str, int]:
    return {condition: number for condition, number in found.items() if number}


# The tables


@pytest.mark.parametrize("eps", [None, EPS], ids=["default eps", "eps"])
@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_element(
    name: str, dtype: torch.dtype, policy: str, eps: float | None
) -> None:
    tensors = edges(name, dtype)
    threshold = reference.default_eps(policy, dtype) if eps is None else eps
    g = numbers(dtype, tuple(tensors[0].shape), 0.5, 2.0, seed=2)
    g[::2] *= -1
    y, grads = values_and_gradients(name, tensors, g, policy, eps=eps)
    assert ulps(y, reference.value(name, wide(tensors), policy, threshold)).max() <= 2
    expected = reference.gradients(name, wide(tensors), widen(g), policy, threshold)
    for grad, want in zip(grads, expected, strict=True):
        assert grad.dtype is dtype
        assert ulps(grad, want).max() <= 4
    forward, backward = hits(name, tensors, policy, threshold)
    assert sum(forward.values()) > 0
    assert counted(name, "forward") == without_zeros(forward)
    assert counted(name, "backward") == without_zeros(backward)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_a_large_tensor_with_a_singular_element_here_and_there(name: str, policy: str) -> None:
    tensors = operands(name, torch.float32, (300, 257), zeros=0)
    tensors[-1].view(-1)[5::1001] = 0
    g = numbers(torch.float32, (300, 257), seed=3)
    y, grads = values_and_gradients(name, tensors, g, policy)
    eps = reference.default_eps(policy, torch.float32)
    assert ulps(y, reference.value(name, wide(tensors), policy, eps)).max() <= 2
    expected = reference.gradients(name, wide(tensors), widen(g), policy, eps)
    for grad, want in zip(grads, expected, strict=True):
        assert ulps(grad, want).max() <= 4
    met = len(range(5, 300 * 257, 1001))
    assert counts(name) == (met if name != "sqrt" or policy == "epsilon" else 0, met)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_stock_never_floors(name: str, dtype: torch.dtype) -> None:
    tensors = edges(name, dtype)
    y = call(name, *tensors, eps=EPS, policy="stock")
    if name in ("div", "reciprocal"):
        assert_equal(y, stock(name, *tensors))
    else:
        torch.testing.assert_close(y, stock(name, *tensors), equal_nan=True)


@pytest.mark.parametrize("zero", SIGNED_ZEROS)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_the_sign_of_zero_counts_under_epsilon(dtype: torch.dtype, zero: float) -> None:
    b = torch.tensor([zero, zero], dtype=dtype)
    a = torch.tensor([1.0, -1.0], dtype=dtype)
    large = math.copysign(1024.0, zero)
    assert safeops.div(a, b, eps=EPS, policy="epsilon").tolist() == [large, -large]
    assert safeops.reciprocal(b, eps=EPS, policy="epsilon").tolist() == [large, large]
    _, (da, db) = values_and_gradients("div", (a, b), a, "epsilon", eps=EPS)
    assert da.tolist() == [large, -large] and db.tolist() == [0, 0]


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("zero", SIGNED_ZEROS)
def test_a_root_of_zero_has_a_value(zero: float, policy: str) -> None:
    x = torch.tensor([zero], requires_grad=True)
    y = safeops.sqrt(x, policy=policy)
    if policy == "epsilon":
        assert y.item() == pytest.approx(1e-6)
    else:
        assert math.copysign(1, y.item()) == math.copysign(1, zero) and y.item() == 0
    floors = int(policy == "epsilon")
    assert count("zero_argument", "forward", "sqrt") == floors
    y.backward()
    slope = {"stock": math.copysign(INF, zero), "nan": NAN, "epsilon": 0.0, "zero": 0.0}[policy]
    assert_equal(x.grad, torch.tensor([slope]))
    assert counts("sqrt") == (floors, 1)


def test_a_reciprocal_square_root_of_a_subnormal_is_regular_where_it_is_not_floored() -> None:
    x = torch.tensor([1e-40])
    for policy in ("stock", "nan", "zero", "raise"):
        assert safeops.rsqrt(x, policy=policy).item() == pytest.approx(1e20, rel=1e-4)
    assert counts("rsqrt") == (0, 0)
    assert safeops.rsqrt(x, policy="epsilon").item() == pytest.approx(1e6)
    assert count("below_eps", "forward", "rsqrt") == 1


# Incoming gradients at singular elements


def backward(name: str, g: float, policy: str) -> tuple[torch.Tensor, ...]:
    """The fused backward kernel at a singular element, next to a regular one."""
    grad, x = torch.tensor([g, 1.0]), torch.tensor([0.0, 1.0])
    eps = reference.default_eps(policy, torch.float32)
    if name == "div":
        return OPS._div_backward(grad, torch.ones(2), x, None, eps, policy, [True, True])
    return (getattr(OPS, f"_{name}_backward")(grad, x, eps, policy),)


@pytest.mark.parametrize("g", SIGNED_ZEROS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_zero_gradient(name: str, policy: str, g: float) -> None:
    for grad in backward(name, g, policy):
        # Stock multiplies 0 and infinity, or divides 0 by 0.
        assert math.isnan(grad[0]) if policy in ("stock", "nan") else grad[0] == 0
        assert grad[1].isfinite() and grad[1] != 0
    assert count(ZERO_CONDITION[name], "backward", name) == 1


@pytest.mark.parametrize("g", [1.0, 1e-45, NAN, -INF])
@pytest.mark.parametrize("name", NAMES)
def test_backward_raises_where_the_gradient_is_not_zero(name: str, g: float) -> None:
    with pytest.raises(ValueError) as caught:
        backward(name, g, "raise")
    assert type(caught.value) is ValueError
    assert str(caught.value).startswith(
        f"safeops::{name} (backward): policy 'raise' met 1 singular element of 2 "
        f"({ZERO_CONDITION[name]} 1; first at element 0)"
    )
    assert counts(name) == (0, 1)


@pytest.mark.parametrize("g", [1.0, NAN, INF])
@pytest.mark.parametrize("name", NAMES)
def test_zero_gives_zero_whatever_comes_in(name: str, g: float) -> None:
    assert all(grad[0] == 0 for grad in backward(name, g, "zero"))
    assert backward(name, g, "epsilon")[-1][0] == 0


# raise


@pytest.mark.parametrize("name", NAMES)
def test_raise_is_an_error(name: str) -> None:
    last = torch.tensor([[1.0, 0.0], [4.0, -0.0]])
    tensors = (torch.ones(2, 2), last) if name == "div" else (last,)
    condition = ZERO_CONDITION[name]
    if name == "sqrt":
        last.clamp_(min=1)[:, 1] = -1
        condition = "negative_argument"
    with pytest.raises(safeops.SingularityError) as caught:
        call(name, *tensors, policy="raise")
    error = caught.value
    assert str(error) == (
        f"safeops::{name}: policy 'raise' met 2 singular elements of 4 ({condition} 2; first at "
        "element 1) in a float32 tensor of shape [2, 2]; use policy 'zero', 'epsilon' or 'nan' to "
        "continue"
    )
    assert (error.operator, error.condition, error.count) == (name, condition, 2)
    assert (error.first_row, error.shape, error.dtype) == (1, (2, 2), "float32")
    with pytest.raises(ValueError, match="met 2 singular elements") as plain:
        getattr(OPS, name)(*tensors, policy="raise")
    assert type(plain.value) is ValueError
    assert counts(name) == (4, 0)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_raise_lets_regular_elements_pass(name: str, dtype: torch.dtype) -> None:
    tensors = operands(name, dtype, zeros=0)
    g = torch.ones(4, 6, dtype=dtype)
    y, grads = values_and_gradients(name, tensors, g, "raise")
    want, want_grads = values_and_gradients(name, tensors, g, "zero")
    assert_equal(y, want)
    for grad, expected in zip(grads, want_grads, strict=True):
        assert_equal(grad, expected)
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("direction", ["value", "gradient"])
def test_raise_at_a_root_of_zero_waits_for_backward(direction: str) -> None:
    x = torch.tensor([4.0, 0.0], requires_grad=True)
    y = safeops.sqrt(x, policy="raise")
    assert y.tolist() == [2, 0]
    if direction == "value":
        y[0].backward()
        assert x.grad.tolist() == [0.25, 0]
    else:
        with pytest.raises(ValueError, match="sqrt.*policy 'raise' met 1 singular element of 2"):
            y.sum().backward()
        assert x.grad is None
    assert counts("sqrt") == (0, 1)


# Rounding modes


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_rounding_modes(dtype: torch.dtype, mode: str, policy: str) -> None:
    a, b = (t.requires_grad_() for t in operands("div", dtype, zeros=5))
    y = safeops.div(a, b, rounding_mode=mode, policy=policy, eps=EPS)
    assert ulps(y, reference.value("div", (widen(a), widen(b)), policy, EPS, mode)).max() <= 1
    grads = torch.autograd.grad(y, (a, b), torch.ones_like(y))
    for grad in grads:
        want = torch.zeros_like(grad)
        want.view(-1)[:5] = NAN if policy == "nan" else 0
        assert_equal(grad, want)
    assert counts("div") == (5, 5)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_raise_with_a_rounding_mode(mode: str) -> None:
    a, b = operands("div", torch.float32, zeros=2)
    with pytest.raises(safeops.SingularityError, match="met 2 singular elements of 24"):
        safeops.div(a, b, rounding_mode=mode, policy="raise")
    arguments = (a, b, mode, 0.0, "raise", [True, True])
    with pytest.raises(ValueError, match="met 2 singular elements of 24"):
        OPS._div_backward(torch.ones(4, 6), *arguments)
    for grad in OPS._div_backward(torch.zeros(4, 6), *arguments):
        assert (grad == 0).all()


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("policy", POLICIES)
def test_integers_with_a_rounding_mode(policy: str, mode: str) -> None:
    skip_on_cuda(True, "integers")
    a, b = torch.tensor([7, -7, 5]), torch.tensor([2, 2, 0])
    regular = [3, -3] if mode == "trunc" else [3, -4]
    if policy == "zero":
        y = safeops.div(a, b, rounding_mode=mode, policy=policy)
        assert y.dtype is torch.int64 and y.tolist() == [*regular, 0]
        assert counts("div") == (1, 0)
        return
    error, words = {
        "stock": (RuntimeError, "ZeroDivisionError"),
        "nan": (RuntimeError, "ZeroDivisionError"),
        "raise": (safeops.SingularityError, "met 1 singular element of 3"),
        "epsilon": (ValueError, "epsilon"),
    }[policy]
    with pytest.raises(error, match=words):
        safeops.div(a, b, rounding_mode=mode, policy=policy)
    assert counts("div") == (1, 0)
    with pytest.raises(error):
        safeops.div(a, 0, rounding_mode=mode, policy=policy)
    assert counts("div") == (3, 0)
    # Where nothing is singular no policy is in the way, so that one may be ambient.
    assert safeops.div(a, 2, rounding_mode=mode, policy=policy).tolist()[:2] == regular
