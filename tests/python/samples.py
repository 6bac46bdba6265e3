"""Dtypes, policies, memory layouts and rows that the tests share."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

import safeops

POLICIES = ("stock", "nan", "epsilon", "zero", "raise")
NOT_RAISING = ("stock", "nan", "epsilon", "zero")
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = REAL + COMPLEX
ORDERS = (2.0, 1.0, float("inf"), 3.0, 0.5, 0.0, -1.0, float("-inf"))

# Everything, not a selection: `make test-long`.
LONG = os.environ.get("SAFEOPS_TEST_LONG", "0") != "0"

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def device() -> torch.device:
    """Where a test makes its tensors; random numbers are drawn on the CPU and moved there."""
    return torch.get_default_device()


def skip_on_cuda(unserved: bool, what: str) -> None:
    """Ends a test of what CUDA has no kernel for."""
    if unserved and device().type == "cuda":
        pytest.skip(f"CUDA has no kernel for {what}")


def skip_without_norm(p: float, dtype: torch.dtype = torch.float32) -> None:
    served = p == 2 if dtype.is_complex else p in (2, 1, float("inf"))
    skip_on_cuda(not served, f"p = {p} of {identifier(dtype)}")


def identifier(value: object) -> str:
    return str(value).removeprefix("torch.")


def bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.contiguous().view(BITS[real.element_size()]).cpu()


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype is expected.dtype and actual.shape == expected.shape
    differ = (bits(actual) != bits(expected)).sum().item()
    assert differ == 0, f"{differ} of {actual.numel()} elements differ in their bits"


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.new_full((tensor.shape[0], 2 * tensor.shape[1]), float("nan"))
    wide[:, ::2] = tensor
    return wide[:, ::2]


def padded(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.new_full((tensor.shape[0], tensor.shape[1] + 3), float("nan"))
    wide[:, 1:-2] = tensor
    return wide[:, 1:-2]


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.new_full((tensor.numel() + 1,), float("nan"))
    view = storage[1:].view(tensor.shape)
    view.copy_(tensor)
    return view


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Rows as the channels of an image in channels_last, seen as a matrix again: a strided view."""
    image = tensor.view(1, 1, *tensor.shape).permute(0, 3, 1, 2)
    return image.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)[0, 0]


# Each takes a contiguous matrix and returns the same numbers in another memory layout.
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda tensor: tensor.clone(),
    "transposed": lambda tensor: tensor.t().contiguous().t(),
    "sliced": sliced,
    "padded": padded,
    "misaligned": misaligned,
    "channels_last": channels_last,
}


def rows_of_norm(
    dtype: torch.dtype, shape: tuple[int, int], low: float, high: float, seed: int = 0
) -> torch.Tensor:
    """Random rows with 2-norms of 2**low to 2**high, as near as dtype allows."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    direction = torch.randn(shape, dtype=wide, generator=generator, device="cpu")
    direction = direction / direction.abs().amax(1, keepdim=True)
    direction = direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    uniform = torch.rand((shape[0], 1), dtype=torch.float64, generator=generator, device="cpu")
    exponent = uniform * (high - low) + low
    return (direction * torch.exp2(exponent)).to(device(), dtype)


def random_like(tensor: torch.Tensor, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    numbers = torch.randn(tensor.shape, dtype=wide, generator=generator, device="cpu")
    return numbers.to(tensor.device, tensor.dtype)


def value_and_gradient(
    x: torch.Tensor, g: torch.Tensor, policy: str, **arguments: object
) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = x.detach().requires_grad_()
    y = safeops.normalize(leaf, policy=policy, **arguments)
    (grad,) = torch.autograd.grad(y, leaf, g)
    return y.detach(), grad


def significant_strides(tensor: torch.Tensor) -> list[int]:
    """Strides of the dims that have any; over one element torch's CPU and meta kernels disagree."""
    return [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def count(
    condition: str | None = None, direction: str = "forward", operator: str = "normalize"
) -> int:
    """Rows counted since the last reset: hits only, unless a notice is named."""
    return safeops.diagnostics.snapshot().total(operator, condition, direction)


def counts(operator: str = "normalize") -> tuple[int, int]:
    """Hits forward and backward since the last reset; starts again from zero."""
    both = tuple(count(None, direction, operator) for direction in ("forward", "backward"))
    safeops.diagnostics.reset()
    return both
