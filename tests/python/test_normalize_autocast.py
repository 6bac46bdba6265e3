"""Autocast does what it does to F.normalize; CUDA's list is checked on fake tensors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import safeops
from samples import DTYPES, assert_same_bits, identifier


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=identifier)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_cpu_autocast_keeps_the_dtype_as_torch_does(dtype: torch.dtype, low: torch.dtype) -> None:
    x = torch.tensor([[3, 4], [1, 0]], dtype=dtype)
    with torch.autocast("cpu", dtype=low):
        y = safeops.normalize(x, policy="zero")
        expected = F.normalize(x)
    assert y.dtype is expected.dtype is dtype
    assert_same_bits(y, safeops.normalize(x, policy="zero"))


def test_cpu_autocast_behind_a_linear_layer() -> None:
    linear = torch.nn.Linear(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = safeops.normalize(linear(torch.randn(2, 4)), policy="zero")
    y.float().sum().backward()
    assert y.dtype is torch.bfloat16
    assert linear.weight.grad.dtype is torch.float32


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=identifier
)
def test_cuda_autocast_computes_in_float32_as_torch_does(
    dtype: torch.dtype, cuda_autocast: None
) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, dtype=dtype, device="cuda")
        y = safeops.normalize(x, policy="zero")
        expected = F.normalize(x)
    assert y.device.type == "cuda"
    assert y.dtype is expected.dtype
    assert y.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)


def test_without_autocast_fake_cuda_keeps_the_dtype() -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, dtype=torch.float16, device="cuda")
        assert safeops.normalize(x, policy="zero").dtype is torch.float16
