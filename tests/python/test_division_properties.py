"""Random shapes, strides, dtypes and policies against the reference."""

from __future__ import annotations

import os

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import division_reference as reference
import safeops
from division_numbers import (
    assert_same_numbers,
    eps_in_force,
    gradient_bound,
    random_patterns,
    value_bound,
)
from division_samples import NAMES, hits, values_and_gradients, wide
from reference import ulps, widen
from samples import NOT_RAISING, REAL, assert_same_bits, counts

EXAMPLES = settings(
    max_examples=int(os.environ.get("SAFEOPS_HYPOTHESIS_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    3.0,
    1e-13,
    -1e-13,
    1e-30,
    1e-4,
    6e4,
    1e-40,
    2.0**-24,
    float("inf"),
)
EPS = st.sampled_from((None, None, 0.25, 2.0**-10))
POLICY = st.sampled_from(NOT_RAISING)
NAME = st.sampled_from(NAMES)
Case = tuple[str, tuple[torch.Tensor, ...]]

# Converting a signalling NaN is what numpy calls invalid.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")


@st.composite
def strided(draw: st.DrawFn, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A strided view of bit patterns, ordinary numbers and special ones."""
    steps = [draw(st.integers(1, 2)) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    seed = draw(st.integers(0, 2**20))
    sizes = [shape[i] * steps[i] for i in order]
    numbers = int(np.prod(sizes))
    generator = torch.Generator().manual_seed(seed)
    ordinary = torch.randn(numbers, dtype=torch.float64, generator=generator).to(dtype)
    choice = torch.randint(0, 4, (numbers,), generator=generator)
    filler = torch.tensor(draw(st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=8)))
    special = filler.double().to(dtype).repeat(numbers)[:numbers]
    storage = torch.where(choice == 0, random_patterns(dtype, numbers, seed), ordinary)
    storage = torch.where(choice == 1, special, storage).view(sizes)
    view = storage.permute(tuple(order.index(i) for i in range(len(shape))))
    return view[tuple(slice(None, None, step) for step in steps)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name, dtype = draw(NAME), draw(st.sampled_from(REAL))
    rank = draw(st.integers(0, 4))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    if rank:
        shape[draw(st.integers(0, rank - 1))] = draw(st.sampled_from((1, 2, 5, 16, 17, 40, 257)))
    operands = [draw(strided(dtype, tuple(shape)))]
    if name == "div":
        # A divisor of one element is a number, which a half type does not round.
        broadcast = [draw(st.sampled_from((size, size, 1))) for size in shape]
        other = broadcast if np.prod(broadcast) > 1 else shape
        operands.append(draw(strided(dtype, tuple(other[draw(st.integers(0, 1)) :]))))
        if operands[1].numel() == 1 and operands[0].numel() > 1:
            operands[1] = draw(strided(dtype, tuple(shape)))
    return name, tuple(operands)


@EXAMPLES
@given(cases(), POLICY, EPS)
def test_values_and_hits(case: Case, policy: str, eps: float | None) -> None:
    name, tensors = case
    dtype = tensors[0].dtype
    safeops.diagnostics.reset()
    y = getattr(safeops, name)(*tensors, eps=eps, policy=policy)
    in_force = eps_in_force(policy, dtype, eps)
    error = ulps(y, reference.value(name, wide(tensors), policy, in_force))
    assert error.max(initial=0) <= value_bound(name, dtype) + 2.0**-10
    assert counts(name) == (sum(hits(name, tensors, policy, in_force)[0].values()), 0)


@EXAMPLES
@given(cases(), POLICY, EPS)
def test_gradients_and_hits(case: Case, policy: str, eps: float | None) -> None:
    name, tensors = case
    dtype = tensors[0].dtype
    # What is summed to a broadcast operand is ATen's to round.
    tensors = tuple(t.clone() for t in torch.broadcast_tensors(*tensors))
    g = torch.linspace(-1, 2, tensors[0].numel(), dtype=torch.float64).to(dtype)
    g = g.view(tensors[0].shape)
    safeops.diagnostics.reset()
    y, grads = values_and_gradients(name, tensors, g, policy, eps=eps)
    in_force = eps_in_force(policy, dtype, eps)
    found = hits(name, tensors, policy, in_force)
    assert counts(name) == tuple(sum(direction.values()) for direction in found)
    wants = reference.gradients(name, wide(tensors), widen(g), policy, in_force)
    singular = reference.singular(name, wide(tensors), in_force)
    finite = np.logical_and.reduce([np.isfinite(t) for t in wide(tensors)])
    regular = finite & y.isfinite().numpy() & ~singular
    if policy == "stock":
        finite = regular
    for grad, want in zip(grads, wants, strict=True):
        error = ulps(grad, want)
        checked = regular | (singular & finite)
        assert error[checked].max(initial=0) <= gradient_bound(dtype)


@EXAMPLES
@given(cases(), POLICY)
def test_out_in_place_and_meta_agree_with_the_plain_call(case: Case, policy: str) -> None:
    name, tensors = case
    operator = getattr(safeops, name)
    y = operator(*tensors, policy=policy)
    out = torch.full_like(y, 7)
    assert operator(*tensors, policy=policy, out=out) is out
    assert_same_numbers(out, y)
    shadow = operator(*(t.to("meta") for t in tensors), policy=policy)
    assert (shadow.shape, shadow.dtype) == (y.shape, y.dtype)
    x = tensors[0].clone()
    if x.shape == y.shape:
        getattr(safeops, f"{name}_")(x, *tensors[1:], policy=policy)
        assert_same_numbers(x, y)


@EXAMPLES
@given(cases())
def test_raise_is_all_or_nothing(case: Case) -> None:
    name, tensors = case
    forward = sum(hits(name, tensors, "raise", 0.0)[0].values())
    safeops.diagnostics.reset()
    if forward == 0:
        expected = getattr(safeops, name)(*tensors, policy="zero")
        assert_same_bits(getattr(safeops, name)(*tensors, policy="raise"), expected)
        assert counts(name) == (0, 0)
        return
    target = torch.full_like(torch.broadcast_tensors(*tensors)[0], 7)
    try:
        getattr(safeops, name)(*tensors, policy="raise", out=target)
    except safeops.SingularityError as error:
        singular = reference.singular(name, wide(tensors), 0.0)
        if name == "sqrt":
            singular = singular & (widen(tensors[0]) != 0)
        assert error.count == forward == counts(name)[0]
        assert error.first_row == np.flatnonzero(singular)[0]
        assert (target == 7).all()
    else:
        raise AssertionError("policy 'raise' returned on a singular element")


@EXAMPLES
@given(cases(), st.sampled_from(("trunc", "floor")), POLICY)
def test_rounded_quotients_are_whole(case: Case, mode: str, policy: str) -> None:
    name, tensors = case
    a, b = tensors if name == "div" else (tensors[0], tensors[0].flip(0) if tensors[0].dim() else 3)
    y = safeops.div(a, b, rounding_mode=mode, policy=policy)
    finite = y[y.isfinite()]
    assert torch.equal(finite, finite.trunc())
    exact = safeops.div(a, b, policy=policy)[y.isfinite()]
    if mode == "floor" and y.dtype in (torch.float32, torch.float64):
        assert (finite <= exact).all()
    if mode == "trunc":
        assert (finite.abs() <= exact.abs()).all()
