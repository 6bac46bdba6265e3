"""Numbers of elements in counters and errors: row-major over the shape of the result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import safeops
from division_samples import NAMES, call, numbers
from safeops import diagnostics

pytestmark = pytest.mark.usefixtures("every_device")


def first_of(name: str) -> int:
    (record,) = diagnostics.snapshot().records
    assert record.operator == name and record.count == 1
    return record.first_row


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(1, 3).contiguous().transpose(1, 3),
    "strided": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "flipped memory": lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_numbers_do_not_depend_on_memory(name: str, layout: str) -> None:
    for index in ((1, 2, 3, 4), (0, 0, 0, 1), (0, 1, 0, 0), (1, 0, 0, 0)):
        x = numbers(torch.float32, (2, 3, 4, 5))
        x[index] = -1 if name == "sqrt" else 0
        x = LAYOUTS[layout](x)
        tensors = (numbers(torch.float32, (2, 3, 4, 5), seed=1), x) if name == "div" else (x,)
        call(name, *tensors, policy="zero")
        a, b, c, d = index
        assert first_of(name) == ((a * 3 + b) * 4 + c) * 5 + d
        diagnostics.reset()
        leaves = [t.detach().requires_grad_() for t in tensors]
        with pytest.raises(safeops.SingularityError) as raised:
            call(name, *leaves, policy="raise")
        assert raised.value.first_row == ((a * 3 + b) * 4 + c) * 5 + d
        diagnostics.reset()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_into_out(layout: str) -> None:
    x = numbers(torch.float32, (2, 3, 4, 5))
    x[1, 2, 3, 4] = 0
    out = LAYOUTS[layout](torch.empty(2, 3, 4, 5))
    safeops.log(x, policy="zero", out=out)
    assert first_of("log") == 119


@pytest.mark.parametrize(
    ("shapes", "index", "element"),
    [
        (((3, 4), (4,)), (2,), 2),
        (((4,), (3, 1)), (2, 0), 8),
        (((3, 1), (1, 4)), (0, 3), 3),
        (((2, 3, 4), (3, 1)), (1, 0), 4),
        (((5, 1, 3), (4, 1)), (3, 0), 9),
        (((6,), ()), (), 0),
    ],
    ids=str,
)
def test_numbers_under_broadcasting(
    shapes: tuple[tuple[int, ...], ...], index: tuple[int, ...], element: int
) -> None:
    a, b = numbers(torch.float64, shapes[0]), numbers(torch.float64, shapes[1], seed=1)
    b[index] = 0
    full = torch.broadcast_shapes(*shapes)
    met = (b.expand(full) == 0).sum().item()
    y = safeops.div(a, b.requires_grad_(), policy="zero")
    y.sum().backward()
    for record in diagnostics.snapshot().records:
        assert (record.count, record.first_row) == (met, element)
    with pytest.raises(safeops.SingularityError) as raised:
        safeops.div(a, b, policy="raise")
    assert (raised.value.count, raised.value.first_row) == (met, element)
    assert raised.value.shape == tuple(full)


def test_numbers_of_a_large_tensor() -> None:
    x = torch.ones(1000, 1000)
    x[777, 555] = 0
    x[999, 999] = 0
    safeops.reciprocal(x.t(), policy="zero")
    (record,) = diagnostics.snapshot().records
    assert (record.count, record.first_row) == (2, 555777)
