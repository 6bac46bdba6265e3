"""The operators as the stages call them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

import safeops

POLICIES = ("stock", "nan", "epsilon", "zero", "raise")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Operation:
    """`exact`: CPU and CUDA kernels must agree to the bit. `rows`: works along the last dim."""

    name: str
    operator: str  # as diagnostics count it
    call: Callable[..., torch.Tensor]
    peer: Callable[..., torch.Tensor]
    exact: bool
    rows: bool
    inputs: int = 1
    positive: bool = False


def _norm(p: float) -> Operation:
    return Operation(
        f"normalize p={p:g}",
        "normalize",
        partial(safeops.normalize, p=p, dim=-1),
        partial(torch.nn.functional.normalize, p=p, dim=-1),
        exact=True,
        rows=True,
    )


def _along_rows(name: str) -> Operation:
    return Operation(
        name,
        name,
        partial(getattr(safeops, name), dim=-1),
        partial(getattr(torch, name), dim=-1),
        exact=False,
        rows=True,
    )


def _element(name: str, inputs: int = 1, positive: bool = False) -> Operation:
    return Operation(
        name,
        name,
        getattr(safeops, name),
        getattr(torch, name),
        exact=True,
        rows=False,
        inputs=inputs,
        positive=positive,
    )


OPERATIONS = (
    _norm(2.0),
    _norm(1.0),
    _norm(float("inf")),
    _along_rows("softmax"),
    _along_rows("log_softmax"),
    _along_rows("logsumexp"),
    _element("div", inputs=2),
    _element("reciprocal"),
    _element("rsqrt", positive=True),
    _element("sqrt", positive=True),
    _element("log", positive=True),
)


def inputs_for(
    operation: Operation, shape: tuple[int, ...], dtype: torch.dtype, seed: int, singular: bool
) -> Inputs:
    """On the CPU. With `singular`, a third of the rows or elements is."""
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for _ in range(operation.inputs):
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        if operation.positive:
            x = x.abs() + 0.01
        tensors.append(x)
    last = tensors[-1]
    if singular and operation.rows:
        last[::3] = -torch.inf if operation.operator != "normalize" else 0.0
    elif singular:
        last.view(-1)[::3] = 0.0
    return tuple(x.to(dtype) for x in tensors)


def value_and_gradients(
    operation: Operation, inputs: Inputs, device: str, policy: str, gradient_seed: int = 7
) -> Inputs:
    """Result and gradients of all inputs, on the CPU. A gradient of ones would hide signs."""
    leaves = [x.to(device).requires_grad_() for x in inputs]
    y = operation.call(*leaves, policy=policy)
    generator = torch.Generator().manual_seed(gradient_seed)
    gradient = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype)
    gradients = torch.autograd.grad(y, leaves, gradient.to(device))
    return tuple(tensor.detach().cpu() for tensor in (y, *gradients))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """To the bit; any NaN equals any other."""
    both_nan = a.isnan() & b.isnan()
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return bool((both_nan | (a.view(bits) == b.view(bits))).all())


def agree(operation: Operation, a: Inputs | str, b: Inputs | str) -> bool:
    """Results of a device and of the CPU, or the text of their errors."""
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    compare = same if operation.exact else close
    return all(compare(ours, theirs) for ours, theirs in zip(a, b, strict=True))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    tolerance = 8 * torch.finfo(a.dtype).eps
    return torch.allclose(a.double(), b.double(), tolerance, tolerance, equal_nan=True)


def worst_error(got: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor) -> float:
    """In units of the dtype's epsilon at `scale`; infinite where one is finite and one is not."""
    epsilon = torch.finfo(got.dtype).eps
    wide, expected = got.double(), exact.double()
    agree = (wide == expected) | (wide.isnan() & expected.isnan())
    error = (wide - expected).abs() / (scale.double() * epsilon)
    error = torch.where(agree, torch.zeros_like(error), error.nan_to_num(torch.inf, torch.inf))
    return float(error.max()) if error.numel() else 0.0
