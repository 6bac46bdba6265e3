"""A policy changes no bit of a regular row; rows below eps differ exactly as the contract says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import safeops
from reference import divide, forward_bound, gradient, ulps, widen
from samples import (
    DTYPES,
    LAYOUTS,
    LONG,
    ORDERS,
    POLICIES,
    assert_same_bits,
    count,
    counts,
    identifier,
    random_like,
    rows_of_norm,
    value_and_gradient,
)

# Tiny, side by side, batched and long rows; 100 000 or, unless told otherwise, a tenth of that.
SHAPES = ((60_000, 3), (20_000, 16), (19_000, 40), (1_000, 300))
SHAPES = SHAPES if LONG else tuple((rows // 10, length) for rows, length in SHAPES)
# Exponents of norms that are regular under every policy's default eps.
RANGE = {torch.float16: (-13, 14), torch.float64: (-39, 900), torch.complex128: (-39, 900)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_regular_rows_have_the_same_bits_under_every_policy(
    dtype: torch.dtype, layout: str
) -> None:
    low, high = RANGE.get(dtype, (-39, 120))
    rows = 0
    for shape in SHAPES:
        contiguous = rows_of_norm(dtype, shape, low, high, seed=rows)
        x, g = LAYOUTS[layout](contiguous), LAYOUTS[layout](random_like(contiguous))
        y, grad = value_and_gradient(x, g, "stock")
        assert not y.isnan().any()
        for policy in POLICIES[1:]:
            other_y, other_grad = value_and_gradient(x, g, policy)
            assert_same_bits(other_y, y)
            assert_same_bits(other_grad, grad)
        rows += shape[0]
    assert rows == (100_000 if LONG else 10_000)
    assert counts() == (0, 0)


@pytest.mark.parametrize("p", ORDERS[1:])
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_other_orders_have_the_same_bits_under_every_policy(dtype: torch.dtype, p: float) -> None:
    x = rows_of_norm(dtype, (2_000, 5), -6, 12) + (p <= 0)
    g = random_like(x)
    x, g = x[x.abs().amin(1) > 0.01], g[x.abs().amin(1) > 0.01]
    assert len(x) > 100
    y, grad = value_and_gradient(x, g, "stock", p=p)
    for policy in POLICIES[1:]:
        other_y, other_grad = value_and_gradient(x, g, policy, p=p)
        assert_same_bits(other_y, y)
        assert_same_bits(other_grad, grad)
    assert counts() == (0, 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_one_explicit_eps_draws_the_same_line_under_every_policy(dtype: torch.dtype) -> None:
    regular = rows_of_norm(dtype, (20_000, 7), -1, 10)
    below = rows_of_norm(dtype, (20_000, 7), -8, -3)
    x = torch.stack([regular, below], 1).flatten(0, 1)
    g = random_like(x)
    y, grad = value_and_gradient(x, g, "stock", eps=0.25)
    for policy in ("nan", "epsilon", "zero"):
        other_y, other_grad = value_and_gradient(x, g, policy, eps=0.25)
        assert_same_bits(other_y[::2], y[::2])
        assert_same_bits(other_grad[::2], grad[::2])
        if policy == "epsilon":
            assert_same_bits(other_y, y)
            assert_same_bits(other_grad, grad)
        else:
            fill = {"nan": torch.isnan, "zero": lambda t: t == 0}[policy]
            assert fill(other_y[1::2]).all() and fill(other_grad[1::2]).all()
    # 0.25 is a power of two: the floored formulas are exact.
    assert_same_bits(y[1::2], x[1::2] / 0.25)
    assert_same_bits(grad[1::2], g[1::2] / 0.25)
    with pytest.raises(safeops.SingularityError, match="20000 singular rows of 40000"):
        safeops.normalize(x, eps=0.25, policy="raise")
    with pytest.raises(safeops.SingularityError, match="first at row 1"):
        safeops.normalize(x, eps=0.25, policy="raise")
    assert_same_bits(safeops.normalize(regular, eps=0.25, policy="raise"), y[::2])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_a_norm_equal_to_eps_is_regular(dtype: torch.dtype, policy: str) -> None:
    x = torch.tensor([0.25, 0], dtype=dtype, requires_grad=True)
    y = safeops.normalize(x, dim=0, eps=0.25, policy=policy)
    y.backward(torch.tensor([1, 1], dtype=dtype))
    assert y.tolist() == [1, 0] and x.grad.tolist() == [0, 4]
    assert counts() == (0, 0)


TINY = [
    (dtype, exponent)
    for dtype in (torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
    for exponent in (-41, -100, -1000)
    if exponent != -1000 or dtype in (torch.float64, torch.complex128)
]


@pytest.mark.parametrize(("dtype", "exponent"), TINY, ids=str)
def test_rows_between_zero_and_the_default_eps(dtype: torch.dtype, exponent: int) -> None:
    x = rows_of_norm(dtype, (1_000, 6), exponent - 0.5, exponent)
    g, eps = random_like(x) * 1e-3, np.full((1, 1), np.longdouble(1e-12))
    for policy in ("stock", "epsilon"):
        y, grad = value_and_gradient(x, g, policy)
        bound = forward_bound(dtype, 2.0, 6)
        assert ulps(y, divide(widen(x), eps)).max() <= bound
        assert ulps(grad, divide(widen(g), eps)).max() <= bound
        assert count("below_eps") == 1_000 and count("zero_norm") == 0
        assert counts() == (1_000, 1_000)
    reference_y, reference_grad = value_and_gradient(x, g, "zero")
    lengths = torch.linalg.vector_norm(reference_y.to(torch.complex128), dim=1)
    assert (lengths - 1).abs().max() < 4 * torch.finfo(dtype).eps
    expected = gradient(widen(x), widen(g), 2.0, 1, 0.0, "zero")
    size = abs(expected).max(1, keepdims=True)
    # An error of y moves the whole gradient row, so the row's largest element is the yardstick.
    assert ulps(reference_grad, expected, size).max() <= 8
    for policy in ("nan", "raise"):
        y, grad = value_and_gradient(x, g, policy)
        assert_same_bits(y, reference_y)
        assert_same_bits(grad, reference_grad)
    assert counts() == (0, 0)


def test_half_epsilon_floors_at_its_own_default() -> None:
    x = torch.tensor([[2.0**-15, 0], [2.0**-14, 0], [0, 0]], dtype=torch.float16)
    g = torch.ones_like(x)
    y, grad = value_and_gradient(x, g, "epsilon")
    assert y.tolist() == [[0.5, 0], [1, 0], [0, 0]]
    assert grad.tolist() == [[2.0**14] * 2, [0, 2.0**14], [2.0**14] * 2]
    assert count("below_eps") == 1 and count("zero_norm") == 1
    for policy in ("stock", "nan", "zero"):
        assert safeops.normalize(x, policy=policy)[:2].tolist() == [[1, 0], [1, 0]]


def test_half_stock_keeps_its_eps_in_wide_precision() -> None:
    # Rounded to float16, 1e-12 is 0; held wide, the value is 0 and the slope 1/eps overflows.
    x = torch.zeros(1, 3, dtype=torch.float16)
    y, grad = value_and_gradient(x, torch.tensor([[1, 0, -1]], dtype=torch.float16), "stock")
    assert y.tolist() == [[0, 0, 0]]
    assert grad.tolist() == [[float("inf"), 0, float("-inf")]]
