"""trunc and floor: torch's bits, and in the half types the float32 pair rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

import division_reference as reference
import safeops
from division_numbers import HALF, assert_same_numbers, every_half, grid, random_patterns
from division_samples import INF, NAN, values_and_gradients
from samples import NOT_RAISING, REAL, counts, identifier

MODES = ("trunc", "floor")
WIDE = (torch.float32, torch.float64)
SPECIAL = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 0.1, 1e-3, 1e4, INF)


def stock(a: torch.Tensor, b: torch.Tensor, mode: str) -> torch.Tensor:
    """The definition; torch itself has it in float32 and float64, and for trunc everywhere."""
    if a.dtype in HALF and mode == "floor":
        return torch.div(a.float(), b.float(), rounding_mode=mode).to(a.dtype)
    return torch.div(a, b, rounding_mode=mode)


def special(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    info, digits = torch.finfo(dtype), -round(math.log2(torch.finfo(dtype).eps))
    numbers = [*SPECIAL, info.smallest_normal * info.eps, info.smallest_normal, info.max]
    # Quotients near the end of the fraction: 2^22 and 2^23 of float32, 2^51 to 2^53 of float64.
    numbers += [2.0 ** (digits + shift) + extra for shift in (-2, -1, 0, 1) for extra in (0, 1, 3)]
    x = torch.tensor([*numbers, *(-n for n in numbers), NAN], dtype=torch.float64).to(dtype)
    return tuple(t.contiguous() for t in torch.cartesian_prod(x, x).unbind(1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_special_pairs_have_the_bits_of_the_definition(dtype: torch.dtype, mode: str) -> None:
    a, b = special(dtype)
    assert len(a) > 2_000
    y = safeops.div(a, b, rounding_mode=mode, policy="stock")
    assert_same_numbers(y, stock(a, b, mode))
    zero = (b == 0) & ~a.isnan()
    assert_same_numbers(y[zero], (a / b)[zero])
    assert counts("div") == (int(zero.sum()), 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", WIDE, ids=identifier)
def test_random_bit_patterns_have_torchs_bits(dtype: torch.dtype, mode: str) -> None:
    a, b = random_patterns(dtype, 200_000, 1), random_patterns(dtype, 200_000, 2)
    assert_same_numbers(safeops.div(a, b, rounding_mode=mode), stock(a, b, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", WIDE, ids=identifier)
def test_random_quotients_of_every_size_have_torchs_bits(dtype: torch.dtype, mode: str) -> None:
    generator = torch.Generator().manual_seed(7)
    b = torch.randn(200_000, dtype=torch.float64, generator=generator)
    scale = torch.exp2(torch.randint(-3, 56, b.shape, generator=generator).double())
    multiple = (torch.rand(b.shape, dtype=torch.float64, generator=generator) * scale).round()
    # Half of the dividends are multiples of their divisors, or next to one.
    a, b = (multiple * b).to(dtype), b.to(dtype)
    a[::2] = torch.nextafter(a[::2], torch.full_like(a[::2], -INF))
    assert_same_numbers(safeops.div(a, b, rounding_mode=mode), stock(a, b, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", HALF, ids=identifier)
def test_grid_of_the_half_types(dtype: torch.dtype, mode: str) -> None:
    chosen = grid(dtype, 6 if dtype is torch.float16 else 2)
    pairs = 0
    for divisors in chosen.split(128):
        b = divisors[:, None]
        y = safeops.div(chosen, b, rounding_mode=mode, policy="stock")
        assert_same_numbers(y, stock(chosen, b.expand(-1, len(chosen)), mode))
        pairs += y.numel()
    assert pairs > 100_000


@pytest.mark.parametrize("number", [0.1, 1 / 3, 3.0001, -7.3, 1e-3])
@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("dtype", HALF, ids=identifier)
def test_a_number_as_the_divisor_of_a_half_is_not_rounded_to_it(
    dtype: torch.dtype, mode: str | None, number: float
) -> None:
    x = every_half(dtype)
    want = torch.div(x, number, rounding_mode=mode)
    y = safeops.div(x, number, rounding_mode=mode, policy="zero")
    assert_same_numbers(y, want)
    # As torch: so is a tensor of one element, of whatever dtype.
    for divisor in (torch.tensor(number, dtype=torch.float64), torch.tensor(number, dtype=dtype)):
        want = torch.div(x, divisor, rounding_mode=mode)
        assert_same_numbers(safeops.div(x, divisor, rounding_mode=mode, policy="zero"), want)


def test_floor_of_a_half_is_that_of_the_float32_pair() -> None:
    # PyTorch's float16 gives 2038: it takes the remainder in the half type.
    a = torch.tensor([3.048828125], dtype=torch.float16)
    b = torch.tensor([0.0014963150024414062], dtype=torch.float16)
    assert math.floor(a.item() / b.item()) == 2037
    wide = torch.cat([a, a]), torch.cat([b, b])
    assert safeops.div(*wide, rounding_mode="floor").tolist() == [2037, 2037]


@pytest.mark.parametrize(
    ("a", "b", "truncated", "floored"),
    [
        (7.0, 2.0, 3.0, 3.0),
        (-7.0, 2.0, -3.0, -4.0),
        (7.0, -2.0, -3.0, -4.0),
        (-7.0, -2.0, 3.0, 3.0),
        (-1.0, 3.0, -0.0, -1.0),
        (1.0, 3.0, 0.0, 0.0),
        (0.0, -3.0, -0.0, -0.0),
        (-0.0, 3.0, -0.0, -0.0),
        (1.0, INF, 0.0, 0.0),
        (-1.0, INF, -0.0, -1.0),
        (1.0, -INF, -0.0, -1.0),
        (INF, 2.0, INF, NAN),
        (INF, INF, NAN, NAN),
        (1e300, 1e-300, INF, INF),
        (1.0, 0.0, INF, INF),
        (-1.0, 0.0, -INF, -INF),
        (0.0, 0.0, NAN, NAN),
        (NAN, 2.0, NAN, NAN),
        # 0.1 is above a tenth: it fits nine times into 1, though 1 / 0.1 rounds to 10.
        (1.0, 0.1, 10.0, 9.0),
        (2.0**53, 3.0, 3002399751580330.0, 3002399751580330.0),
        (2.0**53 - 1, -1.0, 1 - 2.0**53, 1 - 2.0**53),
    ],
)
def test_hand_cases(a: float, b: float, truncated: float, floored: float) -> None:
    x, y = torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64)
    for mode, want in (("trunc", truncated), ("floor", floored)):
        got = safeops.div(x, y, rounding_mode=mode, policy="stock")
        assert_same_numbers(got, torch.tensor([want], dtype=torch.float64))
        assert_same_numbers(got, torch.div(x, y, rounding_mode=mode))


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_singular_elements(dtype: torch.dtype, mode: str, policy: str) -> None:
    a = torch.tensor([3.0, -3.0, 0.0, NAN, 7.0], dtype=dtype)
    b = torch.tensor([0.0, -0.0, 0.0, 0.0, 2.0], dtype=dtype)
    g = torch.tensor([1.0, -2.0, 0.0, 1.0, 1.0], dtype=dtype)
    y, (da, db) = values_and_gradients("div", (a, b), g, policy, rounding_mode=mode)
    eps = reference.default_eps(policy, dtype)
    want = {
        "stock": [INF, INF, NAN, NAN, 3.0],
        "nan": [NAN, NAN, NAN, NAN, 3.0],
        "zero": [0.0, 0.0, 0.0, NAN, 3.0],
        # A number of its own: -0.0 is floored at -eps.
        "epsilon": [3 / eps if eps else 0.0, 3 / eps if eps else 0.0, 0.0, NAN, 3.0],
    }[policy]
    slope = [NAN] * 3 + [0.0, 0.0] if policy == "nan" else [0.0] * 5
    same = {"rtol": torch.finfo(dtype).eps, "atol": 1 if policy == "epsilon" else 0}
    torch.testing.assert_close(y, torch.tensor(want, dtype=dtype), equal_nan=True, **same)
    for grad in (da, db):
        assert_same_numbers(grad, torch.tensor(slope, dtype=dtype))
    assert counts("div") == (3, 3)


@pytest.mark.parametrize("mode", MODES)
def test_floored_divisors_are_rounded_with_their_quotient(mode: str) -> None:
    a = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    b = torch.tensor([0.0, 0.0, -1e-3, 0.3], dtype=torch.float64)
    y = safeops.div(a, b, rounding_mode=mode, eps=0.3, policy="epsilon")
    down = mode == "floor"
    assert y.tolist() == [3.0, -4.0 if down else -3.0, -4.0 if down else -3.0, -4.0 if down else -3]
    assert counts("div") == (3, 0)


@pytest.mark.parametrize("mode", MODES)
def test_raise(mode: str) -> None:
    a, b = torch.ones(3), torch.tensor([1.0, 0.0, 2.0])
    with pytest.raises(safeops.SingularityError, match="div.*met 1 singular element of 3"):
        safeops.div(a, b, rounding_mode=mode, policy="raise")


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives_are_zero_at_regular_elements(mode: str, policy: str) -> None:
    a = torch.tensor([3.0, 7.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([2.0, -2.0], dtype=torch.float64, requires_grad=True)
    y = safeops.div(a, b, rounding_mode=mode, policy=policy)
    g = torch.ones(2, dtype=torch.float64, requires_grad=True)
    da, db = torch.autograd.grad(y, (a, b), g, create_graph=True)
    assert not da.any() and not db.any()
    if da.requires_grad:
        second = torch.autograd.grad(da.sum() + db.sum(), (a, b, g), allow_unused=True)
        assert all(t is None or not t.any() for t in second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=identifier)
def test_floor_over_the_floor_is_exact(dtype: torch.dtype) -> None:
    # 1 / 0.1 rounds to 10, and 0.1 fits 9 times into 1, for 0.1 is a little more than a tenth.
    b = torch.tensor([0.0, -0.0, 0.05], dtype=dtype)
    y = safeops.div(torch.ones_like(b), b, rounding_mode="floor", eps=0.1, policy="epsilon")
    assert y.tolist() == [1 // 0.1, 1 // -0.1, 1 // 0.1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=identifier)
def test_floor_is_that_of_the_exact_quotient_up_to_its_limit(dtype: torch.dtype) -> None:
    limit = 2**22 if dtype is torch.float32 else 2**51
    generator = torch.Generator().manual_seed(5)
    b = torch.randn(4000, dtype=torch.float64, generator=generator).to(dtype)
    sizes = torch.logspace(0, math.log10(limit), 4000, dtype=torch.float64)
    whole = (sizes * torch.rand(4000, dtype=torch.float64, generator=generator)).floor()
    a = (whole.to(dtype) * b).to(dtype)  # most quotients round to a whole number
    floors = safeops.div(a, b, rounding_mode="floor", policy="stock").tolist()
    rounded_up = 0
    for x, d, got in zip(a.tolist(), b.tolist(), floors, strict=True):
        exact = math.floor(Fraction(x) / Fraction(d))
        if abs(exact) < limit - 1:
            assert got == exact, (x, d)
            rounded_up += math.floor((torch.tensor(x, dtype=dtype) / d).item()) != exact
    assert rounded_up > 100
