"""Random shapes, strides, dtypes, masks and policies against the reference."""

from __future__ import annotations

import math
import os

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import HealthCheck, given, settings

import safeops
import softmax_reference as reference
from reference import widen
from samples import NOT_RAISING, REAL, assert_same_bits, bits, count, counts
from softmax_samples import INF, NAMES, call, incoming, kept, logits, value_and_gradient

EXAMPLES = settings(
    max_examples=int(os.environ.get("SAFEOPS_HYPOTHESIS_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
SPECIAL = (-INF, -INF, INF, math.nan, 0.0, -0.0, 1.0, -65504.0, 3e38, -3e38, 1e-40, 88.8, -103.0)
Case = tuple[torch.Tensor, object, torch.Tensor | None]


def strided(draw: st.DrawFn, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Some permutation and slice of a larger tensor."""
    steps = [draw(st.integers(1, 2)) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    sizes = tuple(shape[i] * steps[i] for i in order)
    storage = logits(torch.float64, sizes, draw(st.sampled_from((2.0, 40.0, 1e3))), len(sizes))
    storage = storage > 0 if dtype is torch.bool else storage.to(dtype)
    view = storage.permute([order.index(i) for i in range(len(shape))])
    return view[(..., *(slice(None, None, step) for step in steps))]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Case]:
    """A strided view with ordinary and special elements, dims of it, and maybe a mask for it."""
    name = draw(st.sampled_from(NAMES))
    dtype = draw(st.sampled_from(REAL))
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    shape[draw(st.integers(0, rank - 1))] = draw(st.sampled_from((1, 2, 5, 16, 17, 40, 257)))
    x = strided(draw, shape, dtype)
    if draw(st.booleans()):
        places = torch.rand(x.shape, generator=torch.Generator().manual_seed(rank)) < 0.2
        values = draw(st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=6))
        filler = torch.tensor(values, dtype=torch.float64).to(dtype).repeat(x.numel())
        x[places] = filler[: int(places.sum())]
    if draw(st.booleans()):
        x.movedim(draw(st.integers(0, rank - 1)), 0)[0] = -INF
    where = None
    if draw(st.booleans()):
        left_out = draw(st.integers(0, rank))
        where = strided(draw, [draw(st.sampled_from((1, n))) for n in shape[left_out:]], torch.bool)
    dims = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    several = name == "logsumexp" and len(dims) > 1
    return name, (x, tuple(dims) if several else dims[0], where)


@EXAMPLES
@given(cases(), st.sampled_from(NOT_RAISING))
def test_values_and_hits(case: tuple[str, Case], policy: str) -> None:
    name, (x, dim, where) = case
    safeops.diagnostics.reset()
    y = call(name, x, dim, where=where, policy=policy)
    mask = None if where is None else where.expand(x.shape)
    rows = reference.Rows(widen(x), dim, mask)
    eps = reference.default_eps(x.dtype)
    want = reference.value(name, widen(x), dim, policy, mask, eps)
    assert reference.value_errors(name, kept(name, y, dim), want).max() <= 1
    assert count(None, "forward", name) == rows.empty.sum()
    assert count("nonfinite_input", "forward", name) == rows.not_finite.sum()
    assert y.is_contiguous() and y.dtype is x.dtype


@EXAMPLES
@given(cases(), st.sampled_from(NOT_RAISING))
def test_gradients(case: tuple[str, Case], policy: str) -> None:
    name, (x, dim, where) = case
    g = incoming(name, x, dim)
    y, grad = value_and_gradient(name, x, g, policy, dim, where=where)
    mask = None if where is None else where.expand(x.shape)
    rows = reference.Rows(widen(x), dim, mask)
    hits = int(rows.empty.sum())
    assert counts(name) == (hits, hits)
    wide_g = widen(kept(name, g, dim))
    want = reference.gradient(name, widen(x), wide_g, dim, policy, mask)
    got = widen(grad)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert (got[~rows.part] == 0).all()
    # What forward stored of a regular row is what backward is held to.
    regular = np.broadcast_to(~rows.empty & ~rows.not_finite, got.shape)
    stored = None if name == "logsumexp" else widen(y)
    errors = reference.gradient_errors(name, grad, widen(x), wide_g, dim, mask, stored)
    assert errors[regular].max(initial=0) <= 1
    assert (np.nan_to_num(got[~regular]) == np.nan_to_num(want[~regular])).all()


@EXAMPLES
@given(cases(), st.sampled_from(("nan", "epsilon", "zero")))
def test_policies_agree_on_regular_rows(case: tuple[str, Case], policy: str) -> None:
    name, (x, dim, where) = case
    g = incoming(name, x, dim)
    y, grad = value_and_gradient(name, x, g, "stock", dim, where=where)
    other_y, other_grad = value_and_gradient(name, x, g, policy, dim, where=where)
    mask = None if where is None else where.expand(x.shape)
    rows = reference.Rows(widen(x), dim, mask)
    regular = torch.tensor(np.broadcast_to(~(rows.empty | rows.not_finite), x.shape).copy())
    assert torch.equal(bits(grad)[regular], bits(other_grad)[regular])
    if name != "logsumexp":
        assert torch.equal(bits(y)[regular], bits(other_y)[regular])
    else:
        assert_same_bits(other_y.nan_to_num(), y.nan_to_num())


@EXAMPLES
@given(cases())
def test_out_and_raise(case: tuple[str, Case]) -> None:
    name, (x, dim, where) = case
    mask = None if where is None else where.expand(x.shape)
    empty = int(reference.Rows(widen(x), dim, mask).empty.sum())
    expected = call(name, x, dim, where=where, policy="zero")
    out = torch.full_like(expected, 7)
    safeops.diagnostics.reset()
    try:
        call(name, x, dim, where=where, policy="raise", out=out)
    except safeops.SingularityError as error:
        assert (out == 7).all() and error.count == empty > 0
    else:
        assert empty == 0
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
