"""The bits are a function of the row: not of threads, alignment, neighbours or flush-to-zero."""

from __future__ import annotations

import pytest
import torch

import safeops
from reference import normalize, ulps, widen
from samples import (
    DTYPES,
    REAL,
    assert_same_bits,
    counts,
    identifier,
    random_like,
    value_and_gradient,
)

SHAPES = ((1, 1_000_003), (2, 300_000), (5_000, 257), (40_000, 33), (200_000, 3))


def sparse_rows(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    x = random_like(torch.empty(shape, dtype=dtype))
    x[1::7] = 0
    return x


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.float64, torch.complex64], ids=identifier
)
def test_one_thread_and_two_give_the_same_bits_and_hits(
    dtype: torch.dtype, shape: tuple[int, int], threads: None
) -> None:
    x = sparse_rows(shape, dtype)
    g = random_like(x, seed=2)
    torch.set_num_threads(1)
    y, grad = value_and_gradient(x, g, "zero")
    hits = counts()
    torch.set_num_threads(2)
    again, again_grad = value_and_gradient(x, g, "zero")
    assert counts() == hits == (len(range(1, shape[0], 7)),) * 2
    assert_same_bits(again, y)
    assert_same_bits(again_grad, grad)


@pytest.mark.parametrize("dim", [0, 1, (0, 2), (1, 2)], ids=str)
def test_threads_do_not_matter_for_any_dim(dim: int | tuple[int, ...], threads: None) -> None:
    x = torch.randn(60, 70, 80)
    g = torch.randn(60, 70, 80)
    torch.set_num_threads(1)
    y, grad = value_and_gradient(x, g, "zero", dim=dim)
    torch.set_num_threads(2)
    again, again_grad = value_and_gradient(x, g, "zero", dim=dim)
    assert_same_bits(again, y)
    assert_same_bits(again_grad, grad)


@pytest.mark.parametrize("p", [1.0, 3.0, float("inf")])
def test_threads_do_not_matter_for_other_orders(p: float, threads: None) -> None:
    for shape in ((1, 200_000), (5_000, 40)):
        x = torch.randn(shape)
        g = torch.randn(shape)
        torch.set_num_threads(1)
        y, grad = value_and_gradient(x, g, "zero", p=p)
        torch.set_num_threads(2)
        again, again_grad = value_and_gradient(x, g, "zero", p=p)
        assert_same_bits(again, y)
        assert_same_bits(again_grad, grad)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 16, 17, 40, 255, 257, 8193])
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_a_row_alone_and_in_a_batch(dtype: torch.dtype, length: int) -> None:
    x = random_like(torch.empty(37, length, dtype=dtype), seed=length)
    g = random_like(x, seed=length + 1)
    y, grad = value_and_gradient(x, g, "zero")
    for first, last in ((0, 1), (1, 2), (5, 12), (17, 36), (36, 37)):
        some, some_grad = value_and_gradient(x[first:last], g[first:last], "zero")
        assert_same_bits(some, y[first:last])
        assert_same_bits(some_grad, grad[first:last])


@pytest.mark.parametrize("length", [3, 17, 300])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_alignment_does_not_matter(dtype: torch.dtype, length: int) -> None:
    x = random_like(torch.empty(20, length, dtype=dtype))
    g = random_like(x, seed=2)
    y, grad = value_and_gradient(x, g, "zero")
    for offset in (1, 2, 3, 7):
        moved = [
            torch.empty(offset + x.numel(), dtype=dtype)[offset:].view(x.shape) for _ in range(2)
        ]
        moved[0].copy_(x)
        moved[1].copy_(g)
        again, again_grad = value_and_gradient(*moved, "zero")
        assert_same_bits(again, y)
        assert_same_bits(again_grad, grad)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_values_of_neighbours_do_not_matter(dtype: torch.dtype) -> None:
    x = random_like(torch.empty(16, 12, dtype=dtype))
    y = safeops.normalize(x, policy="zero")
    for neighbour in (float("nan"), float("inf"), 0.0, torch.finfo(dtype).max):
        changed = x.clone()
        changed[1::2] = neighbour
        assert_same_bits(safeops.normalize(changed, policy="zero")[::2], y[::2])


def test_the_same_call_twice_gives_the_same_bits() -> None:
    x = torch.randn(300, 300)
    assert_same_bits(safeops.normalize(x), safeops.normalize(x))
    torch.use_deterministic_algorithms(True)
    try:
        y, _ = value_and_gradient(x, torch.ones_like(x), "zero")
        assert_same_bits(y, safeops.normalize(x))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("factor", [2.0**-100, 2.0**60])
def test_scaling_by_a_power_of_two_moves_no_bit(factor: float) -> None:
    for dtype, length in ((torch.float32, 40), (torch.float64, 300), (torch.float32, 3)):
        x = random_like(torch.empty(50, length, dtype=dtype))
        assert_same_bits(
            safeops.normalize(x * factor, policy="zero"), safeops.normalize(x, policy="zero")
        )


SUBNORMAL = {torch.float32: 1e-40, torch.float64: 1e-310, torch.bfloat16: 1e-39}


@pytest.mark.parametrize("threads_used", [1, 2])
@pytest.mark.parametrize("dtype", SUBNORMAL, ids=identifier)
def test_flush_to_zero_changes_neither_bits_nor_hits(
    dtype: torch.dtype, threads_used: int, threads: None
) -> None:
    torch.set_num_threads(threads_used)
    x = random_like(torch.empty(4_000, 24, dtype=dtype))
    x[::3] = torch.tensor(SUBNORMAL[dtype], dtype=dtype)
    x[1::9] = 0
    g = random_like(x, seed=2) * 2.0**-100
    y, grad = value_and_gradient(x, g, "zero")
    hits = counts()
    out = torch.empty_like(x)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no flush-to-zero mode")
    try:
        flushed, flushed_grad = value_and_gradient(x, g, "zero")
        safeops.normalize(x, policy="zero", out=out)
        still_flushing = (torch.tensor([1e-310], dtype=torch.float64) * 1.0).item() == 0.0
    finally:
        torch.set_flush_denormal(False)
    assert still_flushing, "the caller's mode was not restored"
    assert_same_bits(flushed, y)
    assert_same_bits(flushed_grad, grad)
    assert_same_bits(out, y)
    assert hits == (445, 445) and counts() == (890, 445)
    assert ulps(y, normalize(widen(x), 2.0, 1, 0.0, "zero")).max() <= 4
