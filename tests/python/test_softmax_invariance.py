"""A policy changes no bit of a regular row."""

from __future__ import annotations

import pytest
import torch

import safeops
from samples import LAYOUTS, POLICIES, REAL, assert_same_bits, counts, identifier
from softmax_samples import (
    INF,
    LOGITS,
    NAMES,
    call,
    incoming,
    logits,
    some_mask,
    value_and_gradient,
)

# Tiny, side by side, batched, long and split rows.
SHAPES = ((3_000, 3), (2_000, 16), (1_500, 40), (100, 300), (1, 70_000))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_regular_rows_have_the_same_bits_under_every_policy(
    name: str, dtype: torch.dtype, layout: str
) -> None:
    rows = 0
    for shape in SHAPES:
        x = LAYOUTS[layout](logits(dtype, shape, 50.0, seed=rows))
        g = incoming(name, x)
        y, grad = value_and_gradient(name, x, g, "stock")
        assert not y.isnan().any()
        for policy in POLICIES[1:]:
            other_y, other_grad = value_and_gradient(name, x, g, policy)
            assert_same_bits(other_y, y)
            assert_same_bits(other_grad, grad)
        rows += shape[0]
    assert rows == 6_601
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_masked_regular_rows_have_the_same_bits_under_every_policy(
    name: str, dtype: torch.dtype
) -> None:
    for shape in SHAPES:
        x, where = logits(dtype, shape, 50.0), some_mask(shape)
        g = incoming(name, x)
        y, grad = value_and_gradient(name, x, g, "stock", where=where)
        assert not y.isnan().any() and not grad.isnan().any()
        for policy in POLICIES[1:]:
            other_y, other_grad = value_and_gradient(name, x, g, policy, where=where)
            assert_same_bits(other_y, y)
            assert_same_bits(other_grad, grad)
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("policy", ["nan", "epsilon", "zero"])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_empty_rows_leave_their_neighbours_alone(
    name: str, dtype: torch.dtype, policy: str
) -> None:
    for shape in ((300, 3), (200, 16), (150, 40), (20, 300)):
        x = logits(dtype, shape, 50.0)
        spoiled = x.clone()
        spoiled[::3] = -INF
        others = torch.arange(shape[0]) % 3 != 0
        g = incoming(name, x)
        y, grad = value_and_gradient(name, x, g, "stock")
        other_y, other_grad = value_and_gradient(name, spoiled, g, policy)
        assert_same_bits(other_y[others], y[others])
        assert_same_bits(other_grad[others], grad[others])
        empty = shape[0] - int(others.sum())
        assert counts(name) == (empty, empty)


@pytest.mark.parametrize("eps", [1e-6, 0.5, 100.0])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", LOGITS)
def test_eps_changes_no_bit_of_a_regular_row(name: str, policy: str, eps: float) -> None:
    x = logits(torch.float32, (50, 20))
    assert_same_bits(call(name, x, eps=eps, policy=policy), call(name, x, policy=policy))
    with safeops.policy(eps=eps):
        assert_same_bits(call(name, x, policy=policy), call(name, x, policy=policy, eps=eps))
