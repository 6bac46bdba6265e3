"""Complex numbers: range, special values, policies, gradients. Errors are counted normwise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import safeops
from division_samples import INF, NAN, UNARY, ZERO_CONDITION, values_and_gradients
from reference import Array, spacing, widen
from samples import COMPLEX, NOT_RAISING, assert_same_bits, count, counts, identifier

NAMES = ("div", *UNARY)
# Units in the last place of the modulus.
VALUE_BOUND = {torch.complex64: 4, torch.complex128: 8}
GRADIENT_BOUND = {torch.complex64: 4, torch.complex128: 16}
PART = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def divide(a: Array, b: Array) -> Array:
    """Long double has the exponents for the square of a modulus of float64."""
    with np.errstate(all="ignore"):
        size = b.real**2 + b.imag**2
        product = a * np.conj(b)
        return make(product.real / size, product.imag / size)


def make(real: Array, imag: Array) -> Array:
    z = np.empty(np.broadcast(real, imag).shape, np.clongdouble)
    z.real, z.imag = real, imag
    return z


def value(name: str, x: Array) -> Array:
    if name == "log":
        return np.log(x)
    y = x if name == "reciprocal" else np.sqrt(x)
    return y if name == "sqrt" else divide(np.ones_like(y), y)


def slope(name: str, x: Array, g: Array) -> Array:
    """Conjugated, as torch's."""
    y = value(name, x)
    if name == "reciprocal":
        return -g * np.conj(y * y)
    if name == "rsqrt":
        return -g / 2 * np.conj(y * y * y)
    return divide(g, np.conj(2 * y if name == "sqrt" else x))


def assert_near(actual: torch.Tensor, want: Array, bound: float) -> None:
    """Where the modulus of what is wanted is in range."""
    part = PART[actual.dtype]
    got, size = widen(actual), np.hypot(want.real, want.imag)
    inside = size < torch.finfo(part).max
    assert inside.mean() > 0.5
    with np.errstate(all="ignore"):
        error = np.hypot(got.real - want.real, got.imag - want.imag) / spacing(size, part)
    assert error[inside].max() <= bound
    assert not np.isfinite(got[size > 2 * torch.finfo(part).max]).any()


def wide_range(dtype: torch.dtype, size: int, seed: int, share: float = 0.45) -> torch.Tensor:
    """Random numbers whose parts have exponents of their own, within a share of the range."""
    generator = torch.Generator().manual_seed(seed)
    limit = share * math.log2(torch.finfo(PART[dtype]).max)
    exponents = (torch.rand(2, size, dtype=torch.float64, generator=generator) * 2 - 1) * limit
    parts = torch.randn(2, size, dtype=torch.float64, generator=generator) * torch.exp2(exponents)
    return torch.complex(*parts).to(dtype)


@pytest.mark.parametrize("share", [0.02, 0.45, 0.98])
@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
def test_quotients_over_the_whole_range(dtype: torch.dtype, share: float) -> None:
    a, b = (wide_range(dtype, 20_000, seed, share) for seed in (1, 2))
    assert_near(safeops.div(a, b, policy="zero"), divide(widen(a), widen(b)), VALUE_BOUND[dtype])
    assert counts("div") == (0, 0)


@pytest.mark.parametrize("share", [0.02, 0.45, 0.98])
@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_values_over_the_whole_range(name: str, dtype: torch.dtype, share: float) -> None:
    x = wide_range(dtype, 20_000, 3, share)
    y = getattr(safeops, name)(x, policy="zero")
    assert_near(y, value(name, widen(x)), VALUE_BOUND[dtype])
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("share", [0.02, 0.2])
@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
def test_gradients_of_quotients(dtype: torch.dtype, share: float) -> None:
    a, b, g = (wide_range(dtype, 20_000, seed, share) for seed in (1, 2, 3))
    _, (da, db) = values_and_gradients("div", (a, b), g, "zero")
    a, b, g = widen(a), widen(b), widen(g)
    assert_near(da, divide(g, np.conj(b)), GRADIENT_BOUND[dtype])
    assert_near(db, -g * np.conj(divide(divide(a, b), b)), GRADIENT_BOUND[dtype])


@pytest.mark.parametrize("share", [0.02, 0.2])
@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
@pytest.mark.parametrize("name", UNARY)
def test_gradients(name: str, dtype: torch.dtype, share: float) -> None:
    x, g = (wide_range(dtype, 20_000, seed, share) for seed in (3, 4))
    _, (grad,) = values_and_gradients(name, (x,), g, "zero")
    assert_near(grad, slope(name, widen(x), widen(g)), GRADIENT_BOUND[dtype])


@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_conjugated_as_torchs(name: str, dtype: torch.dtype) -> None:
    tensors = [wide_range(dtype, 500, seed, 0.02) for seed in ((1, 2) if name == "div" else (2,))]
    g = wide_range(dtype, 500, 3, 0.02)
    y, grads = values_and_gradients(name, tuple(tensors), g, "stock")
    leaves = [t.clone().requires_grad_() for t in tensors]
    want = getattr(torch, name)(*leaves)
    torch.testing.assert_close(y, want)
    for grad, expected in zip(grads, torch.autograd.grad(want, leaves, g), strict=True):
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("policy", [*NOT_RAISING, "raise"])
@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (0, complex(1e-36, 0), 0),
        (0, complex(1e-36, 1e-36), 0),
        (1, complex(INF, 0), 0),
        (1, complex(0, -INF), 0),
        (complex(1, -2), complex(INF, INF), 0),
        (complex(0, 3), complex(-INF, INF), 0),
        (1, complex(INF, 5), 0),
        (complex(3e38, 3e38), complex(3e38, 3e38), 1),
        (complex(2e-45, 2e-45), complex(2e-45, 2e-45), 1),
        (complex(1, 1), complex(1e-38, 1e-38), 1e38),
        (complex(1e30, 0), complex(0, 1e30), -1j),
        (complex(1e-30, 1e-30), complex(1e8, -1e8), 1e-38j),
    ],
)
def test_answers_that_a_plain_formula_loses(
    a: complex, b: complex, want: complex, policy: str
) -> None:
    x, y = torch.tensor([a], dtype=torch.complex64), torch.tensor([b], dtype=torch.complex64)
    got = safeops.div(x, y, policy=policy)
    if policy == "epsilon" and abs(b) < 1e-12:
        assert counts("div") == (1, 0)
        return
    torch.testing.assert_close(got, torch.tensor([want], dtype=torch.complex64), atol=0, rtol=1e-6)
    if a == 1:
        assert safeops.reciprocal(y, policy=policy).tolist() == got.tolist()
    assert counts("div") == counts("reciprocal") == (0, 0)


@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
def test_stock_at_zero_is_torchs(dtype: torch.dtype) -> None:
    parts = [0.0, -0.0, 1.0, -2.0, INF, NAN]
    a = torch.tensor([complex(r, i) for r in parts for i in parts], dtype=dtype)
    for zero in (complex(0.0, 0.0), complex(-0.0, 0.0), complex(0.0, -0.0), complex(-0.0, -0.0)):
        b = torch.full_like(a, zero)
        y = torch.view_as_real(safeops.div(a, b, policy="stock"))
        by_zero = torch.view_as_real(a) / 0.0
        assert torch.equal(y.nan_to_num(7), by_zero.nan_to_num(7))
        stock = torch.view_as_real(a / b)
        assert torch.equal(y.nan_to_num(7), stock.nan_to_num(7))
        numbers = int((~torch.view_as_real(a).isnan()).all(1).sum())
        assert counts("div") == (numbers, 0)


def singular(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Zeros of all signs, moduli below 0.5, one of exactly 0.5, regular ones."""
    x = [complex(r, i) for r in (0.0, -0.0) for i in (0.0, -0.0)]
    x += [0.3 - 0.3j, -0.4j, 0.5, -0.3 + 0.4j, 1 + 2j, -3 + 0j]
    divisor = torch.tensor(x, dtype=torch.complex128).to(dtype)
    if name != "div":
        return (divisor,)
    return torch.linspace(1, 2, len(x), dtype=torch.float64).to(dtype) * (1 - 2j), divisor


def floored(x: Array, eps: float) -> Array:
    size = np.hypot(x.real, x.imag)
    scale = np.longdouble(eps) / np.where(size == 0, 1, size)
    raised = make(np.where(size == 0, eps, x.real * scale), x.imag * scale)
    return np.where(size < eps, raised, x)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_policies(name: str, dtype: torch.dtype, policy: str) -> None:
    tensors = singular(name, dtype)
    x = tensors[-1]
    g = torch.linspace(1, 2, len(x), dtype=torch.float64).to(dtype) * (1 + 1j)
    y, grads = values_and_gradients(name, tensors, g, policy, eps=0.5)
    plain, plain_grads = values_and_gradients(name, tensors, g, "stock")
    counts(name)
    # 0.5 and abs(-0.3 + 0.4j): equality is regular.
    assert_same_bits(y[6:], plain[6:])
    for grad, other in zip(grads, plain_grads, strict=True):
        assert_same_bits(grad[6:], other[6:])
    has_value = name == "sqrt" and policy in ("nan", "zero")
    first = 4 if has_value else 0
    if policy == "stock":
        assert_same_bits(y, plain)
        for grad, other in zip(grads, plain_grads, strict=True):
            assert_same_bits(grad, other)
    elif policy == "epsilon":
        raised = floored(widen(x), 0.5)
        want = divide(widen(tensors[0]), raised) if name == "div" else value(name, raised)
        assert_near(y[:6], want[:6], VALUE_BOUND[dtype])
        if name == "div":
            assert_near(grads[0][:6], divide(widen(g), np.conj(raised))[:6], GRADIENT_BOUND[dtype])
        assert not grads[-1][:6].any()
    else:
        fill = complex(NAN, NAN) if policy == "nan" else 0
        want = torch.full_like(x, fill)
        same = {"rtol": 0, "atol": 0, "equal_nan": True}
        assert not y[:first].any()
        torch.testing.assert_close(y[first:6], want[first:6], **same)
        for grad in grads:
            torch.testing.assert_close(grad[:6], want[:6], **same)


@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_conditions(name: str, dtype: torch.dtype) -> None:
    tensors = singular(name, dtype)
    g = torch.ones_like(tensors[0])
    for policy in ("zero", "epsilon"):
        values_and_gradients(name, tensors, g, policy, eps=0.5)
        spared = name == "sqrt" and policy == "zero"
        assert count(ZERO_CONDITION[name], "forward", name) == (0 if spared else 4)
        assert count(ZERO_CONDITION[name], "backward", name) == 4
        for direction in ("forward", "backward"):
            assert count("below_eps", direction, name) == 2
            assert count("negative_argument", direction, name) == 0
        counts(name)


@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_raise(name: str, dtype: torch.dtype) -> None:
    tensors = singular(name, dtype)
    hits = 2 if name == "sqrt" else 6
    with pytest.raises(safeops.SingularityError, match=rf"{name}.*met {hits} singular elements"):
        getattr(safeops, name)(*tensors, eps=0.5, policy="raise")
    regular = tuple(t[6:] for t in tensors)
    y = getattr(safeops, name)(*regular, eps=0.5, policy="raise")
    assert_same_bits(y, getattr(safeops, name)(*regular, policy="stock"))


@pytest.mark.parametrize("policy", [*NOT_RAISING, "raise"])
@pytest.mark.parametrize("part", [complex(NAN, 0), complex(0, NAN), complex(NAN, NAN)])
def test_nan_in_either_part_of_the_dividend_is_no_singularity(part: complex, policy: str) -> None:
    a, b = torch.tensor([part, part]), torch.tensor([0j, 2 + 1j])
    y = torch.view_as_real(safeops.div(a, b, policy=policy))
    assert y[1].isnan().all() and y[0].isnan().any()
    assert counts("div") == (0, 0)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
def test_rounding_modes_are_refused_as_by_torch(dtype: torch.dtype, mode: str) -> None:
    x = torch.ones(2, dtype=dtype)
    for function in (torch.div, safeops.div):
        with pytest.raises(NotImplementedError):
            function(x, x, rounding_mode=mode)


@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
def test_real_and_complex_operands_promote_as_in_torch(dtype: torch.dtype) -> None:
    z, x = wide_range(dtype, 50, 1, 0.02), torch.linspace(1, 2, 50)
    for a, b in ((z, x), (x, z), (z, 2.0), (z, 1 + 2j), (x, 1 + 2j), (z, x.to(torch.int64))):
        y, want = safeops.div(a, b, policy="zero"), torch.div(a, b)
        assert y.dtype is want.dtype
        torch.testing.assert_close(y, want)


@pytest.mark.parametrize("name", NAMES)
def test_a_real_operand_has_a_real_gradient(name: str) -> None:
    a = torch.linspace(1, 2, 5, dtype=torch.float64, requires_grad=True)
    b = wide_range(torch.complex128, 5, 1, 0.01).requires_grad_()
    if name != "div":
        a = a.detach().requires_grad_()
        assert getattr(safeops, name)(a, policy="zero").dtype is torch.float64
        return
    y, want = safeops.div(a, b, policy="zero"), torch.div(a, b)
    g = wide_range(torch.complex128, 5, 2, 0.01)
    for got, expected in zip(
        torch.autograd.grad(y, (a, b), g), torch.autograd.grad(want, (a, b), g), strict=True
    ):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_conjugate_and_negative_views_are_what_their_copies_are(name: str, policy: str) -> None:
    z = wide_range(torch.complex64, 40, 1, 0.02)
    z[3] = 0
    operand = torch.full_like(z, 1 - 2j)
    for view in (z.conj(), torch._neg_view(z)):
        tensors = (operand, view) if name == "div" else (view,)
        copies = tuple(t.resolve_conj().resolve_neg().clone() for t in tensors)
        y = getattr(safeops, name)(*tensors, policy=policy)
        want = getattr(safeops, name)(*copies, policy=policy)
        torch.testing.assert_close(y, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["div", "reciprocal", "rsqrt", "sqrt", "log"])
def test_forward_mode_agrees_with_the_kernel_about_what_is_singular(name: str) -> None:
    # Moduli within a rounding of eps: in float32 they fall on either side of it.
    angle = torch.linspace(0, 6, 4000, dtype=torch.float64)
    z = torch.polar(torch.full_like(angle, 1e-3), angle).to(torch.complex64)

    def value(x: Tensor) -> Tensor:
        operands = (torch.ones_like(x), x) if name == "div" else (x,)
        return getattr(safeops, name)(*operands, eps=1e-3, policy="zero")

    y, tangent = torch.func.jvp(value, (z,), (torch.ones_like(z),))
    assert 0 < (y == 0).sum() < len(z)
    assert torch.equal(y == 0, tangent == 0)
