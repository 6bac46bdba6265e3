"""Autocast does what it does to torch's own operators; CUDA's list is checked on fake tensors."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import safeops
from division_samples import NAMES, call, numbers, stock
from samples import REAL, assert_same_bits, identifier


def arguments_of(name: str, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x, x) if name == "div" else (x,)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=identifier)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_cpu_autocast_keeps_the_dtype_as_torch_does(
    name: str, dtype: torch.dtype, low: torch.dtype
) -> None:
    tensors = arguments_of(name, numbers(dtype, (2, 3)))
    with torch.autocast("cpu", dtype=low):
        y, expected = call(name, *tensors), stock(name, *tensors)
    assert y.dtype is expected.dtype
    assert_same_bits(y, call(name, *tensors).to(y.dtype))


@pytest.mark.parametrize("dtype", [*REAL, torch.int64], ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_cuda_autocast_computes_in_the_dtype_that_torch_does(
    name: str, dtype: torch.dtype, cuda_autocast: None
) -> None:
    with FakeTensorMode():
        tensors = arguments_of(name, torch.empty(2, 3, dtype=dtype, device="cuda"))
        y, expected = call(name, *tensors), stock(name, *tensors)
        if name == "div":
            by_number, want = safeops.div(tensors[0], 2.5), torch.div(tensors[0], 2.5)
            assert by_number.dtype is want.dtype
    assert y.device.type == "cuda"
    assert y.dtype is expected.dtype
    if name in ("reciprocal", "rsqrt", "log") and dtype is torch.float16:
        assert y.dtype is torch.float32


@pytest.mark.parametrize("pair", [(torch.float16, torch.float32), (torch.bfloat16, REAL[0])])
def test_quotients_of_several_dtypes_as_torch_promotes_them(
    pair: tuple[torch.dtype, torch.dtype], cuda_autocast: None
) -> None:
    with FakeTensorMode():
        a, b = (torch.empty(3, dtype=dtype, device="cuda") for dtype in pair)
        assert safeops.div(a, b).dtype is torch.div(a, b).dtype


@pytest.mark.parametrize("name", NAMES)
def test_without_autocast_fake_cuda_keeps_the_dtype(name: str) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, dtype=torch.float16, device="cuda")
        assert call(name, *arguments_of(name, x)).dtype is torch.float16
