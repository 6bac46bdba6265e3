"""What torch takes and ours does not, and errors: patched calls do there as stock calls do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import safeops
from patch_samples import hits
from samples import assert_same_bits

ONES = torch.ones(2)
HALF = torch.ones(2, dtype=torch.float16)
INTEGERS = torch.ones(2, 2, dtype=torch.int64)

TAKEN: dict[str, Callable[[], torch.Tensor]] = {
    "2j / half": lambda: 2j / HALF,
    "half / complex64": lambda: HALF / torch.tensor([2j, 3j]),
    "eps=-1": lambda: F.normalize(ONES, dim=0, eps=-1.0),
    "eps=inf": lambda: F.normalize(ONES, dim=0, eps=torch.inf),
    "eps=nan": lambda: F.normalize(ONES, dim=0, eps=torch.nan),
    "softmax(integers, dtype=)": lambda: INTEGERS.softmax(1, dtype=torch.float64),
    "x / np.complex128": lambda: ONES / np.complex128(2j),
    "x / np.float32": lambda: ONES / np.float32(3),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("name", TAKEN)
def test_what_torch_takes_is_taken(name: str) -> None:
    expected = TAKEN[name]()
    for patch in (safeops.patch(policy="stock"), safeops.patch(observe=True)):
        with patch:
            found = TAKEN[name]()
        assert_same_bits(found, expected)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning", "ignore:Casting complex")
def test_complex_scalars_of_numpy() -> None:
    for x in (ONES, HALF, INTEGERS):
        expected = x / np.complex64(2 + 2j)
        with safeops.patch(policy="zero"):
            assert_same_bits(x / np.complex64(2 + 2j), expected)


def test_numbers_over_tensors_without_data() -> None:
    for dtype in (torch.float32, torch.int64):
        x = torch.ones(2, device="meta", dtype=dtype)
        for quotient in (lambda x: 2 // x, lambda x: 2 / x, lambda x: 2.5 / x):
            expected = quotient(x)
            with safeops.patch(policy="zero"):
                found = quotient(x)
            assert found.is_meta and found.dtype is expected.dtype and found.shape == (2,)


REFUSED: dict[str, Callable[[], Any]] = {
    "integers.softmax(5)": lambda: INTEGERS.softmax(5),
    "integers.softmax(0)": lambda: INTEGERS.softmax(0),
    "softmax(True)": lambda: F.softmax(torch.ones(2, 2), True),
    "softmax(complex)": lambda: torch.softmax(torch.ones(2, dtype=torch.complex64), 3),
    "log_softmax(dtype=integer)": lambda: ONES.log_softmax(0, dtype=torch.int64),
    "softmin(integers)": lambda: F.softmin(INTEGERS, 4),
    "logsumexp(5)": lambda: ONES.logsumexp(5),
    "logsumexp('0')": lambda: ONES.logsumexp("0"),
    "normalize(dim=5)": lambda: F.normalize(ONES, dim=5),
    "normalize(integers)": lambda: F.normalize(INTEGERS),
    "normalize(eps=complex)": lambda: F.normalize(ONES, dim=0, eps=1j),
    "normalize(p='2')": lambda: F.normalize(ONES, p="2", dim=0),
    "half / 2j": lambda: HALF / 2j,
    "trunc of complex": lambda: torch.div(ONES, 2j, rounding_mode="trunc"),
    "trunc of complex, out": lambda: torch.div(ONES, 2j, rounding_mode="trunc", out=torch.empty(2)),
    "rounding_mode='up'": lambda: torch.div(ONES, 2, rounding_mode="up"),
    "out of integers": lambda: torch.div(ONES, 2, out=torch.empty(2, dtype=torch.int64)),
    "div_ of integers": lambda: INTEGERS.clone().div_(2),
    "div_ that broadcasts": lambda: torch.ones(1).div_(ONES),
    "sizes that differ": lambda: ONES / torch.ones(3),
    "sqrt_ of integers": lambda: INTEGERS.clone().sqrt_(),
    "rsqrt_ of a leaf": lambda: torch.ones(2, requires_grad=True).rsqrt_(),
    "log of nothing": lambda: torch.log(None),
    "reciprocal, out of integers": lambda: torch.reciprocal(
        ONES, out=torch.empty(2, dtype=torch.int64)
    ),
    "integers to a negative power": lambda: INTEGERS**-1,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_with_the_same_error(name: str) -> None:
    with pytest.raises(Exception) as stock:
        REFUSED[name]()
    for patch in (safeops.patch(policy="zero"), safeops.patch(observe=True)):
        with patch, pytest.raises(Exception) as caught:
            REFUSED[name]()
        assert type(caught.value) is type(stock.value), str(caught.value)
    assert hits() == {}
