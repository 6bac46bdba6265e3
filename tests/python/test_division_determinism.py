"""The bits of an element are a function of that element: not of threads, place or neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import safeops
from division_numbers import assert_same_numbers, random_patterns, subnormals
from division_samples import INF, UNARY, numbers, values_and_gradients
from samples import DTYPES, REAL, assert_same_bits, counts, identifier

NAMES = ("div", *UNARY)
# Below and above what one thread takes, and no multiple of it.
SIZES = (1_000, 32_768, 100_003, 1_000_003)


def tensors_of(name: str, dtype: torch.dtype, size: int) -> tuple[torch.Tensor, ...]:
    x = numbers(dtype, (size,), 0.01, 50.0)
    x[5::7_001] = 0
    return (numbers(dtype, (size,), -3.0, 3.0, seed=1), x) if name == "div" else (x,)


@contextmanager
def flushing() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no flush-to-zero mode")
    try:
        yield
        assert (torch.tensor([1e-310], dtype=torch.float64) * 1.0).item() == 0, (
            "the caller's mode was not restored"
        )
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("policy", ["stock", "zero"])
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_one_thread_and_two_give_the_same_bits_and_hits(
    name: str, dtype: torch.dtype, policy: str, threads: None
) -> None:
    for size in SIZES[:3] if dtype.is_complex or policy == "stock" else SIZES:
        tensors = tensors_of(name, dtype, size)
        g = numbers(dtype, (size,), -1.0, 1.0, seed=2)
        torch.set_num_threads(1)
        y, grads = values_and_gradients(name, tensors, g, policy)
        hits = counts(name)
        torch.set_num_threads(2)
        again, again_grads = values_and_gradients(name, tensors, g, policy)
        zeros = len(range(5, size, 7_001))
        assert counts(name) == hits == (0 if name == "sqrt" else zeros, zeros)
        assert_same_bits(again, y)
        for grad, expected in zip(again_grads, grads, strict=True):
            assert_same_bits(grad, expected)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_the_first_hit_is_the_lowest_whatever_thread_met_it(
    name: str, number: int, threads: None
) -> None:
    torch.set_num_threads(number)
    for place in (0, 31_000, 70_001, 299_999):
        tensors = tensors_of(name, torch.float32, 300_000)
        tensors[-1].clamp_(min=0.5)
        tensors[-1][place] = -1.0 if name in ("rsqrt", "sqrt", "log") else 0.0
        tensors[-1][299_999] = tensors[-1][place]
        with pytest.raises(safeops.SingularityError) as caught:
            getattr(safeops, name)(*tensors, policy="raise")
        assert caught.value.first_row == place
        assert caught.value.count == (1 if place == 299_999 else 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_an_element_alone_and_in_a_batch(name: str, dtype: torch.dtype) -> None:
    tensors = tensors_of(name, dtype, 75)
    g = numbers(dtype, (75,), -1.0, 1.0, seed=2)
    y, grads = values_and_gradients(name, tensors, g, "zero")
    for first, last in ((0, 1), (5, 6), (3, 12), (17, 74), (74, 75)):
        part = slice(first, last)
        some, some_grads = values_and_gradients(
            name, tuple(t[part] for t in tensors), g[part], "zero"
        )
        assert_same_bits(some, y[part])
        for grad, expected in zip(some_grads, grads, strict=True):
            assert_same_bits(grad, expected[part])


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_alignment_does_not_matter(name: str, dtype: torch.dtype) -> None:
    tensors = tensors_of(name, dtype, 1_000)
    g = numbers(dtype, (1_000,), -1.0, 1.0, seed=2)
    y, grads = values_and_gradients(name, tensors, g, "zero")
    for offset in (1, 2, 3, 7):
        moved = []
        for tensor in (*tensors, g):
            storage = torch.empty(offset + tensor.numel(), dtype=dtype)
            moved.append(storage[offset:].copy_(tensor))
        again, again_grads = values_and_gradients(name, tuple(moved[:-1]), moved[-1], "zero")
        assert_same_bits(again, y)
        for grad, expected in zip(again_grads, grads, strict=True):
            assert_same_bits(grad, expected)
        out = torch.empty(offset + 1_000, dtype=dtype)[offset:]
        assert_same_bits(getattr(safeops, name)(*tensors, policy="zero", out=out), y)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_values_of_neighbours_do_not_matter(name: str, dtype: torch.dtype) -> None:
    tensors = tensors_of(name, dtype, 64)
    g = torch.ones(64, dtype=dtype)
    y, grads = values_and_gradients(name, tensors, g, "zero")
    for neighbour in (math.nan, INF, -INF, torch.finfo(dtype).max, torch.finfo(dtype).tiny, 0.0):
        changed = tuple(t.clone() for t in tensors)
        for t in changed:
            t[1::2] = neighbour
        other, other_grads = values_and_gradients(name, changed, g, "zero")
        assert_same_bits(other[::2], y[::2])
        for grad, expected in zip(other_grads, grads, strict=True):
            assert_same_bits(grad[::2], expected[::2])


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", [*REAL, torch.int8, torch.int32, torch.int64], ids=identifier)
def test_threads_do_not_matter_for_rounded_quotients(
    dtype: torch.dtype, mode: str, threads: None
) -> None:
    a, b = numbers(torch.float64, (300_003,), -99.0, 99.0), numbers(torch.float64, (300_003,), 1, 9)
    a, b = a.to(dtype), b.to(dtype)
    b[5::7_001] = 0
    torch.set_num_threads(1)
    y = safeops.div(a, b, rounding_mode=mode, policy="zero")
    hits = counts("div")
    torch.set_num_threads(2)
    again = safeops.div(a, b, rounding_mode=mode, policy="zero")
    assert counts("div") == hits == (len(range(5, 300_003, 7_001)), 0)
    assert torch.equal(again, y)


@pytest.mark.parametrize("threads_used", [1, 2])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_flush_to_zero_changes_neither_bits_nor_hits(
    name: str, dtype: torch.dtype, threads_used: int, threads: None
) -> None:
    torch.set_num_threads(threads_used)
    x = torch.cat([subnormals(dtype, 4_000), random_patterns(dtype, 80_000)])
    x[3::101] = 0
    tensors = (x.roll(7), x) if name == "div" else (x,)
    g = torch.cat([subnormals(dtype, 4_000, 5), numbers(dtype, (80_000,), -1.0, 1.0)]).roll(11)
    y, grads = values_and_gradients(name, tensors, g, "zero")
    hits = counts(name)
    with flushing():
        flushed, flushed_grads = values_and_gradients(name, tensors, g, "zero")
    assert_same_numbers(flushed, y)
    for grad, expected in zip(flushed_grads, grads, strict=True):
        assert_same_numbers(grad, expected)
    assert counts(name) == hits and min(hits) >= 800
    # Something would have been flushed: an operand everywhere, and results where they can be.
    assert ((x != 0) & (x.abs() < torch.finfo(dtype).smallest_normal)).sum() >= 3_000


@pytest.mark.parametrize("policy", ["zero", "epsilon", "nan"])
@pytest.mark.parametrize("name", NAMES)
def test_a_subnormal_eps_is_a_threshold_under_flush_to_zero(name: str, policy: str) -> None:
    tiny = 2.0**-140
    x = torch.tensor([tiny / 2, tiny, 2 * tiny])
    tensors = (torch.ones_like(x), x) if name == "div" else (x,)
    if policy == "epsilon" and name in ("div", "reciprocal"):
        with flushing(), pytest.raises(ValueError, match="eps"):
            getattr(safeops, name)(*tensors, eps=tiny, policy=policy)
        return
    values_and_gradients(name, tensors, torch.ones_like(x), policy, eps=tiny)
    assert counts(name) == (1, 1)
    with flushing():
        values_and_gradients(name, tensors, torch.ones_like(x), policy, eps=tiny)
    assert counts(name) == (1, 1)
