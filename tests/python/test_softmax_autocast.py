"""Autocast does what it does to torch's own operators; CUDA's list is checked on fake tensors."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import safeops
from samples import REAL, assert_same_bits, identifier
from softmax_samples import LOGITS, NAMES, call, logits, stock


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=identifier)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_cpu_autocast_keeps_the_dtype_as_torch_does(
    name: str, dtype: torch.dtype, low: torch.dtype
) -> None:
    x = logits(dtype, (2, 3))
    with torch.autocast("cpu", dtype=low):
        y, expected = call(name, x), stock(name, x)
    assert y.dtype is expected.dtype
    assert_same_bits(y, call(name, x).to(y.dtype))


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_cuda_autocast_computes_in_the_dtype_that_torch_does(
    name: str, dtype: torch.dtype, masked: bool, cuda_autocast: None
) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, dtype=dtype, device="cuda")
        where = torch.empty(3, dtype=torch.bool, device="cuda") if masked else None
        y, expected = call(name, x, where=where), stock(name, x)
    assert y.device.type == "cuda"
    assert y.dtype is expected.dtype
    if name in LOGITS:
        assert y.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)


@pytest.mark.parametrize("asked", [torch.float16, torch.float32, torch.float64], ids=identifier)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", LOGITS)
def test_a_dtype_that_is_asked_for_wins_as_in_torch(
    name: str, dtype: torch.dtype, asked: torch.dtype, cuda_autocast: None
) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, dtype=dtype, device="cuda")
        y = call(name, x, dtype=asked)
        expected = stock(name, x, dtype=asked)
    assert y.dtype is expected.dtype is asked


def test_softmin_and_modules(cuda_autocast: None) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, dtype=torch.float16, device="cuda")
        assert safeops.softmin(x, -1).dtype is torch.nn.functional.softmin(x, -1).dtype
        assert safeops.nn.Softmax(-1)(x).dtype is torch.nn.Softmax(-1)(x).dtype


@pytest.mark.parametrize("name", NAMES)
def test_without_autocast_fake_cuda_keeps_the_dtype(name: str) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, dtype=torch.float16, device="cuda")
        assert call(name, x).dtype is torch.float16
