"""Random shapes, strides, dtypes, orders and policies against the reference."""

from __future__ import annotations

import math
import os

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import HealthCheck, given, settings

import safeops
from reference import default_eps, forward_bound, gradient, normalize, singular_rows, ulps, widen
from samples import (
    DTYPES,
    NOT_RAISING,
    assert_same_bits,
    bits,
    count,
    counts,
    random_like,
    significant_strides,
    value_and_gradient,
)

EXAMPLES = settings(
    max_examples=int(os.environ.get("SAFEOPS_HYPOTHESIS_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, 1e-13, 1e-30, 1e-4, 6e4, 1e-40, 2.0**-24)
ORDERS = st.sampled_from((2.0, 2.0, 2.0, 1.0, math.inf, 3.0, 0.5, 1.5))


@st.composite
def tensors(draw: st.DrawFn) -> tuple[torch.Tensor, int | tuple[int, ...]]:
    """A strided view with ordinary and special elements, and a dim or dims of it."""
    dtype = draw(st.sampled_from(DTYPES))
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    shape[draw(st.integers(0, rank - 1))] = draw(st.sampled_from((1, 2, 5, 16, 17, 40, 257)))
    steps = [draw(st.integers(1, 2)) for _ in range(rank)]
    order = draw(st.permutations(range(rank)))
    storage = torch.empty([shape[i] * steps[i] for i in order], dtype=dtype)
    storage = random_like(storage, seed=draw(st.integers(0, 2**20)))
    if draw(st.booleans()):
        count_special = draw(st.integers(1, storage.numel()))
        generator = torch.Generator().manual_seed(count_special)
        places = torch.randperm(storage.numel(), generator=generator)[:count_special]
        values = draw(st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=8))
        filler = torch.tensor(values, dtype=torch.float64).to(dtype)
        storage.view(-1)[places] = filler.repeat(count_special)[:count_special]
    view = storage.permute(*(order.index(i) for i in range(rank)))
    view = view[tuple(slice(None, None, step) for step in steps)]
    if draw(st.booleans()):
        view = view.clone()
        rows = view.movedim(draw(st.integers(0, rank - 1)), 0)
        rows[0] = 0
    dims = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    return view, dims[0] if len(dims) == 1 else tuple(dims)


@EXAMPLES
@given(tensors(), ORDERS, st.sampled_from(NOT_RAISING), st.sampled_from((None, None, 0.25, 1e-3)))
def test_values_and_hits(
    case: tuple[torch.Tensor, int | tuple[int, ...]], p: float, policy: str, eps: float | None
) -> None:
    x, dim = case
    safeops.diagnostics.reset()
    y = safeops.normalize(x, p=p, dim=dim, eps=eps, policy=policy)
    wide, effective = widen(x), default_eps(policy, x.dtype) if eps is None else eps
    singular = singular_rows(wide, p, dim, effective)
    length = x.numel() // singular.size
    with np.errstate(all="ignore"):
        error = ulps(y, normalize(wide, p, dim, effective, policy))
    assert error.max() <= forward_bound(x.dtype, p, length)
    assert count() == singular.sum()


@EXAMPLES
@given(tensors(), ORDERS, st.sampled_from(NOT_RAISING))
def test_gradients_at_singular_rows_are_the_tables(
    case: tuple[torch.Tensor, int | tuple[int, ...]], p: float, policy: str
) -> None:
    x, dim = case
    g = random_like(x, seed=3)
    safeops.diagnostics.reset()
    y, grad = value_and_gradient(x, g, policy, p=p, dim=dim)
    wide, effective = widen(x), default_eps(policy, x.dtype)
    singular = np.broadcast_to(singular_rows(wide, p, dim, effective), wide.shape)
    expected = gradient(wide, widen(g), p, dim, effective, policy)
    assert grad.shape == x.shape and grad.dtype is x.dtype
    error = ulps(grad, np.where(singular, expected, widen(grad)))
    assert error.max() <= 2
    hits = int(singular_rows(wide, p, dim, effective).sum())
    assert counts() == (hits, hits)


@EXAMPLES
@given(tensors(), ORDERS, st.sampled_from(("nan", "epsilon", "zero")))
def test_policies_agree_on_rows_that_are_regular_under_both(
    case: tuple[torch.Tensor, int | tuple[int, ...]], p: float, policy: str
) -> None:
    x, dim = case
    g = random_like(x, seed=3)
    y, grad = value_and_gradient(x, g, "stock", p=p, dim=dim)
    other_y, other_grad = value_and_gradient(x, g, policy, p=p, dim=dim)
    wide = widen(x)
    threshold = max(default_eps(name, x.dtype) for name in ("stock", policy))
    regular = ~np.broadcast_to(singular_rows(wide, p, dim, threshold), wide.shape)
    mask = torch.from_numpy(regular.copy())
    assert torch.equal(bits(y[mask]), bits(other_y[mask]))
    assert torch.equal(bits(grad[mask]), bits(other_grad[mask]))


@EXAMPLES
@given(tensors(), st.sampled_from(NOT_RAISING))
def test_out_and_meta_and_no_grad_agree_with_the_plain_call(
    case: tuple[torch.Tensor, int | tuple[int, ...]], policy: str
) -> None:
    x, dim = case
    y = safeops.normalize(x, dim=dim, policy=policy)
    out = torch.full_like(x, 7)
    safeops.normalize(x, dim=dim, policy=policy, out=out)
    torch.testing.assert_close(out, y, rtol=0, atol=0, equal_nan=True)
    shadow = safeops.normalize(
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta"),
        dim=dim,
        policy=policy,
    )
    assert (shadow.shape, shadow.dtype) == (y.shape, y.dtype)
    assert significant_strides(shadow) == significant_strides(y)
    leaf = x.detach().requires_grad_()
    assert_same_bits(
        safeops.normalize(leaf, dim=dim, policy=policy).detach().nan_to_num(), y.nan_to_num()
    )


@EXAMPLES
@given(tensors(), ORDERS)
def test_raise_is_all_or_nothing(
    case: tuple[torch.Tensor, int | tuple[int, ...]], p: float
) -> None:
    x, dim = case
    singular = singular_rows(widen(x), p, dim, 0.0)
    safeops.diagnostics.reset()
    if not singular.any():
        expected = safeops.normalize(x, p=p, dim=dim, policy="zero")
        assert_same_bits(safeops.normalize(x, p=p, dim=dim, policy="raise"), expected)
        assert count() == 0
        return
    try:
        safeops.normalize(x, p=p, dim=dim, policy="raise")
    except safeops.SingularityError as error:
        assert error.count == singular.sum() == count()
        assert error.first_row == np.flatnonzero(singular)[0]
    else:
        raise AssertionError("policy 'raise' returned on a singular row")
