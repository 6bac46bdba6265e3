"""Integers: promotion, true quotients, rounded quotients, wrapping, zero divisors."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

import safeops
from division_numbers import assert_same_numbers
from division_samples import UNARY
from samples import NOT_RAISING, POLICIES, REAL, count, counts, identifier

SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
INTEGERS = (*SIGNED, torch.uint8)
ALL = (*INTEGERS, torch.bool, *REAL)
MODES = ("trunc", "floor")
ROUNDINGS: dict[str, Callable[[int, int], int]] = {
    "trunc": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "floor": lambda a, b: a // b,
}


def edges(dtype: torch.dtype) -> list[int]:
    info = torch.iinfo(dtype)
    numbers = {info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 3}
    numbers |= {0, 1, 2, 3, 7, 10, 100}
    if info.min < 0:
        numbers |= {-1, -2, -3, -7, -10, -100, info.min // 2}
    return sorted(numbers)


def wrapped(number: int, dtype: torch.dtype) -> int:
    info = torch.iinfo(dtype)
    return (number - info.min) % 2**info.bits + info.min


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=identifier)
def test_rounded_quotients_are_pythons(dtype: torch.dtype, mode: str, policy: str) -> None:
    pairs = [(a, b) for a, b in itertools.product(edges(dtype), repeat=2) if b != 0]
    a, b = (torch.tensor(side, dtype=dtype) for side in zip(*pairs, strict=True))
    y = safeops.div(a, b, rounding_mode=mode, policy=policy)
    assert y.dtype is dtype
    assert y.tolist() == [wrapped(ROUNDINGS[mode](*pair), dtype) for pair in pairs]
    assert counts("div") == (0, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=identifier)
def test_every_pair_of_bytes(dtype: torch.dtype, mode: str) -> None:
    info = torch.iinfo(dtype)
    a = torch.arange(info.min, info.max + 1).to(dtype)
    b = a[:, None]
    y = safeops.div(a, b, rounding_mode=mode, policy="zero")
    want = [
        [0 if d == 0 else wrapped(ROUNDINGS[mode](n, d), dtype) for n in a.tolist()]
        for d in a.tolist()
    ]
    assert y.tolist() == want and counts("div") == (256, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", SIGNED, ids=identifier)
def test_the_smallest_number_over_minus_one_wraps(dtype: torch.dtype, mode: str) -> None:
    smallest = torch.iinfo(dtype).min
    # Enough elements for every vector width and a rest.
    x = torch.full((131,), smallest, dtype=dtype)
    for divisor in (torch.full_like(x, -1), torch.tensor(-1, dtype=dtype), -1):
        y = safeops.div(x, divisor, rounding_mode=mode, policy="raise")
        assert y.unique().tolist() == [smallest]
        again = x.clone()
        safeops.div_(again, divisor, rounding_mode=mode, policy="zero")
        assert again.unique().tolist() == [smallest]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", ["stock", "nan"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=identifier)
def test_a_zero_divisor_is_torchs_error(dtype: torch.dtype, policy: str, mode: str) -> None:
    x, zero = torch.tensor([3, 4], dtype=dtype), torch.tensor([5, 0], dtype=dtype)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.div(x, zero, rounding_mode=mode)
    for divisor, hits in ((zero, 1), (torch.zeros((), dtype=dtype), 2), (0, 2)):
        with pytest.raises(RuntimeError, match="div.*ZeroDivisionError"):
            safeops.div(x, divisor, rounding_mode=mode, policy=policy)
        assert count("zero_denominator", operator="div") == hits
        counts("div")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=identifier)
def test_a_zero_divisor_under_zero_raise_and_epsilon(dtype: torch.dtype, mode: str) -> None:
    x, y = torch.tensor([3, 4, 9], dtype=dtype), torch.tensor([0, 2, 0], dtype=dtype)
    assert safeops.div(x, y, rounding_mode=mode, policy="zero").tolist() == [0, 2, 0]
    assert counts("div") == (2, 0)
    with pytest.raises(safeops.SingularityError, match="div.*met 2 singular elements of 3") as it:
        safeops.div(x, y, rounding_mode=mode, policy="raise")
    assert (it.value.count, it.value.first_row) == (2, 0) and counts("div") == (2, 0)
    with pytest.raises(ValueError, match="div.*epsilon") as it:
        safeops.div(x, y, rounding_mode=mode, policy="epsilon")
    assert not isinstance(it.value, safeops.SingularityError)
    # Without a zero divisor nothing has to be floored.
    assert safeops.div(x, y + 2, rounding_mode=mode, policy="epsilon").tolist() == [1, 1, 4]


@pytest.mark.parametrize("policy", ["stock", "nan", "raise"])
@pytest.mark.parametrize("mode", MODES)
def test_an_error_leaves_the_target_untouched(mode: str, policy: str) -> None:
    x = torch.arange(100_000, dtype=torch.int32)
    divisor = torch.ones_like(x)
    divisor[77_777] = 0
    out = torch.full_like(x, 7)
    for target in (out, x):
        before = target.clone()
        with pytest.raises((RuntimeError, ValueError)):
            if target is x:
                safeops.div_(x, divisor, rounding_mode=mode, policy=policy)
            else:
                safeops.div(x, divisor, rounding_mode=mode, policy=policy, out=out)
        assert torch.equal(target, before)


@pytest.mark.parametrize("mode", MODES)
def test_a_divisor_is_zero_after_its_cast(mode: str) -> None:
    x = torch.tensor([1, 2], dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.div(x, 256, rounding_mode=mode)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        safeops.div(x, 256, rounding_mode=mode, policy="stock")
    assert safeops.div(x, 256, rounding_mode=mode, policy="zero").tolist() == [0, 0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=identifier)
def test_numbers_that_the_dtype_does_not_hold_wrap_as_in_torch(
    dtype: torch.dtype, mode: str
) -> None:
    x = torch.tensor([0, 1, 3, 100, 127]).to(dtype)
    for number in (300, -300, 255, 128, 2**31 - 1, 2**40 + 3, 1 - 2**63):
        want = torch.div(x, number, rounding_mode=mode)
        assert_same_numbers(safeops.div(x, number, rounding_mode=mode, policy="raise"), want)


def some(dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> torch.Tensor:
    numbers = torch.arange(offset, offset + 12)[: max(1, torch.Size(shape).numel())]
    return (numbers > offset).to(dtype) if dtype is torch.bool else numbers.view(shape).to(dtype)


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("first", ALL, ids=identifier)
def test_promotion_of_two_tensors(first: torch.dtype, mode: str | None) -> None:
    agreed = 0
    for second, shapes in itertools.product(ALL, [((4,), (4,)), ((4,), ()), ((), (4,)), ((), ())]):
        a, b = some(first, shapes[0], 5), some(second, shapes[1], 1)
        if second is torch.bool:
            b = torch.ones_like(b)
        if mode is not None and torch.result_type(a, b) is torch.bool:
            for function in (torch.div, safeops.div):
                with pytest.raises(NotImplementedError):
                    function(a, b, rounding_mode=mode)
            continue
        want = torch.div(a, b, rounding_mode=mode)
        assert_same_numbers(safeops.div(a, b, rounding_mode=mode, policy="stock"), want)
        if mode is None:
            assert_same_numbers(safeops.true_divide(a, b, policy="zero"), torch.true_divide(a, b))
        agreed += 1
    assert agreed >= 36


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("number", [True, 3, 2.5], ids=str)
def test_promotion_with_a_number(number: float, mode: str | None) -> None:
    for dtype, shape in itertools.product(ALL, [(4,), ()]):
        x = some(dtype, shape, 5)
        if mode is not None and torch.result_type(x, number) is torch.bool:
            with pytest.raises(NotImplementedError):
                safeops.div(x, number, rounding_mode=mode)
            continue
        want = torch.div(x, number, rounding_mode=mode)
        for policy in NOT_RAISING:
            assert_same_numbers(safeops.div(x, number, rounding_mode=mode, policy=policy), want)


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.float16], ids=identifier)
@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool], ids=identifier)
def test_the_default_dtype_is_that_of_true_quotients(
    dtype: torch.dtype, default: torch.dtype
) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        a, b = some(dtype, (4,), 5), some(dtype, (4,), 1)
        y = safeops.div(a, b, policy="stock")
        assert y.dtype is default
        assert_same_numbers(y, torch.div(a, b))
        for name in UNARY:
            y = getattr(safeops, name)(b, policy="stock")
            assert y.dtype is default
            torch.testing.assert_close(y, getattr(torch, name)(b))
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool], ids=identifier)
def test_true_quotients_of_integers_have_the_policies_of_real_numbers(
    dtype: torch.dtype, policy: str
) -> None:
    a, b = torch.tensor([1, 0, 1], dtype=dtype), torch.tensor([0, 0, 1], dtype=dtype)
    y = safeops.div(a, b, policy=policy)
    assert_same_numbers(y, safeops.div(a.float(), b.float(), policy=policy))
    for name in UNARY:
        y = getattr(safeops, name)(b, policy=policy)
        assert_same_numbers(y, getattr(safeops, name)(b.float(), policy=policy))
    assert count("zero_denominator", operator="div") == 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", ["zero", "epsilon"])
@pytest.mark.parametrize("eps", [0.0, 1e-3, 5.0])
def test_eps_means_nothing_to_integers(mode: str, eps: float, policy: str) -> None:
    a, b = torch.tensor([7, -7]), torch.tensor([2, 3])
    want = torch.div(a, b, rounding_mode=mode)
    assert torch.equal(safeops.div(a, b, rounding_mode=mode, eps=eps, policy=policy), want)
    assert counts("div") == (0, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=identifier)
def test_wide_unsigned_integers_are_refused_where_torch_refuses_them(
    dtype: torch.dtype, mode: str
) -> None:
    x = torch.tensor([6], dtype=dtype)
    for function in (torch.div, safeops.div):
        with pytest.raises(NotImplementedError):
            function(x, x, rounding_mode=mode)


def test_integers_have_no_gradient_but_their_floating_partner_has() -> None:
    a, b = torch.tensor([6, 8]), torch.tensor([2.0, 0.0], requires_grad=True)
    y = safeops.div(a, b, policy="zero")
    y.sum().backward()
    assert y.tolist() == [3, 0] and b.grad.tolist() == [-1.5, 0]
    assert counts("div") == (1, 1)
