"""Memory layouts of operands, results and gradients: strides and values are as torch's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import safeops
from division_numbers import assert_same_numbers
from division_samples import UNARY, numbers, values_and_gradients
from samples import (
    DTYPES,
    LAYOUTS,
    assert_same_bits,
    counts,
    identifier,
    significant_strides,
    skip_on_cuda,
)

pytestmark = pytest.mark.usefixtures("every_device")

NAMES = ("div", *UNARY)


def views() -> dict[str, torch.Tensor]:
    x = numbers(torch.float32, (4, 6, 5, 7), 0.2, 9.0)
    return {
        "contiguous": x,
        "channels_last": x.contiguous(memory_format=torch.channels_last),
        "permuted": x.permute(2, 0, 3, 1),
        "transposed": x[0, 0].t(),
        "sliced": x[:, 1::2, ::3],
        "narrow": x[..., 2:5],
        "expanded": x[:1, :, :1].expand(4, 6, 5, 7),
        "expanded_dense": x[0].expand(4, 6, 5, 7),
        "dense_but_permuted": x.permute(1, 3, 0, 2)[1],
        "offset": x.view(-1)[3:],
        "scalar": x[0, 0, 0, 0],
        "one": x[:1, 0, 0, 0],
        "empty": x[:, :, :0],
        "empty_strided": x.permute(3, 2, 1, 0)[:, 2:2],
        "ones": x[:1, :1, :1],
        "five_dims": x.view(2, 2, 6, 5, 7).permute(4, 0, 2, 1, 3),
        "overlapping": x.as_strided((5, 4), (1, 1)),
        "as_strided": x.as_strided((3, 4), (2, 11)),
        "vector": x[0, 0, 0],
        "gap": x[:, :, :, 3],
    }


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("view", views())
def test_strides_of_unary_operators(view: str, name: str) -> None:
    x = views()[view]
    want, y = getattr(torch, name)(x), getattr(safeops, name)(x, policy="zero")
    assert (y.shape, y.stride(), y.storage_offset()) == (want.shape, want.stride(), 0)
    torch.testing.assert_close(y, want)
    assert_same_bits(y, getattr(safeops, name)(x.contiguous(), policy="zero"))
    shadow = getattr(safeops, name)(x.to("meta"), policy="zero")
    assert shadow.shape == y.shape and shadow.dtype is y.dtype


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("view", views())
def test_gradients_of_unary_operators(view: str, name: str) -> None:
    x = views()[view]
    leaf, other = x.detach().requires_grad_(), x.detach().requires_grad_()
    y, want = getattr(safeops, name)(leaf, policy="zero"), getattr(torch, name)(other)
    expanded = torch.ones(()).expand(y.shape)
    reversed_dims = torch.ones(y.shape[::-1]).permute(tuple(reversed(range(y.dim()))))
    for g in (torch.ones_like(y), expanded, reversed_dims):
        (grad,) = torch.autograd.grad(y, leaf, g, retain_graph=True)
        (expected,) = torch.autograd.grad(want, other, g, retain_graph=True)
        assert grad.shape == x.shape
        if g is not expanded and x.numel():
            assert significant_strides(grad) == significant_strides(expected)
        torch.testing.assert_close(grad, expected)


PAIRS = list(itertools.combinations_with_replacement(views(), 2))


def compatible(a: torch.Tensor, b: torch.Tensor) -> bool:
    try:
        torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        return False
    return True


def test_strides_of_quotients_of_every_pair_of_views() -> None:
    pairs = 0
    for first, second in PAIRS:
        for one, two in {(first, second), (second, first)}:
            a, b = views()[one], views()[two]
            if not compatible(a, b):
                continue
            want, y = torch.div(a, b), safeops.div(a, b, policy="zero")
            assert (y.shape, y.stride()) == (want.shape, want.stride()), (one, two)
            assert_same_numbers(y, want)
            shadow = safeops.div(a.to("meta"), b.to("meta"), policy="zero")
            assert shadow.shape == y.shape
            pairs += 1
    assert pairs > 120


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_shapes_that_broadcast(dtype: torch.dtype) -> None:
    skip_on_cuda(dtype.is_complex, "complex quotients")
    shapes = [
        ((1_000, 3), (1_000, 1)),
        ((1_000, 3), (3,)),
        ((1_000, 1), (1, 3)),
        ((5, 1, 7), (6, 1)),
        ((2, 3, 4, 5), (3, 1, 5)),
        ((1,), (17, 1)),
        ((), (9,)),
        ((9,), ()),
        ((40_000,), (1,)),
        ((1, 1), (300, 200)),
        ((0, 3), (1, 3)),
        ((3, 1), (3, 0)),
    ]
    for first, second in shapes:
        a, b = numbers(dtype, first, -3.0, 3.0), numbers(dtype, second, seed=1)
        for one, two in ((a, b), (b + 1, a.abs().to(dtype) + 1)):
            want, y = torch.div(one, two), safeops.div(one, two, policy="zero")
            assert (y.shape, y.stride()) == (want.shape, want.stride())
            torch.testing.assert_close(y, want)
            whole = [t.expand(y.shape).contiguous() for t in (one, two)]
            # A divisor of one element is not rounded to the half type that it divides.
            if not (dtype.itemsize == 2 and two.numel() == 1):
                assert_same_bits(y, safeops.div(*whole, policy="zero"))


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_gradients_are_summed_to_the_shape_of_each_operand(dtype: torch.dtype) -> None:
    skip_on_cuda(dtype.is_complex, "complex quotients")
    for first, second in (((50, 3), (50, 1)), ((50, 3), (3,)), ((50, 1), (1, 3)), ((), (9,))):
        a, b = numbers(dtype, first, -3.0, 3.0), numbers(dtype, second, seed=1)
        g = numbers(dtype, torch.broadcast_shapes(first, second), -1.0, 1.0, seed=2)
        _, grads = values_and_gradients("div", (a, b), g, "zero")
        leaves = [t.clone().requires_grad_() for t in (a, b)]
        wants = torch.autograd.grad(torch.div(*leaves), leaves, g)
        for grad, want in zip(grads, wants, strict=True):
            assert grad.dtype is want.dtype and grad.stride() == want.stride()
            tolerance = 32 * torch.finfo(dtype).eps
            torch.testing.assert_close(grad, want, rtol=tolerance, atol=8 * tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_and_hits_in_every_layout(name: str, dtype: torch.dtype, layout: str) -> None:
    skip_on_cuda(dtype.is_complex, "complex numbers")
    for shape in ((40, 3), (17, 40), (9, 300)):
        x = numbers(dtype, shape, 0.2, 9.0)
        x[::5] = 0
        tensors = (numbers(dtype, shape, seed=1), x) if name == "div" else (x,)
        g = numbers(dtype, shape, -1.0, 1.0, seed=2)
        y, grads = values_and_gradients(name, tensors, g, "zero")
        hits = counts(name)
        moved = tuple(LAYOUTS[layout](t) for t in tensors)
        again, again_grads = values_and_gradients(name, moved, LAYOUTS[layout](g), "zero")
        assert counts(name) == hits and hits[1] == x[::5].numel()
        assert_same_bits(again, y)
        for grad, expected in zip(again_grads, grads, strict=True):
            assert_same_bits(grad, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_of_different_layouts(layout: str) -> None:
    a, b = numbers(torch.float32, (40, 33), -3.0, 3.0), numbers(torch.float32, (40, 33), seed=1)
    want = safeops.div(a, b)
    for one, two in ((LAYOUTS[layout](a), b), (a, LAYOUTS[layout](b))):
        y = safeops.div(one, two)
        assert_same_bits(y, want)
        assert y.stride() == torch.div(one, two).stride()
        out = LAYOUTS[layout](torch.zeros(40, 33))
        strides = out.stride()
        safeops.div(one, two, out=out)
        assert_same_bits(out, want)
        assert out.stride() == strides


@pytest.mark.parametrize("name", NAMES)
def test_in_place_on_views(name: str) -> None:
    for view, x in views().items():
        if "expanded" in view or view == "overlapping":
            continue
        x = x.clone(memory_format=torch.preserve_format)
        rest = (numbers(torch.float32, tuple(x.shape), seed=1),) if name == "div" else ()
        want = getattr(safeops, name)(x, *rest, policy="zero")
        strides = x.stride()
        getattr(safeops, f"{name}_")(x, *rest, policy="zero")
        assert x.stride() == strides
        assert_same_bits(x, want)


def test_numpy_memory_is_read_in_place() -> None:
    array = np.asfortranarray(np.arange(1.0, 13).reshape(3, 4))
    y = safeops.div(torch.from_numpy(array), torch.from_numpy(array[::-1].copy()))
    np.testing.assert_array_equal(y.numpy(), array / array[::-1])
