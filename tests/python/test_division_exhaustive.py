"""Every number of the half types, forward and backward, under every policy.

SAFEOPS_TEST_LONG=1 divides every float16 by every other, and takes every float32 as an argument;
otherwise a grid of pairs, and one float32 in 4093.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import division_reference as reference
import safeops
from division_numbers import (
    HALF,
    assert_same_numbers,
    eps_in_force,
    every_half,
    gradient_bound,
    grid,
    nearest,
    quotient,
    value_bound,
)
from division_samples import UNARY, ZERO_CONDITION, hits, values_and_gradients
from reference import ulps, widen
from samples import (
    LONG,
    NOT_RAISING,
    POLICIES,
    assert_same_bits,
    bits,
    count,
    counts,
    identifier,
)

# Converting a signalling NaN is what numpy calls invalid.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")


@pytest.mark.parametrize("eps", [None, 0.25])
@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", HALF, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_values_gradients_and_hits(
    name: str, dtype: torch.dtype, policy: str, eps: float | None
) -> None:
    x = every_half(dtype)
    assert len(x) == 2**16
    effective, wide = eps_in_force(policy, dtype, eps), (widen(x),)
    want = reference.value(name, wide, policy, effective)
    found = hits(name, (x,), policy, effective)
    for incoming in (1.0, -0.3):
        g = torch.full_like(x, incoming)
        y, (grad,) = values_and_gradients(name, (x,), g, policy, eps=eps)
        assert counts(name) == tuple(sum(direction.values()) for direction in found)
        assert ulps(y, want).max() <= value_bound(name, dtype)
        (want_grad,) = reference.gradients(name, wide, widen(g), policy, effective)
        assert ulps(grad, want_grad).max() <= gradient_bound(dtype)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", HALF, ids=identifier)
@pytest.mark.parametrize("name", ["reciprocal", "sqrt"])
def test_values_are_correctly_rounded(name: str, dtype: torch.dtype, policy: str) -> None:
    x, eps = every_half(dtype), eps_in_force(policy, dtype)
    y = getattr(safeops, name)(x, policy=policy)
    want = nearest(reference.value(name, (widen(x),), policy, eps), dtype)
    assert torch.equal(y.isnan(), want.isnan())
    number = ~want.isnan()
    assert number.sum() > 20_000
    assert_same_bits(y[number], want[number])


@pytest.mark.parametrize("dtype", HALF, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_conditions(name: str, dtype: torch.dtype) -> None:
    x = every_half(dtype)
    negative = 0 if name == "reciprocal" else int((x < 0).sum())
    below = int(((x.abs() if name == "reciprocal" else x) < 0.25).sum()) - 2 - negative
    for policy in ("nan", "epsilon"):
        values_and_gradients(name, (x,), torch.ones_like(x), policy, eps=0.25)
        for direction in ("forward", "backward"):
            spared = name == "sqrt" and direction == "forward" and policy == "nan"
            assert count(ZERO_CONDITION[name], direction, name) == (0 if spared else 2)
            assert count("negative_argument", direction, name) == negative
            assert count("below_eps", direction, name) == below > 10_000
        counts(name)


@pytest.mark.parametrize("dtype", HALF, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_raise_returns_every_regular_element(name: str, dtype: torch.dtype) -> None:
    x = every_half(dtype)
    forward = sum(hits(name, (x,), "raise", 0.0)[0].values())
    with pytest.raises(safeops.SingularityError) as caught:
        getattr(safeops, name)(x, policy="raise")
    assert caught.value.count == forward and counts(name) == (forward, 0)
    regular = x[~torch.from_numpy(reference.singular(name, (widen(x),), 0.0))]
    g = torch.full_like(regular, 0.7)
    y, (grad,) = values_and_gradients(name, (regular,), g, "raise")
    stock_y, (stock_grad,) = values_and_gradients(name, (regular,), g, "stock")
    assert_same_bits(y, stock_y)
    assert_same_bits(grad, stock_grad)
    assert counts(name) == (0, 0)


def exact_quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a / b of float16, by numpy, whose conversion from float64 rounds once.

    53 digits are more than twice eleven: the float64 quotient is no tie unless the exact one is.
    """
    with np.errstate(all="ignore"):
        wide = a.double().numpy() / b.double().numpy()
        return torch.from_numpy(wide.astype(np.float16))


@pytest.mark.parametrize("policy", POLICIES)
def test_float16_quotients_are_correctly_rounded(policy: str) -> None:
    """All exponents over all exponents, each with some mantissas."""
    chosen = every_half(torch.float16) if LONG else grid(torch.float16)
    floor = max(reference.default_eps(policy, torch.float16), 2.0**-24)
    if policy == "raise":
        chosen = chosen[chosen != 0]
    pairs = 0
    for divisors in chosen.split(64):
        b = divisors[:, None]
        y, want = safeops.div(chosen, b, policy=policy), exact_quotient(chosen, b)
        regular = ~want.isnan()
        if policy == "stock":
            assert torch.equal(y.isnan(), want.isnan())
        else:
            regular &= ~(b.abs() < floor)
        assert not ((bits(y) != bits(want)) & regular).any()
        pairs += want.numel()
    print(f"{pairs} pairs")
    assert pairs >= (4_000_000_000 if LONG else 700 * 700)


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_bfloat16_quotients_are_correctly_rounded(policy: str) -> None:
    chosen, pairs = grid(torch.bfloat16, 3), 0
    floor = max(reference.default_eps(policy, torch.bfloat16), 2.0**-133)
    for divisors in chosen.split(64):
        b = divisors[:, None]
        y = safeops.div(chosen, b, policy=policy)
        # float32 has more than twice the digits of bfloat16, and 16 more where it is subnormal.
        want = (chosen.float() / b.float()).bfloat16()
        regular = ~want.isnan()
        if policy == "stock":
            assert torch.equal(y.isnan(), want.isnan())
        else:
            regular &= ~(b.abs() < floor)
        assert not ((bits(y) != bits(want)) & regular).any()
        pairs += want.numel()
    assert pairs >= 1400 * 1400


def float32_errors(y: torch.Tensor, exact: np.ndarray) -> np.ndarray:
    """In ulp, by float64, which is fast and has 29 digits more."""
    with np.errstate(all="ignore"):
        want = exact.astype(np.float32)
        got = y.numpy()
        error = np.abs(got - exact) / np.spacing(np.abs(want)).astype(np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(np.isfinite(error), error, np.where(same, 0, np.inf))


@pytest.mark.parametrize("name", UNARY)
def test_float32_arguments_of_every_exponent(name: str) -> None:
    patterns, step, block = 2**32, 1 if LONG else 4_093, 2**24
    worst, arguments = 0.0, 0
    for start in range(-(2**31), 2**31, block * step):
        raw = torch.arange(start, min(start + block * step, 2**31), step, dtype=torch.int64)
        x = raw.to(torch.int32).view(torch.float32)
        with np.errstate(all="ignore"):
            wide = x.double().numpy()
            root = wide if name == "reciprocal" else np.sqrt(wide)
            exact = np.log(wide) if name == "log" else root if name == "sqrt" else 1 / root
        y = getattr(safeops, name)(x, policy="stock")
        worst = max(worst, float32_errors(y, exact).max())
        if name in ("reciprocal", "sqrt"):
            # Rounding to 53 digits first changes neither: twice 24 and two more would do.
            with np.errstate(all="ignore"):
                assert_same_numbers(y, torch.from_numpy(exact.astype(np.float32)))
        arguments += len(x)
    print(f"{name}: {arguments} arguments, at most {worst:.4f} ulp")
    assert arguments >= patterns // step and worst <= value_bound(name, torch.float32)


@pytest.mark.parametrize("dtype", HALF, ids=identifier)
def test_the_oracle_itself_rounds_once(dtype: torch.dtype) -> None:
    chosen = grid(dtype, 2)
    chosen = chosen[chosen.isfinite() & (chosen != 0)]
    a, b = chosen[::3], chosen[1::5, None]
    want = nearest(quotient(a, b), dtype)
    assert_same_bits((a.float() / b.float()).to(dtype), want)
    if dtype is torch.float16:
        assert_same_bits(exact_quotient(a, b), want)


@pytest.mark.parametrize("dtype", HALF, ids=identifier)
def test_gradients_of_quotients(dtype: torch.dtype) -> None:
    chosen = grid(dtype, 3 if dtype is torch.float16 else 2)
    chosen = chosen[chosen.isfinite() & (chosen != 0)]
    if dtype is torch.bfloat16:
        chosen = chosen[::3]
    a, b = (t.contiguous() for t in torch.cartesian_prod(chosen, chosen).unbind(1))
    wide_a, wide_b = widen(a), widen(b)
    for incoming in (1.0, -0.3):
        g = torch.full_like(a, incoming)
        y, (da, db) = values_and_gradients("div", (a, b), g, "zero")
        assert ulps(da, widen(g) / wide_b).max() <= gradient_bound(dtype)
        # Regularity is judged on the value: where the quotient overflows, so may its slope.
        finite = y.isfinite()
        want = -widen(g) * wide_a / (wide_b * wide_b)
        assert ulps(db[finite], want[finite.numpy()]).max() <= gradient_bound(dtype)
    assert len(a) > 30_000 and counts("div") == (0, 0)
