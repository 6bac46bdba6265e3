"""A policy changes no bit of a regular element, forward or backward."""

from __future__ import annotations

import pytest
import torch

import division_reference as reference
import safeops
from division_numbers import every_half, finite_patterns
from division_samples import UNARY, numbers, values_and_gradients, wide
from samples import (
    DTYPES,
    LAYOUTS,
    NOT_RAISING,
    POLICIES,
    REAL,
    assert_same_bits,
    counts,
    identifier,
)

NAMES = ("div", *UNARY)
# Lengths of inner dims around every vector width, and more elements than one thread takes.
SHAPES = ((2_000, 3), (700, 17), (40, 300), (2, 70_000))

# Converting a signalling NaN is what numpy calls invalid.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")


def regular(name: str, dtype: torch.dtype, shape: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    x = numbers(dtype, shape, 0.01, 50.0)
    return (numbers(dtype, shape, -3.0, 3.0, seed=1), x) if name == "div" else (x,)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_regular_elements_have_the_same_bits_under_every_policy(
    name: str, dtype: torch.dtype, layout: str
) -> None:
    for shape in SHAPES if layout == "contiguous" and not dtype.is_complex else SHAPES[:3]:
        tensors = tuple(LAYOUTS[layout](t) for t in regular(name, dtype, shape))
        g = numbers(dtype, shape, -1.0, 1.0, seed=2)
        y, grads = values_and_gradients(name, tensors, g, "stock")
        for policy in POLICIES[1:]:
            other, other_grads = values_and_gradients(name, tensors, g, policy)
            assert_same_bits(other, y)
            for grad, expected in zip(other_grads, grads, strict=True):
                assert_same_bits(grad, expected)
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_singular_neighbours_change_no_bit(name: str, dtype: torch.dtype, policy: str) -> None:
    """Any lane of a vector may be singular: the others are what they are without it."""
    tensors = regular(name, dtype, (67, 33))
    g = numbers(dtype, (67, 33), -1.0, 1.0, seed=2)
    y, grads = values_and_gradients(name, tensors, g, "stock")
    places = torch.arange(67 * 33).view(67, 33)
    for step, number in ((1, 0.0), (2, -0.0), (5, -1.0), (16, 0.0), (37, 2.0**-20)):
        if number == -1 and name in ("div", "reciprocal"):
            number = 2.0**-16
        singular = places % step == step - 1
        if step == 1:
            singular = places > 40
        mixed = (*tensors[:-1], torch.where(singular, number, tensors[-1]))
        got, got_grads = values_and_gradients(name, mixed, g, policy, eps=2.0**-12)
        assert_same_bits(got[~singular], y[~singular])
        for grad, expected in zip(got_grads, grads, strict=True):
            assert_same_bits(grad[~singular], expected[~singular])
        hits = int(singular.sum())
        spared = name == "sqrt" and number == 0 and policy != "epsilon"
        assert counts(name) == (0 if spared else hits, hits)


@pytest.mark.parametrize("policy", POLICIES[1:])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_random_bit_patterns_agree_where_both_policies_call_them_regular(
    name: str, dtype: torch.dtype, policy: str
) -> None:
    half = dtype.itemsize == 2
    x = every_half(dtype) if half else finite_patterns(dtype, 50_000, 1)
    tensors = (x.flip(0), x) if name == "div" else (x,)
    eps = reference.default_eps(policy, dtype)
    keep = ~torch.from_numpy(reference.singular(name, wide(tensors), eps))
    tensors = tuple(t[keep] for t in tensors)
    assert keep.sum() > 10_000
    g = numbers(dtype, tensors[0].shape, -1.0, 1.0, seed=2)
    y, grads = values_and_gradients(name, tensors, g, "stock")
    other, other_grads = values_and_gradients(name, tensors, g, policy)
    assert counts(name) == (0, 0)
    assert_same_bits(other, y)
    for grad, expected in zip(other_grads, grads, strict=True):
        assert_same_bits(grad, expected)


@pytest.mark.parametrize("policy", POLICIES[1:])
@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_rounded_quotients(dtype: torch.dtype, mode: str, policy: str) -> None:
    a, b = regular("div", dtype, (200, 33))
    y = safeops.div(a, b, rounding_mode=mode, policy="stock")
    assert_same_bits(safeops.div(a, b, rounding_mode=mode, policy=policy), y)


@pytest.mark.parametrize("name", NAMES)
def test_an_explicit_eps_changes_no_bit_of_what_is_not_below_it(name: str) -> None:
    tensors = regular(name, torch.float32, (50, 33))
    g = torch.ones(50, 33)
    for policy in NOT_RAISING:
        y, grads = values_and_gradients(name, tensors, g, policy)
        other, other_grads = values_and_gradients(name, tensors, g, policy, eps=0.01)
        assert_same_bits(other, y)
        assert_same_bits(other_grads[-1], grads[-1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_an_element_of_exactly_eps_is_regular(dtype: torch.dtype, name: str) -> None:
    # eps means what the dtype makes of it: a tensor filled with eps is not below eps.
    for eps in (0.1, 0.3, 1e-3, 2.0**-10):
        x = torch.full((9,), eps, dtype=dtype)
        if dtype.itemsize == 2:
            eps = x[0].item()
        tensors = (torch.ones_like(x), x) if name == "div" else (x,)
        y, _ = values_and_gradients(name, tensors, torch.ones_like(x), "nan", eps=eps)
        assert not y.isnan().any() and counts(name) == (0, 0)
        below = torch.nextafter(x, torch.zeros_like(x))
        tensors = (torch.ones_like(x), below) if name == "div" else (below,)
        y, _ = values_and_gradients(name, tensors, torch.ones_like(x), "nan", eps=eps)
        assert y.isnan().all() and counts(name) == (9, 9)
