"""The bits are a function of the row: not of threads, alignment, neighbours or flush-to-zero."""

from __future__ import annotations

import math

import pytest
import torch

import safeops
import softmax_reference as reference
from reference import widen
from samples import LAYOUTS, REAL, assert_same_bits, counts, identifier
from softmax_samples import (
    INF,
    NAMES,
    call,
    incoming,
    kept,
    logits,
    some_mask,
    value_and_gradient,
)

SHAPES = ((1, 500_003), (2, 100_000), (2_000, 257), (10_000, 33), (60_000, 3))


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_one_thread_and_two_give_the_same_bits_and_hits(
    name: str, dtype: torch.dtype, shape: tuple[int, int], masked: bool, threads: None
) -> None:
    x = logits(dtype, shape)
    x[1::7] = -INF
    where = some_mask(shape) if masked else None
    g = incoming(name, x)
    torch.set_num_threads(1)
    y, grad = value_and_gradient(name, x, g, "zero", where=where)
    hits = counts(name)
    torch.set_num_threads(2)
    again, again_grad = value_and_gradient(name, x, g, "zero", where=where)
    assert counts(name) == hits == (len(range(1, shape[0], 7)),) * 2
    assert_same_bits(again, y)
    assert_same_bits(again_grad, grad)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_threads_do_not_matter_for_any_dim(name: str, dim: int, threads: None) -> None:
    x = logits(torch.float32, (60, 70, 80))
    g = incoming(name, x, dim)
    torch.set_num_threads(1)
    y, grad = value_and_gradient(name, x, g, "zero", dim)
    torch.set_num_threads(2)
    again, again_grad = value_and_gradient(name, x, g, "zero", dim)
    assert_same_bits(again, y)
    assert_same_bits(again_grad, grad)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 16, 17, 40, 255, 257, 8193])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_a_row_alone_and_in_a_batch(name: str, dtype: torch.dtype, length: int) -> None:
    x, where = logits(dtype, (37, length), seed=length), some_mask((37, length))
    g = incoming(name, x)
    for mask in (None, where):
        y, grad = value_and_gradient(name, x, g, "zero", where=mask)
        for first, last in ((0, 1), (1, 2), (5, 12), (17, 36), (36, 37)):
            part = slice(first, last)
            some, some_grad = value_and_gradient(
                name, x[part], g[part], "zero", where=None if mask is None else mask[part]
            )
            assert_same_bits(some, y[part])
            assert_same_bits(some_grad, grad[part])


@pytest.mark.parametrize("length", [3, 17, 300])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_alignment_does_not_matter(name: str, dtype: torch.dtype, length: int) -> None:
    x = logits(dtype, (20, length))
    g = incoming(name, x)
    where = some_mask((20, length))
    y, grad = value_and_gradient(name, x, g, "zero")
    masked_y, masked_grad = value_and_gradient(name, x, g, "zero", where=where)
    for offset in (1, 2, 3, 7):
        moved = []
        for tensor in (x, g, where):
            storage = torch.empty(offset + tensor.numel(), dtype=tensor.dtype)
            moved.append(storage[offset:].view(tensor.shape).copy_(tensor))
        again, again_grad = value_and_gradient(name, *moved[:2], "zero")
        assert_same_bits(again, y)
        assert_same_bits(again_grad, grad)
        again, again_grad = value_and_gradient(name, *moved[:2], "zero", where=moved[2])
        assert_same_bits(again, masked_y)
        assert_same_bits(again_grad, masked_grad)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_values_of_neighbours_do_not_matter(name: str, dtype: torch.dtype) -> None:
    x = logits(dtype, (16, 12))
    y = call(name, x, policy="zero")
    for neighbour in (math.nan, INF, -INF, torch.finfo(dtype).max, torch.finfo(dtype).min):
        changed = x.clone()
        changed[1::2] = neighbour
        assert_same_bits(call(name, changed, policy="zero")[::2], y[::2])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(50, 3), (30, 40), (4, 600)], ids=str)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_every_layout_has_the_same_hits_and_is_accurate(
    name: str, dtype: torch.dtype, shape: tuple[int, int], layout: str
) -> None:
    x = logits(dtype, shape)
    x[1] = -INF
    g = incoming(name, x)
    y, grad = value_and_gradient(name, LAYOUTS[layout](x), g, "zero")
    assert counts(name) == (1, 1)
    want = reference.value(name, widen(x), -1, "zero")
    assert reference.value_errors(name, kept(name, y), want).max() <= 1
    plain_y, plain_grad = value_and_gradient(name, x, g, "zero")
    torch.testing.assert_close(grad, plain_grad)
    assert y.is_contiguous() and plain_y.is_contiguous()
    assert grad.is_contiguous()


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_every_dim_of_a_permuted_tensor(name: str, dim: int) -> None:
    base = logits(torch.float64, (3, 4, 5, 6))
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (0, 2, 3, 1), (1, 0, 3, 2), (2, 0, 1, 3)):
        x = base.permute(order)
        g = incoming(name, x, dim)
        y, grad = value_and_gradient(name, x, g, "zero", dim)
        want = reference.value(name, widen(x), dim, "zero")
        assert reference.value_errors(name, kept(name, y, dim), want).max() <= 1
        wide_g = widen(kept(name, g, dim))
        assert reference.gradient_errors(name, grad, widen(x), wide_g, dim).max() <= 1


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_a_column_has_the_same_bits_in_a_matrix_of_four_columns_or_more(
    name: str, dtype: torch.dtype
) -> None:
    # 1024 and 2048 columns put the elements of a column whole pages apart.
    wide = logits(dtype, (2, 37, 2048))
    wide[0, :, 3] = -INF
    wide_g = incoming(name, wide, 1)
    for width in (4, 5, 16, 17, 40, 1000, 1024):
        x, g = wide[..., :width].contiguous(), wide_g[..., :width].contiguous()
        safeops.diagnostics.reset()
        y, grad = value_and_gradient(name, x, g, "zero", 1)
        assert counts(name) == (1, 1)
        whole, whole_grad = value_and_gradient(name, wide, wide_g, "zero", 1)
        assert_same_bits(y, whole[..., :width])
        assert_same_bits(grad, whole_grad[..., :width])


SUBNORMAL_WEIGHTS = {torch.float32: 95.0, torch.float64: 730.0, torch.bfloat16: 95.0}


@pytest.mark.parametrize("threads_used", [1, 2])
@pytest.mark.parametrize("dtype", SUBNORMAL_WEIGHTS, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_flush_to_zero_changes_neither_bits_nor_hits(
    name: str, dtype: torch.dtype, threads_used: int, threads: None
) -> None:
    torch.set_num_threads(threads_used)
    # Weights, and subnormal inputs, that a flushing processor would take for zero.
    x = logits(dtype, (3_000, 24))
    x[:, ::3] -= SUBNORMAL_WEIGHTS[dtype]
    x[1::9] = -INF
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, "zero")
    hits = counts(name)
    if name == "softmax":
        assert ((y > 0) & (y < torch.finfo(dtype).smallest_normal)).any()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no flush-to-zero mode")
    try:
        flushed, flushed_grad = value_and_gradient(name, x, g, "zero")
        still_flushing = (torch.tensor([1e-310], dtype=torch.float64) * 1.0).item() == 0.0
    finally:
        torch.set_flush_denormal(False)
    assert still_flushing, "the caller's mode was not restored"
    assert_same_bits(flushed, y)
    assert_same_bits(flushed_grad, grad)
    assert hits == counts(name) == (334, 334)


def test_flush_to_zero_spares_subnormal_results_and_gradients_of_logsumexp() -> None:
    x = torch.tensor([[1e-40, -INF], [0.0, 0.0]], requires_grad=True)
    g = torch.tensor([0, 80000], dtype=torch.int32).view(torch.float32)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no flush-to-zero mode")
    try:
        y = safeops.logsumexp(x, 1)
        (grad,) = torch.autograd.grad(y, x, g)
    finally:
        torch.set_flush_denormal(False)
    assert y[0].item() == x[0, 0].item() > 0
    assert grad[1].view(torch.int32).tolist() == [40000, 40000]
