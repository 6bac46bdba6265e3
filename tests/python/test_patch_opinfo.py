"""Patched and observed calls against direct and stock ones, on torch's operator database."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import safeops
from patch_samples import DIRECT, Outcome, info, outcome, samples
from samples import DTYPES, LONG, assert_same_bits, identifier, significant_strides

INTEGERS = (torch.int64, torch.uint8, torch.bool)
ROUNDED = ("div.trunc_rounding", "div.floor_rounding", "floor_divide")
WITH_NAN = ("stock", "nan", "epsilon", "zero")


def pairs() -> list[Any]:
    return [
        pytest.param(name, dtype, id=f"{name}-{identifier(dtype)}")
        for name in DIRECT
        for dtype in (*DTYPES, *INTEGERS)
        if LONG or dtype not in (torch.float64, torch.complex128, torch.uint8)
        if dtype.is_floating_point or name not in (*ROUNDED, "pow")
    ]


def supported(name: str, dtype: torch.dtype) -> bool:
    if name == "pow":
        return dtype.is_floating_point or dtype.is_complex
    return dtype in info(name).supported_dtypes("cpu")


def differentiable(name: str, dtype: torch.dtype) -> bool:
    return name != "floor_divide" and (dtype.is_floating_point or dtype.is_complex)


def assert_same(actual: Outcome, expected: Outcome) -> None:
    assert_same_bits(actual.value, expected.value)
    assert len(actual.gradients) == len(expected.gradients)
    for one, other in zip(actual.gradients, expected.gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert_same_bits(one, other)


@pytest.mark.parametrize(("name", "dtype"), pairs())
def test_a_patched_call_is_the_direct_call(name: str, dtype: torch.dtype) -> None:
    if not supported(name, dtype):
        return
    differentiate = differentiable(name, dtype)
    calls = hits = 0
    for number, sample in enumerate(samples(name, dtype)):
        policy = WITH_NAN[number % 4]
        for spelling, function in sample.spellings.items():
            in_place = spelling.startswith("inplace")
            stock = stock_outcome(function, sample, in_place, differentiate)
            if stock is None:
                continue
            with safeops.patch(policy=policy):
                patched = outcome(function, sample.args, sample.kwargs, in_place, differentiate)
            with safeops.policy(policy):
                direct = outcome(sample.direct, sample.args, sample.kwargs, False, differentiate)
            assert patched.counts == direct.counts, spelling
            if in_place:
                assert_same_bits(patched.value, direct.value.to(patched.value.dtype))
            else:
                assert_same(patched, direct)
            assert patched.value.dtype is stock.value.dtype
            assert patched.value.shape == stock.value.shape
            assert significant_strides(patched.value) == significant_strides(stock.value)
            calls, hits = calls + 1, hits + sum(patched.counts.values())
    assert calls >= 4
    assert hits > 0 or not dtype.is_floating_point


def stock_outcome(
    function: Any, sample: Any, in_place: bool, differentiate: bool
) -> Outcome | None:
    """None where torch refuses, and the patched call then does in the same way."""
    try:
        return outcome(function, sample.args, sample.kwargs, in_place, differentiate)
    except Exception as error:
        with safeops.patch(policy="stock"), pytest.raises(type(error)):
            outcome(function, sample.args, sample.kwargs, in_place, differentiate)
        return None


@pytest.mark.parametrize(("name", "dtype"), pairs())
def test_an_observed_call_is_stocks_and_counts_as_ours(name: str, dtype: torch.dtype) -> None:
    if not supported(name, dtype):
        return
    differentiate = differentiable(name, dtype)
    calls = hits = 0
    for sample in samples(name, dtype):
        for spelling, function in sample.spellings.items():
            in_place = spelling.startswith("inplace")
            try:
                stock = outcome(function, sample.args, sample.kwargs, in_place, differentiate)
            except Exception:
                continue
            with safeops.patch(observe=True), safeops.policy("nan", eps=0.25):
                seen = outcome(function, sample.args, sample.kwargs, in_place, differentiate)
            assert_same(seen, stock)
            assert seen.value.stride() == stock.value.stride()
            with safeops.policy("stock"):
                direct = outcome(sample.direct, sample.args, sample.kwargs, False, differentiate)
            assert seen.counts == direct.counts, spelling
            calls, hits = calls + 1, hits + sum(seen.counts.values())
    assert calls >= 4
    assert hits > 0 or not dtype.is_floating_point


@pytest.mark.parametrize("name", [n for n in DIRECT if n not in ("__rdiv__", "pow")])
def test_out(name: str) -> None:
    if not info(name).supports_out:
        return
    for sample in samples(name, torch.float32, most=4):
        expected = info(name).op(*sample.args, **sample.kwargs)
        out, ours = torch.empty_like(expected), torch.empty_like(expected)
        with safeops.patch(policy="zero"):
            assert info(name).op(*sample.args, **sample.kwargs, out=out) is out
        with safeops.policy("zero"):
            sample.direct(*sample.args, **sample.kwargs, out=ours) if name not in (
                "floor_divide",
                "nn.functional.normalize",
            ) else ours.copy_(sample.direct(*sample.args, **sample.kwargs))
        assert_same_bits(out, ours)


# The database has errors for no others; `test_patch_refusals` has some of its own.
WITH_ERRORS = (
    "div.no_rounding_mode",
    "div.trunc_rounding",
    "div.floor_rounding",
    "true_divide",
    "floor_divide",
    "__rdiv__",
    "pow",
)


def test_no_error_of_the_database_is_left_out() -> None:
    found = [name for name in DIRECT if info(name).error_inputs_func is not None]
    assert found == list(WITH_ERRORS)


@pytest.mark.parametrize("observe", [False, True])
@pytest.mark.parametrize("name", WITH_ERRORS)
def test_errors_are_stocks(name: str, observe: bool) -> None:
    for error in info(name).error_inputs(torch.device("cpu")):
        sample = error.sample_input

        def call(sample: Any = sample) -> torch.Tensor:
            return info(name).op(sample.input, *sample.args, **sample.kwargs)

        with pytest.raises(error.error_type) as stock:
            call()
        with safeops.patch(observe=observe), pytest.raises(error.error_type) as caught:
            call()
        assert type(caught.value) is type(stock.value)
    assert safeops.diagnostics.snapshot().records == ()
