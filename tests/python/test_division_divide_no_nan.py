"""`zero` is TensorFlow's divide_no_nan, in value and in gradient.

x / y, and 0 where y is 0; its gradients are divide_no_nan(g, y) and
g * divide_no_nan(divide_no_nan(-x, y), y), summed over broadcast dims.
"""

from __future__ import annotations

import math

import pytest
import torch

import safeops
from division_numbers import (
    assert_same_numbers,
    every_half,
    finite_patterns,
    gradient_bound,
    subnormals,
)
from division_samples import INF, values_and_gradients
from reference import ulps, widen
from samples import REAL, counts, identifier

# Converting a signalling NaN is what numpy calls invalid.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")


def divide_no_nan(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    zero = y == 0
    return torch.where(zero, torch.zeros((), dtype=x.dtype), x / torch.where(zero, 1, y))


def gradients_no_nan(
    x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Not yet summed."""
    return divide_no_nan(g, y), g * divide_no_nan(divide_no_nan(-x, y), y)


def special(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    tiniest = info.smallest_normal * info.eps
    sizes = [0.0, tiniest, 3 * tiniest, info.smallest_normal / 2, info.smallest_normal]
    sizes += [info.eps, 1 / 3, 1.0, 1.0 + info.eps, 2.0, 3.0, 1e4, info.max / 2, info.max, INF]
    numbers = torch.tensor(sizes, dtype=torch.float64).to(dtype)
    return torch.cat([numbers, -numbers])


def assert_is_divide_no_nan(x: torch.Tensor, y: torch.Tensor, g: torch.Tensor) -> None:
    out, (dx, dy) = values_and_gradients("div", (x, y), g, "zero")
    assert_same_numbers(out, divide_no_nan(x, y))
    x, y, g = (t.detach().expand(out.shape) for t in (x, y, g))
    want_dx, want_dy = gradients_no_nan(x, y, g)
    assert_same_numbers(dx, want_dx)
    # Theirs rounds x / y / y in this dtype, and may overflow on the way.
    finite = x.isfinite() & y.isfinite()
    regular = (y != 0) & finite & out.isfinite()
    wide_x, wide_y, wide_g = (widen(t[regular]) for t in (x, y, g))
    exact = -wide_g * wide_x / wide_y**2
    assert ulps(dy[regular], exact).max(initial=0) <= gradient_bound(x.dtype)
    special = (y == 0) | ~finite
    assert_same_class(dy[special], want_dy[special])
    assert not dy[y == 0].any()


def assert_same_class(actual: torch.Tensor, want: torch.Tensor) -> None:
    """Zeros, infinities and NaN at the same places."""
    assert torch.equal(actual.isnan(), want.isnan())
    assert torch.equal(actual == 0, want == 0)
    assert torch.equal(actual == INF, want == INF) and torch.equal(actual == -INF, want == -INF)


@pytest.mark.parametrize("incoming", [1.0, -0.75, 0.0])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_every_pair_of_special_values(dtype: torch.dtype, incoming: float) -> None:
    x, y = (t.contiguous() for t in torch.cartesian_prod(special(dtype), special(dtype)).unbind(1))
    assert_is_divide_no_nan(x, y, torch.full_like(x, incoming))
    zeros = 2 * len(special(dtype))
    assert len(x) == 900 and counts("div") == (zeros, zeros)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_random_bit_patterns(dtype: torch.dtype) -> None:
    for size, sampled in ((20_000, finite_patterns), (2_000, subnormals)):
        x, y, g = finite_patterns(dtype, size, 1), sampled(dtype, size, 2), torch.ones(size)
        y[::5] = 0
        y[1::10] = -0.0
        out, (dx, dy) = values_and_gradients("div", (x, y), g.to(dtype), "zero")
        assert_same_numbers(out, divide_no_nan(x, y))
        assert_same_numbers(dx, divide_no_nan(g.to(dtype), y))
        zero = y == 0
        assert (out[zero] == 0).all() and (dx[zero] == 0).all() and (dy[zero] == 0).all()
        assert not out.isnan().any() and not dx.isnan().any() and not dy.isnan().any()
        assert counts("div") == (int(zero.sum()),) * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=identifier)
def test_every_half_over_zero_is_zero(dtype: torch.dtype) -> None:
    x = every_half(dtype)
    x = x[~x.isnan()]
    for zero in (0.0, -0.0):
        y = torch.full_like(x, zero)
        out, grads = values_and_gradients("div", (x, y), torch.ones_like(x), "zero")
        assert not out.any() and not grads[0].any() and not grads[1].any()
        assert not safeops.div(x, zero, policy="zero").any()


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 1, 4), (3, 1)), ((), (5,)), ((5,), ())]
)
def test_broadcasting(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x = torch.linspace(-2, 3, max(1, math.prod(shapes[0])), dtype=torch.float64).view(shapes[0])
    y = torch.linspace(-1, 2, max(1, math.prod(shapes[1])), dtype=torch.float64).view(shapes[1])
    y = torch.where(y.abs() < 0.6, 0.0, y)
    g = torch.linspace(0.5, 2, (x + y).numel(), dtype=torch.float64).view((x + y).shape)
    out, (dx, dy) = values_and_gradients("div", (x, y), g, "zero")
    assert_same_numbers(out, divide_no_nan(x, y))
    want = gradients_no_nan(x.expand(g.shape), y.expand(g.shape), g)
    torch.testing.assert_close(dx, want[0].sum_to_size(x.shape))
    torch.testing.assert_close(dy, want[1].sum_to_size(y.shape))


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_nan_over_zero_is_the_one_difference(dtype: torch.dtype) -> None:
    # A NaN has come in: `zero` passes it on, where TensorFlow hides it.
    x, y = torch.tensor([math.nan, 1.0], dtype=dtype), torch.zeros(2, dtype=dtype)
    assert safeops.div(x, y, policy="zero").isnan().tolist() == [True, False]
    assert counts("div") == (1, 0)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_reciprocal_no_nan(dtype: torch.dtype) -> None:
    y = special(dtype)
    out, (grad,) = values_and_gradients("reciprocal", (y,), torch.ones_like(y), "zero")
    assert_same_numbers(out, divide_no_nan(torch.ones_like(y), y))
    assert not grad[y == 0].any() and not grad.isnan().any()
    assert counts("reciprocal") == (2, 2)


def test_first_derivatives_of_keras_report_on_divide_no_nan() -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])
    out, (dx, dy) = values_and_gradients("div", (x, y), torch.ones(2), "zero")
    assert (out.tolist(), dx.tolist(), dy.tolist()) == ([0, 1], [0, 0.5], [0, -0.5])
