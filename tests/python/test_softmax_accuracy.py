"""Errors in ulp of the output dtype against long double, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import safeops
import softmax_reference as reference
from reference import widen
from samples import REAL, count, identifier
from softmax_samples import (
    INF,
    LOGITS,
    NAMES,
    call,
    incoming,
    kept,
    logits,
    some_mask,
    value_and_gradient,
    wide,
)

pytestmark = pytest.mark.usefixtures("every_device")

SPREADS = (1.0, 10.0, 87.0, 700.0, 1e4, 1e6)
LENGTHS = (1, 2, 3, 4, 5, 8, 17, 64, 255, 256, 257, 1000, 9000)


def largest_error(errors: np.ndarray) -> float:
    return float(errors.max(initial=0))


def assert_accurate(
    name: str, x: torch.Tensor, dim: int = 1, where: torch.Tensor | None = None
) -> None:
    g = incoming(name, x, dim)
    y, grad = value_and_gradient(name, x, g, "zero", dim, where=where)
    want = reference.value(name, widen(x), dim, "zero", where)
    assert largest_error(reference.value_errors(name, kept(name, y, dim), want)) <= 1
    # Backward is held to what forward stored; how far that is off was measured above.
    stored = None if name == "logsumexp" else widen(y)
    errors = reference.gradient_errors(name, grad, widen(x), wide(name, g, dim), dim, where, stored)
    assert largest_error(errors) <= 1


def usable(dtype: torch.dtype, spread: float) -> bool:
    return dtype is not torch.float16 or spread <= 1e4


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_every_size_of_the_logits(name: str, dtype: torch.dtype, spread: float) -> None:
    if not usable(dtype, spread):
        spread = 6e4
    for length in LENGTHS:
        x = logits(dtype, (max(2, 1_500 // length), length), spread, seed=length)
        assert_accurate(name, x)
        assert_accurate(name, x, where=some_mask(tuple(x.shape)))
    assert count(None, "forward", name) == 0


@pytest.mark.parametrize("offset", [-1e6, -1000.0, 1024.0, 1e5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_logits_far_from_zero_and_near_each_other(
    name: str, dtype: torch.dtype, offset: float
) -> None:
    for length in (3, 40, 300, 9000):
        x = (logits(torch.float64, (max(2, 1_000 // length), length), 3.0) + offset).to(dtype)
        assert_accurate(name, x)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_every_dim(name: str, dtype: torch.dtype, dim: int) -> None:
    x = logits(dtype, (7, 9, 33), 30.0)
    assert_accurate(name, x, dim)
    assert_accurate(name, x, dim, some_mask((9, 1)))


@pytest.mark.parametrize("length", [100_000, 1_000_003])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_long_rows(name: str, dtype: torch.dtype, length: int) -> None:
    x = logits(dtype, (1, length), 10.0)
    y = call(name, x, policy="zero")
    want = reference.value(name, widen(x), -1, "zero")
    assert largest_error(reference.value_errors(name, kept(name, y), want)) <= 1


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_a_long_row_of_equal_elements(name: str, dtype: torch.dtype) -> None:
    # Equal terms are where a narrow accumulator drifts.
    for number in (0.0, 0.1, -30.0):
        x = torch.full((1, 300_001), number, dtype=dtype)
        y = call(name, x, policy="zero")
        want = reference.value(name, widen(x), -1, "zero")
        assert largest_error(reference.value_errors(name, kept(name, y), want)) <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=identifier)
def test_rows_add_up_to_one(dtype: torch.dtype) -> None:
    for length in (2, 3, 5, 17, 64, 300, 1000, 9000):
        for spread in SPREADS:
            x = logits(dtype, (max(2, 2_000 // length), length), spread, seed=length)
            total = widen(safeops.softmax(x, 1)).sum(1)
            assert abs(total - 1).max() <= 2 * length * torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=identifier)
@pytest.mark.parametrize("name", LOGITS)
def test_half_converted_on_load(name: str, dtype: torch.dtype) -> None:
    for length in (3, 40, 300, 9000):
        x = logits(dtype, (max(2, 1_000 // length), length), 20.0)
        y = call(name, x, dtype=torch.float32, policy="zero")
        want = reference.value(name, widen(x), -1, "zero")
        assert largest_error(reference.value_errors(name, y, want)) <= 1
        leaf = x.requires_grad_()
        y = call(name, leaf, dtype=torch.float32, policy="zero")
        g = logits(torch.float32, tuple(x.shape), 2.0, seed=3)
        (grad,) = torch.autograd.grad(y, leaf, g)
        assert grad.dtype is dtype
        errors = reference.gradient_errors(
            name, grad, widen(x), widen(g), -1, None, widen(y.detach())
        )
        assert largest_error(errors) <= 1


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_every_magnitude_of_two_elements(name: str, dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    lowest = round(np.log2(info.smallest_normal * info.eps))
    exponents = torch.linspace(lowest, np.log2(info.max) - 0.01, 60, dtype=torch.float64)
    sizes = torch.exp2(exponents)
    values = torch.cat([-sizes, torch.zeros(1, dtype=torch.float64), sizes]).to(dtype)
    x = torch.cartesian_prod(values, values)
    y = call(name, x, policy="raise")
    want = reference.value(name, widen(x), -1, "raise")
    assert largest_error(reference.value_errors(name, kept(name, y), want)) <= 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_every_half_beside_a_zero(name: str, dtype: torch.dtype) -> None:
    values = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    values = values[values.isfinite()]
    assert len(values) > 60_000
    x = torch.stack([values, torch.zeros_like(values)], 1)
    y = call(name, x, policy="raise")
    want = reference.value(name, widen(x), -1, "raise")
    assert largest_error(reference.value_errors(name, kept(name, y), want)) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_one_element_far_above_the_others(name: str) -> None:
    for dtype in REAL:
        top = torch.finfo(dtype).max
        for place in (0, 7, 39):
            x = torch.full((3, 40), -top, dtype=dtype)
            x[0, place], x[1, place] = top, 0
            x[2] = -INF
            x[2, place] = top
            y = call(name, x, policy="raise")
            want = reference.value(name, widen(x), -1, "raise")
            assert largest_error(reference.value_errors(name, kept(name, y), want)) <= 1
