"""Errors in ulp of the dtype against long double, forward and backward, at every exponent."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import division_reference as reference
import safeops
from division_numbers import (
    assert_same_numbers,
    finite_patterns,
    gradient_bound,
    random_patterns,
    subnormals,
    value_bound,
)
from division_samples import UNARY, values_and_gradients
from reference import Array, ulps, widen
from samples import REAL, counts, identifier

pytestmark = pytest.mark.usefixtures("every_device")

NAMES = ("div", *UNARY)
WIDE = (torch.float32, torch.float64)
SIZE = 40_000


def near_one(dtype: torch.dtype) -> torch.Tensor:
    steps = torch.arange(-2_000, 2_001, dtype=torch.float64)
    x = torch.cat([1 + steps * torch.finfo(dtype).eps, 1 + steps / 5_000]).to(dtype)
    return x[x > 0]


def powers_of_two(dtype: torch.dtype) -> torch.Tensor:
    """Every power, with its two neighbours."""
    info = torch.finfo(dtype)
    lowest = round(np.log2(info.smallest_normal * info.eps))
    x = torch.exp2(torch.arange(lowest, round(np.log2(info.max)), dtype=torch.float64)).to(dtype)
    infinity = torch.full_like(x, torch.inf)
    x = torch.cat([x, torch.nextafter(x, infinity), torch.nextafter(x, -infinity)])
    return x[x > 0]


ARGUMENTS = {
    "patterns": lambda dtype: finite_patterns(dtype, SIZE),
    "subnormals": lambda dtype: subnormals(dtype, 4_000),
    "near_one": near_one,
    "powers": powers_of_two,
}


def arguments(name: str, kind: str, dtype: torch.dtype) -> torch.Tensor:
    x = ARGUMENTS[kind](dtype)
    return x if name == "reciprocal" else x.abs()


def worst(error: Array, *tensors: torch.Tensor) -> str:
    place = int(error.argmax())
    return f"{float(error.max()):.4f} ulp at " + ", ".join(t[place].item().hex() for t in tensors)


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_values(name: str, dtype: torch.dtype, kind: str) -> None:
    x = arguments(name, kind, dtype)
    y = getattr(safeops, name)(x, policy="raise")
    error = ulps(y, reference.value(name, (widen(x),)))
    print(f"{name} {dtype} {kind}: {worst(error, x)}")
    assert error.max() <= value_bound(name, dtype), worst(error, x)


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_gradients(name: str, dtype: torch.dtype, kind: str) -> None:
    x = arguments(name, kind, dtype)
    for g in (torch.full_like(x, -0.7), finite_patterns(dtype, len(x), 5)):
        if name == "rsqrt" and dtype is torch.float64:
            # g y is formed on the way: what it loses where it is subnormal is lost.
            g = torch.where(g.abs() * x.rsqrt() < 2 * torch.finfo(dtype).tiny, 1.0, g)
        y, (grad,) = values_and_gradients(name, (x,), g, "zero")
        (want,) = reference.gradients(name, (widen(x),), widen(g))
        error = ulps(grad, want)
        # Regularity is judged on the value.
        error[~y.isfinite().cpu().numpy()] = 0
        print(f"gradient of {name} {dtype} {kind}: {worst(error, g, x)}")
        assert error.max() <= gradient_bound(dtype), worst(error, g, x)
    assert counts(name) == (0, 0)


WITNESSES = [
    ("log", torch.float32, ("0x1.67ef9ep-1",)),
    ("log", torch.float64, ("0x1.6978d4fdf3b64p-1",)),
    ("rsqrt", torch.float32, ("0x1.30c456p-104",)),
    ("rsqrt", torch.float64, ("0x1.08a71de69ad43p+0",)),
]
# g, and the operands.
GRADIENT_WITNESSES = [
    ("rsqrt", torch.float64, ("-0x1.c91d134bcac1ap+989", "0x1.302fe94b3ea23p+85")),
    ("rsqrt", torch.float64, ("0x1.a6ac7055dc8dap+985", "0x1.fffffffffffffp+1023")),
    ("rsqrt", torch.float64, ("0x1.30b68ea1aa42bp-789", "0x1.e1b0d7d8a538p-612")),
    ("div", torch.float64, ("0x1.c000225c82689p+216", "0x1p+158", "0x1.fffffffffffffp+106")),
    ("div", torch.float16, ("-0x1.668p-1", "-0x1.3ap-8", "-0x1.4ap-5")),
    ("div", torch.float32, ("-0x1.666666p-1", "0x1.e23b64p+38", "0x1.3a726ep+39")),
]


def numbers_of(witness: tuple[str, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    # Enough copies for a vector and a rest.
    return [torch.full((35,), float.fromhex(number), dtype=dtype) for number in witness]


@pytest.mark.parametrize(("name", "dtype", "witness"), WITNESSES, ids=identifier)
def test_the_worst_values_found(name: str, dtype: torch.dtype, witness: tuple[str, ...]) -> None:
    (x,) = numbers_of(witness, dtype)
    error = ulps(getattr(safeops, name)(x), reference.value(name, (widen(x),)))
    assert error.max() <= value_bound(name, dtype) and len(set(error)) == 1


@pytest.mark.parametrize(("name", "dtype", "witness"), GRADIENT_WITNESSES, ids=identifier)
def test_the_worst_gradients_found(name: str, dtype: torch.dtype, witness: tuple[str, ...]) -> None:
    g, *operands = numbers_of(witness, dtype)
    _, grads = values_and_gradients(name, tuple(operands), g, "zero")
    wants = reference.gradients(name, tuple(widen(t) for t in operands), widen(g))
    for grad, want in zip(grads, wants, strict=True):
        assert ulps(grad, want).max() <= gradient_bound(dtype)


@pytest.mark.parametrize("dtype", WIDE, ids=identifier)
def test_roots_and_reciprocals_have_the_bits_of_ieee(dtype: torch.dtype) -> None:
    for kind in ARGUMENTS:
        x = arguments("sqrt", kind, dtype)
        assert_same_numbers(safeops.sqrt(x), torch.from_numpy(np.sqrt(x.cpu().numpy())))
        with np.errstate(all="ignore"):
            want = torch.from_numpy(x.cpu().numpy().dtype.type(1) / x.cpu().numpy())
        assert_same_numbers(safeops.reciprocal(x), want)


def pairs(kind: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    if kind == "patterns":
        return random_patterns(dtype, 200_000, 1), random_patterns(dtype, 200_000, 2)
    if kind == "subnormals":
        return subnormals(dtype, 4_000, 1), subnormals(dtype, 4_000, 2)
    if kind == "subnormal quotients":
        # Exponents apart by nearly the whole range.
        a = finite_patterns(dtype, 100_000, 1)
        b = a.flip(0) * torch.finfo(dtype).max ** 0.5
        return a * torch.finfo(dtype).tiny ** 0.5, torch.where(b == 0, 1, b)
    x = torch.cat([powers_of_two(dtype), near_one(dtype)[:500]])
    x = x[:: max(1, len(x) // 400)]
    return tuple(t.contiguous() for t in torch.cartesian_prod(x, x).unbind(1))


PAIRS = ("patterns", "subnormals", "subnormal quotients", "powers")


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("dtype", WIDE, ids=identifier)
def test_quotients_have_the_bits_of_ieee(dtype: torch.dtype, kind: str) -> None:
    a, b = pairs(kind, dtype)
    y = safeops.div(a, b)
    with np.errstate(all="ignore"):
        want = torch.from_numpy(a.cpu().numpy() / b.cpu().numpy())
    assert_same_numbers(y, want)
    assert_same_numbers(y, torch.div(a, b))


@pytest.mark.parametrize("dtype", WIDE, ids=identifier)
def test_quotients_are_the_nearest_numbers_to_those_of_fractions(dtype: torch.dtype) -> None:
    a, b = finite_patterns(dtype, 500, 3), finite_patterns(dtype, 500, 4)
    if dtype is torch.float32:
        a, b = a * 2.0**-20, torch.where(b.abs() < 2.0**-60, 3, b)
    exact = [Fraction(n) / Fraction(d) for n, d in zip(a.tolist(), b.tolist(), strict=True)]
    for got, quotient in zip(safeops.div(a, b).tolist(), exact, strict=True):
        if abs(quotient) >= torch.finfo(dtype).max:
            continue
        ends = np.array([-np.inf, np.inf], a.cpu().numpy().dtype)
        neighbours = np.nextafter(ends.dtype.type(got), ends)
        distance = abs(Fraction(got) - quotient)
        for neighbour in neighbours[np.isfinite(neighbours)]:
            assert distance <= abs(Fraction(float(neighbour)) - quotient)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_gradients_of_quotients(dtype: torch.dtype, kind: str) -> None:
    a, b = (t[:SIZE] for t in pairs(kind, dtype))
    keep = a.isfinite() & b.isfinite() & (b != 0)
    a, b = a[keep], b[keep]
    for g in (torch.full_like(a, -0.7), finite_patterns(dtype, len(a), 5), torch.zeros_like(a)):
        y, grads = values_and_gradients("div", (a, b), g, "zero")
        wide_a, wide_b, wide_g = widen(a), widen(b), widen(g)
        wants = wide_g / wide_b, -wide_g * (wide_a / wide_b / wide_b)
        for grad, want, label in zip(grads, wants, ("da", "db"), strict=True):
            error = ulps(grad, want)
            if label == "db":
                error[~y.isfinite().cpu().numpy()] = 0
            print(f"{label} {dtype} {kind}: {worst(error, g, a, b)}")
            assert error.max() <= gradient_bound(dtype), (label, worst(error, g, a, b))
    assert counts("div") == (0, 0)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("eps", [None, 1e-3, 0.3])
def test_floored_elements(dtype: torch.dtype, eps: float | None) -> None:
    # eps is not rounded to the dtype before it divides.
    a = finite_patterns(dtype, 5_000, 1)
    b = torch.where(torch.arange(5_000) % 2 == 0, 0.0, -0.0).to(dtype)
    g = finite_patterns(dtype, 5_000, 2)
    effective = reference.default_eps("epsilon", dtype) if eps is None else eps
    y, (da, db) = values_and_gradients("div", (a, b), g, "epsilon", eps=eps)
    floor = np.copysign(np.longdouble(effective), widen(b))
    # Through float64, and once more to the dtype.
    bound = 0.5 + 2.0**-11 + 2.0**-20
    assert ulps(y, widen(a) / floor).max() <= bound
    assert ulps(da, widen(g) / floor).max() <= bound
    assert not db.any()
    for name in UNARY:
        y, (grad,) = values_and_gradients(name, (b,), g, "epsilon", eps=eps)
        assert ulps(y, reference.value(name, (widen(b),), "epsilon", effective)).max() <= 1
        assert not grad.any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_zero_gives_no_nan_for_finite_inputs(dtype: torch.dtype, name: str) -> None:
    x = random_patterns(dtype, SIZE)
    x = torch.where(x.isfinite(), x, torch.zeros_like(x))
    tensors = (x.flip(0), x) if name == "div" else (x,)
    assert not getattr(safeops, name)(*tensors, policy="zero").isnan().any()
    assert counts(name)[0] > 0
