"""Errors in ulp of the output dtype against long double, forward and backward."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import safeops
from reference import forward_bound, gradient, norm, normalize, slope, ulps, widen
from samples import (
    BITS,
    COMPLEX,
    DTYPES,
    ORDERS,
    REAL,
    count,
    device,
    identifier,
    random_like,
    rows_of_norm,
    skip_without_norm,
)

pytestmark = pytest.mark.usefixtures("every_device")

HALF = (torch.float16, torch.bfloat16)
SINGLE = (torch.float32, torch.complex64)


def served(*orders: float) -> tuple[float, ...]:
    """Those for which the device has a kernel."""
    return orders if device().type == "cpu" else tuple(p for p in orders if p != 3)


def assert_forward(x: torch.Tensor, p: float = 2.0) -> None:
    skip_without_norm(p, x.dtype)
    y = safeops.normalize(x, p=p, dim=1, policy="zero")
    error = ulps(y, normalize(widen(x), p, 1, 0.0, "zero"))
    bound = forward_bound(x.dtype, p, x.shape[1])
    assert error.max() <= bound, f"{float(error.max()):.3f} ulp, allowed {bound:.3f}"


def random_bits(dtype: torch.dtype, rows: int, length: int) -> torch.Tensor:
    """Rows of random bit patterns: every finite magnitude that dtype has."""
    info = torch.iinfo(BITS[dtype.itemsize])
    generator = torch.Generator().manual_seed(length)
    integers = BITS[dtype.itemsize]
    raw = torch.randint(
        info.min, info.max, (rows, length), generator=generator, dtype=integers, device="cpu"
    )
    x = raw.view(dtype).to(device())
    return torch.where(x.isfinite(), x, torch.ones_like(x))


@pytest.mark.parametrize(
    "length", [1, 2, 3, 4, 8, 15, 16, 17, 31, 64, 100, 255, 256, 257, 1000, 1023]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_forward_at_every_class_of_length(dtype: torch.dtype, length: int) -> None:
    assert_forward(
        random_like(torch.empty(max(2, 20_000 // length), length, dtype=dtype), seed=length)
    )


@pytest.mark.parametrize("length", [8191, 8192, 8193, 100_000, 1_000_000])
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_forward_of_long_rows(dtype: torch.dtype, length: int) -> None:
    assert_forward(random_like(torch.empty(1, length, dtype=dtype), seed=length))


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_forward_of_a_long_row_of_equal_signs(dtype: torch.dtype) -> None:
    # Equal signs and magnitudes are where a narrow accumulator drifts.
    assert_forward(torch.full((1, 1_000_000), 0.1, dtype=dtype))


@pytest.mark.parametrize("length", [2, 3, 5, 16, 40, 300])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_forward_on_random_bit_patterns(dtype: torch.dtype, length: int) -> None:
    assert_forward(random_bits(dtype, 60_000 // length, length))
    assert count() == 0


@pytest.mark.parametrize("p", [1.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_forward_of_other_orders_on_random_bit_patterns(dtype: torch.dtype, p: float) -> None:
    assert_forward(random_bits(dtype, 2_000, 5), p)
    assert count() == 0


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero", "raise"])
def test_small_elements_beside_a_huge_norm_keep_their_digits(policy: str) -> None:
    # Scaling the row to save its norm must not push its small elements out of the range.
    rows = [[2.0**502, 1.7 * 2.0**-450], [2.0**600, 1.3 * 2.0**-420]]
    x = torch.tensor(rows, dtype=torch.float64)
    y = safeops.normalize(x, policy=policy)
    assert ulps(y, normalize(widen(x), 2.0, 1, 0.0, policy)).max() <= 2.25


@pytest.mark.parametrize("dtype", HALF, ids=identifier)
def test_forward_of_every_half_as_a_row_of_one(dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite() & (x != 0)].view(-1, 1)
    assert len(x) > 60_000
    for p in served(2.0, 1.0, 3.0, math.inf):
        y = safeops.normalize(x, p=p, policy="raise")
        assert torch.equal(y, x.sign())


@pytest.mark.parametrize(
    ("dtype", "exponents"),
    [
        (torch.float32, (30, -30)),
        (torch.float64, (300, -300)),
        (torch.complex64, (30, -30)),
        (torch.complex128, (300, -300)),
        (torch.bfloat16, (30, -30)),
    ],
    ids=identifier,
)
def test_forward_and_backward_far_from_one(dtype: torch.dtype, exponents: tuple[int, int]) -> None:
    for exponent in exponents:
        for length in (3, 20, 300):
            x = random_like(torch.empty(50, length, dtype=dtype))
            x = (x.to(torch.complex128 if dtype.is_complex else torch.float64) * 10.0**exponent).to(
                dtype
            )
            assert_forward(x)
            assert_backward(x, random_like(x, seed=3) * 0.5)
    assert count() == 0


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_forward_of_subnormal_rows(dtype: torch.dtype) -> None:
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    steps = torch.arange(-6, 7, dtype=torch.float64)
    x = torch.cartesian_prod(steps, steps, steps)
    x = (x[x.abs().amax(1) > 0] * smallest).to(dtype)
    assert len(x) == 13**3 - 1
    for p in served(2.0, 1.0, 3.0, math.inf):
        assert_forward(x, p)
    assert count() == 0


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero", "raise"])
def test_a_norm_beyond_the_range_of_float64(policy: str) -> None:
    x = torch.tensor([[1.5e308, 1.5e308]], dtype=torch.float64)
    y = safeops.normalize(x, policy=policy)
    assert ulps(y, normalize(widen(x), 2.0, 1, 0.0, policy)).max() <= 2.25
    g = torch.tensor([[1e300, -1e300]], dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(safeops.normalize(leaf, policy=policy), leaf, g)
    assert ulps(grad, gradient(widen(x), widen(g), 2.0, 1, 0.0, policy)).max() <= 8


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("place", [0, 7, 39])
def test_one_large_element_among_small_ones(dtype: torch.dtype, place: int) -> None:
    info = torch.finfo(dtype)
    x = torch.full((2, 40), info.smallest_normal, dtype=dtype)
    x[0, place], x[1, place] = info.max, 1
    assert_forward(x)


@pytest.mark.parametrize("p", ORDERS[1:] + (1.5, 4.0, 10.0, 50.0, -2.0))
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_forward_for_other_orders(dtype: torch.dtype, p: float) -> None:
    for length in (1, 3, 17, 300):
        assert_forward(random_like(torch.empty(64, length, dtype=dtype), seed=length) + (p < 0), p)


@pytest.mark.parametrize("p", [1.0, 3.0, 0.5, math.inf, 50.0, -1.0])
@pytest.mark.parametrize("exponent", [-300, 300])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=identifier)
def test_other_orders_neither_overflow_nor_underflow(
    dtype: torch.dtype, exponent: int, p: float
) -> None:
    assert_forward(rows_of_norm(dtype, (50, 5), 0, 1) * 10.0**exponent, p)


def scale_of_terms(x: np.ndarray, g: np.ndarray, p: float) -> np.ndarray:
    """Per element the larger of the two terms that the gradient subtracts."""
    n = norm(x, p, 1)
    inner = (np.conj(g) * x / n).real.sum(1, keepdims=True)
    return np.maximum(abs(g), abs(x / n * inner)) / n


def condition(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """How much the inner product of a row cancels, at most 1000."""
    products = (np.conj(g) * x).real
    total, size = abs(products.sum(1, keepdims=True)), abs(products).sum(1, keepdims=True)
    return np.where(total * 1e3 > size, size / np.where(total == 0, 1, total), np.longdouble(1e3))


def assert_backward(x: torch.Tensor, g: torch.Tensor) -> None:
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(safeops.normalize(leaf, dim=1, policy="zero"), leaf, g)
    wide_x, wide_g = widen(x), widen(g)
    expected = gradient(wide_x, wide_g, 2.0, 1, 0.0, "zero")
    error = ulps(grad, expected, np.maximum(scale_of_terms(wide_x, wide_g, 2.0), abs(expected)))
    if x.dtype in HALF:
        bound = np.ones((len(x), 1))
    else:
        bound = (4 if x.dtype in SINGLE else 8) * condition(wide_x, wide_g)
    assert (error <= bound).all(), f"{float((error / bound).max()):.3f} of the bound"


@pytest.mark.parametrize("length", [1, 2, 3, 8, 17, 64, 257, 1000])
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_backward(dtype: torch.dtype, length: int) -> None:
    x = random_like(torch.empty(max(2, 5_000 // length), length, dtype=dtype), seed=length)
    assert_backward(x, random_like(x, seed=length + 1))


@pytest.mark.parametrize("length", [2, 3, 20, 300])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_backward_on_random_bit_patterns(dtype: torch.dtype, length: int) -> None:
    x = random_bits(dtype, 30_000 // length, length)
    assert_backward(x, random_like(x, seed=5))
    assert count(direction="backward") == 0


@pytest.mark.parametrize(
    ("x", "g"),
    [
        ([1e155, 1e155], [1e300, -1e300]),
        ([1e-3, 4.9e151], [3e302, 1e2]),
        ([1e152, 4.9e151], [3e302, 1e2]),
        ([1e-150, -3e-150], [1e-170, 1e-169]),
        ([1e-300, 2e-300], [1e-305, 1e-306]),
    ],
)
def test_gradients_far_from_one_beside_norms_far_from_one(x: list[float], g: list[float]) -> None:
    # The gradient itself is in range; nothing on the way to it may leave the range.
    assert_backward(torch.tensor([x], dtype=torch.float64), torch.tensor([g], dtype=torch.float64))


@pytest.mark.parametrize("p", [1.0, 3.0, 0.5, math.inf, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *COMPLEX], ids=identifier)
def test_backward_for_other_orders(dtype: torch.dtype, p: float) -> None:
    skip_without_norm(p, dtype)
    for length in (2, 5, 40):
        x = rows_of_norm(dtype, (50, length), -3, 3, seed=length)
        g = random_like(x)
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(safeops.normalize(leaf, p=p, policy="zero"), leaf, g)
        wide_x, wide_g = widen(x), widen(g)
        expected = gradient(wide_x, wide_g, p, 1, 0.0, "zero")
        n = norm(wide_x, p, 1)
        terms = abs(wide_g * wide_x / n).sum(1, keepdims=True)
        scale = (abs(wide_g) + abs(slope(wide_x, p, 1)) * terms) / n
        # A rounding of x / n counts abs(p - 1) times in the slope.
        factor = 1 if math.isinf(p) else 1 + abs(p - 1)
        assert ulps(grad, expected, scale).max() <= (4 if dtype in SINGLE else 8) * factor
