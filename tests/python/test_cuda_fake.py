"""CUDA tensors without a GPU: what fake ones say of shapes, dtypes, strides and devices.

No kernel runs. `test_softmax_autocast.py` and its like have autocast for CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import division_samples
import safeops
import softmax_samples
from samples import DTYPES, REAL, identifier

OPS = torch.ops.safeops
SOFTMAX, DIVISION = softmax_samples.NAMES, division_samples.NAMES

OURS: dict[str, Callable[..., Tensor]] = {
    "normalize": safeops.normalize,
    **{name: partial(softmax_samples.call, name) for name in SOFTMAX},
    **{name: partial(division_samples.call, name) for name in DIVISION},
}
STOCK: dict[str, Callable[..., Tensor]] = {
    "normalize": F.normalize,
    **{name: partial(softmax_samples.stock, name) for name in SOFTMAX},
    **{name: partial(division_samples.stock, name) for name in DIVISION},
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "permuted": lambda x: x.permute(3, 1, 0, 2),
    "strided": lambda x: x[:, :, ::2, 1::2],
    "expanded": lambda x: x[:1, :, :1].expand(2, 3, 4, 6),
    "no elements": lambda x: x[:, :0],
}


@pytest.fixture
def fake() -> Iterator[None]:
    with FakeTensorMode():
        yield


def operands(name: str, dtype: torch.dtype, layout: str = "contiguous") -> list[Tensor]:
    make = LAYOUTS[layout]
    count = 2 if name == "div" else 1
    return [make(torch.empty(2, 3, 4, 6, dtype=dtype, device="cuda")) for _ in range(count)]


def form(x: Tensor) -> tuple[object, ...]:
    return x.shape, x.stride(), x.dtype, x.device


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OURS)
def test_results_have_the_form_of_torchs(name: str, layout: str, fake: None) -> None:
    inputs = operands(name, torch.float32, layout)
    y = OURS[name](*inputs)
    assert form(y) == form(STOCK[name](*inputs)) and y.device.type == "cuda"


SERVED = [(n, dtype) for n in OURS for dtype in (REAL if n in SOFTMAX else DTYPES)]


@pytest.mark.parametrize(("name", "dtype"), SERVED, ids=identifier)
def test_every_dtype(name: str, dtype: torch.dtype, fake: None) -> None:
    inputs = operands(name, dtype)
    assert form(OURS[name](*inputs)) == form(STOCK[name](*inputs))


def backward(name: str, g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    operator = getattr(OPS, f"_{name}_backward")
    row = torch.empty(*x.shape[:-1], 1, dtype=torch.float64, device="cuda")
    if name == "normalize":
        return (operator(g, x, row, 2.0, [x.dim() - 1], 0.0, "zero"),)
    if name == "logsumexp":
        return (operator(g.unsqueeze(-1), x, row, None, [x.dim() - 1], "zero"),)
    if name in SOFTMAX:
        return (operator(g, y, row, None, -1, torch.float32, "zero"),)
    if name == "div":
        return operator(g, x, x, None, 0.0, "zero", [True, True])
    return (operator(g, x, 0.0, "zero"),)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OURS)
def test_gradients_have_the_form_of_the_input(name: str, layout: str, fake: None) -> None:
    # By the inner operators: the engine of autograd asks the driver for its device.
    inputs = operands(name, torch.float32, layout)
    y = OURS[name](*inputs)
    for grad in backward(name, torch.empty_like(y), inputs[0], y):
        assert form(grad)[2:] == form(inputs[0])[2:] and grad.shape == inputs[0].shape


def test_a_number_on_the_cpu_may_divide(fake: None) -> None:
    (x,) = operands("sqrt", torch.float32)
    for a, b in ((x, torch.tensor(2.0)), (torch.tensor(2.0), x), (x, 2.0)):
        assert form(safeops.div(a, b)) == form(torch.div(a, b))


def test_nothing_is_counted_and_nothing_is_pending(fake: None) -> None:
    for name in OURS:
        OURS[name](*operands(name, torch.float32))
    safeops.diagnostics.check()
    assert safeops.diagnostics.snapshot().records == ()


def test_every_schema_with_a_kernel_has_one_for_cuda() -> None:
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("safeops::")]
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    kernels = [name for name in names if has(name, "CPU")]
    assert len(kernels) > 25
    assert [name for name in kernels if not has(name, "CUDA")] == []
    assert all(has(name, "CompositeImplicitAutograd") for name in set(names) - set(kernels))


# Calls that reach the kernels of real tensors, and are refused before anything is computed.


def on_cuda(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    with FakeTensorMode():
        return torch.empty(shape, dtype=dtype, device="cuda")


def reach_kernel(operator: Any, *arguments: Any, **keywords: Any) -> None:
    with torch._C._DisableTorchDispatch():
        operator(*arguments, **keywords)


ELSEWHERE: dict[str, tuple[Any, Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "normalize": (OPS.normalize.out, lambda: (on_cuda(3, 4),), {"out": torch.ones(3, 4)}),
    "softmax": (OPS.softmax.out, lambda: (on_cuda(3, 4), -1), {"out": torch.ones(3, 4)}),
    "logsumexp": (OPS.logsumexp.out, lambda: (on_cuda(3, 4), [-1]), {"out": torch.ones(3)}),
    "div": (OPS.div.out, lambda: (on_cuda(3), on_cuda(3)), {"out": torch.ones(3)}),
    "sqrt": (OPS.sqrt.out, lambda: (on_cuda(3),), {"out": torch.ones(3)}),
    "log_softmax": (OPS.log_softmax, lambda: (on_cuda(3), -1), {"where": torch.ones(3) > 0}),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_out_and_where_must_be_on_the_device_of_the_input(name: str) -> None:
    operator, arguments, elsewhere = ELSEWHERE[name]
    (argument,) = elsewhere
    with pytest.raises(
        RuntimeError,
        match=f"^safeops::{name}: {argument} must be on the device of input, cuda:0, got cpu",
    ):
        reach_kernel(operator, *arguments(), **elsewhere)


def test_out_on_cuda_takes_no_result_from_the_cpu() -> None:
    with pytest.raises(RuntimeError, match="out must be on the device of input, cpu, got cuda:0"):
        reach_kernel(OPS.normalize.out, torch.ones(3, 4), out=on_cuda(3, 4))


@pytest.mark.parametrize("first", [False, True])
def test_operands_of_a_quotient_must_be_on_one_device(first: bool) -> None:
    pair = on_cuda(3), torch.ones(3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        reach_kernel(OPS.div, *(pair if first else pair[::-1]))
