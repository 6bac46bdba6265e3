"""What the operands may be: integers, numbers, other shapes, expanded, empty and 0-d tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import division_reference as reference
import safeops
from division_samples import (
    EPS,
    INF,
    NAMES,
    NAN,
    UNARY,
    assert_equal,
    call,
    numbers,
    operands,
    values_and_gradients,
)
from reference import ulps, widen
from samples import (
    NOT_RAISING,
    POLICIES,
    REAL,
    assert_same_bits,
    count,
    counts,
    identifier,
)

VALUE_OF_ZERO = {
    "stock": {"div": INF, "reciprocal": INF, "rsqrt": INF, "sqrt": 0.0, "log": -INF},
    "nan": dict.fromkeys(NAMES, NAN) | {"sqrt": 0.0},
    "epsilon": {
        "div": 1e12,
        "reciprocal": 1e12,
        "rsqrt": 1e6,
        "sqrt": 1e-6,
        "log": math.log(1e-12),
    },
    "zero": dict.fromkeys(NAMES, 0.0),
}


@pytest.mark.parametrize("default", [torch.float32, torch.float64], ids=identifier)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=identifier)
@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_integers_are_promoted_to_the_default_dtype(
    name: str, policy: str, dtype: torch.dtype, default: torch.dtype
) -> None:
    x = torch.tensor([0, 1], dtype=dtype)
    tensors = (torch.ones_like(x), x) if name == "div" else (x,)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        y = call(name, *tensors, policy=policy)
    finally:
        torch.set_default_dtype(before)
    regular = 0.0 if name == "log" else 1.0
    want = torch.tensor([VALUE_OF_ZERO[policy][name], regular], dtype=default)
    torch.testing.assert_close(y, want, equal_nan=True)


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_broadcasting_counts_results_and_sums_gradients(policy: str) -> None:
    a = numbers(torch.float64, (3, 1), seed=1).requires_grad_()
    b = torch.tensor([2.0, 0.0, 4.0, 0.0], dtype=torch.float64, requires_grad=True)
    y = safeops.div(a, b, policy=policy, eps=EPS)
    g = numbers(torch.float64, (3, 4), seed=2)
    da, db = torch.autograd.grad(y, (a, b), g)
    full = (widen(a), widen(b))
    assert ulps(y, reference.value("div", full, policy, EPS)).max() <= 1
    by_element = reference.gradients("div", full, widen(g), policy, EPS)
    want = by_element[0].sum(1, keepdims=True), by_element[1].sum(0)
    for grad, expected in zip((da, db), want, strict=True):
        np.testing.assert_allclose(widen(grad), expected, rtol=1e-14)
    assert counts("div") == (6, 6)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_an_expanded_gradient(name: str, policy: str) -> None:
    leaves = [tensor.requires_grad_() for tensor in operands(name, torch.float64)]
    grads = torch.autograd.grad(call(name, *leaves, policy=policy).sum(), leaves)
    ones = torch.ones(4, 6, dtype=torch.float64)
    _, want = values_and_gradients(name, tuple(leaves), ones, policy)
    for grad, expected in zip(grads, want, strict=True):
        assert_equal(grad, expected)


NUMBERS = (0, 0.0, -0.0, False, True, 3, 2.5, -1e-300, 0j, 2 + 1j)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.float32, torch.complex64])
def test_division_by_a_number_is_torchs(dtype: torch.dtype, number: complex) -> None:
    if dtype is torch.float16 and isinstance(number, complex):
        dtype = torch.float64  # neither has a quotient of half complex numbers
    x = numbers(torch.float32, (5,), 1.0, 4.0).to(dtype)
    y, want = safeops.div(x, number, policy="stock"), torch.div(x, number)
    assert y.dtype is want.dtype
    torch.testing.assert_close(y, want, equal_nan=True)
    singular = number == 0 or (abs(number) < 1e-30 and dtype is not torch.float64)
    assert counts("div") == (5 * singular, 0)
    assert (safeops.div(x, number, policy="zero") == 0).all() == singular


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("number", [0, 0.0, -0.0, 2.0])
def test_the_gradient_of_a_division_by_a_number(number: float, policy: str) -> None:
    x = torch.tensor([3.0, -1.0], requires_grad=True)
    y = safeops.div(x, number, policy=policy, eps=EPS)
    y.sum().backward()
    divisor = torch.full((2,), float(number))
    _, (want, _) = values_and_gradients("div", (x, divisor), torch.ones(2), policy, eps=EPS)
    assert_equal(x.grad, want)
    assert count(None, "backward", "div") == 4 * (number == 0)


def test_divide_and_true_divide_are_div() -> None:
    a, b = operands("div", torch.float32, zeros=3)
    want = safeops.div(a, b, policy="zero")
    assert_equal(safeops.divide(a, b, rounding_mode="floor", policy="zero"), want.floor())
    assert_equal(safeops.true_divide(a, b, policy="zero"), want)
    assert_equal(safeops.true_divide(a, 0, policy="zero"), torch.zeros(4, 6))
    assert counts("div") == (3 * 3 + 24, 0)
    for function in (safeops.divide, safeops.true_divide):
        with pytest.raises(safeops.SingularityError, match="safeops::div: policy 'raise' met 3"):
            function(a, b, policy="raise")
    with pytest.raises(TypeError, match="rounding_mode"):
        safeops.true_divide(a, b, rounding_mode="floor")


# Without elements, and without dims


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", [(0,), (3, 0)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_no_elements_are_no_hits(name: str, shape: tuple[int, ...], policy: str) -> None:
    leaves = [torch.empty(shape, requires_grad=True) for _ in range(1 + (name == "div"))]
    y = call(name, *leaves, policy=policy)
    y.sum().backward()
    assert y.shape == shape and all(leaf.grad.shape == shape for leaf in leaves)
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", UNARY)
def test_scalars(name: str, policy: str) -> None:
    x = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    y = call(name, x, policy=policy)
    y.backward()
    assert y.shape == x.grad.shape == ()
    want = torch.tensor(VALUE_OF_ZERO[policy][name], dtype=torch.float64)
    torch.testing.assert_close(y.detach(), want, equal_nan=True)
    assert count(None, "backward", name) == 1


# What the dtype does not hold wraps or becomes infinite, before or after promotion.
WIDE_NUMBERS = (-1, 200, 256, 300, 2**40, -0.3, 1e300)
WIDE_DTYPES = [torch.uint8, torch.int8, torch.int32, torch.float16, torch.float32]


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
@pytest.mark.parametrize("number", WIDE_NUMBERS, ids=str)
@pytest.mark.parametrize("dtype", WIDE_DTYPES, ids=identifier)
def test_a_number_as_the_dividend_is_torchs(
    dtype: torch.dtype, number: float, mode: str | None
) -> None:
    x = torch.tensor([1, 2, 7, 100]).to(dtype)
    got = safeops.div(number, x, rounding_mode=mode, policy="stock")
    if mode == "floor" and dtype is torch.float16:  # a listed deviation: PyTorch rounds on the way
        dividend = torch.tensor(number, dtype=torch.float64).half().float()
        want = torch.div(dividend, x.float(), rounding_mode=mode).half()
    else:
        want = torch.div(number, x, rounding_mode=mode)
    assert_same_bits(got, want)


@pytest.mark.parametrize("dtype", [*REAL, torch.int64], ids=identifier)
@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_a_divisor_beyond_int64(number: int, dtype: torch.dtype) -> None:
    x = torch.tensor([1, 3, 5]).to(dtype)
    assert_same_bits(safeops.div(x, number, policy="stock"), torch.div(x, number))
