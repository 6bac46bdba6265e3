"""Shapes, strides and memory formats: laid out as in torch, the same numbers everywhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import safeops
from reference import forward_bound, normalize, ulps, widen
from samples import (
    DTYPES,
    LAYOUTS,
    REAL,
    assert_same_bits,
    count,
    identifier,
    random_like,
    value_and_gradient,
)

pytestmark = pytest.mark.usefixtures("every_device")

Dim = int | tuple[int, ...]


def views() -> dict[str, torch.Tensor]:
    """One tensor per kind of memory layout, with distinct positive numbers."""
    base = torch.arange(1.0, 2 * 3 * 4 * 5 + 1).view(2, 3, 4, 5)
    volume = torch.arange(1.0, 2 * 3 * 2 * 3 * 2 + 1).view(2, 3, 2, 3, 2)
    return {
        "contiguous": base,
        "channels_last": base.contiguous(memory_format=torch.channels_last),
        "channels_last_3d": volume.contiguous(memory_format=torch.channels_last_3d),
        "permuted": base.permute(3, 1, 0, 2),
        "transposed": base.transpose(1, 3),
        "strided": base[:, :, ::2, 1::2],
        "expanded": base[:, :1, :, :1].expand(2, 3, 4, 5),
        "expanded_new_dim": base[0, 0].expand(3, 2, 4, 5),
        "one_row": base[:1, :, :1],
        "flipped_storage": base.as_strided((2, 3, 4, 5), (1, 40, 10, 2)),
        "overlapping_window": torch.arange(1.0, 31.0).unfold(0, 5, 2).unsqueeze(0),
        "one_padded_row": torch.arange(1.0, 8.0).as_strided((1, 3), (7, 1)),
        "one_element": torch.tensor([[-3.0]]).as_strided((1, 1), (5, 7)),
        "vector": base.flatten(),
        "strided_vector": base.flatten()[::3],
        "matrix": base.view(6, 20),
        "scalar": torch.tensor(-3.0),
        "no_rows": torch.empty(0, 3),
        "no_columns": torch.empty(3, 0),
        "empty_middle": torch.empty(2, 0, 3),
    }


def dims_of(tensor: torch.Tensor) -> list[Dim]:
    rank = max(tensor.dim(), 1)
    dims: list[Dim] = [*range(-1, rank)]
    return dims + list(itertools.combinations(range(rank), 2)) + [tuple(range(rank))]


@pytest.mark.parametrize("name", views())
def test_output_strides_are_torchs(name: str) -> None:
    tensor = views()[name]
    for dim in dims_of(tensor):
        expected = F.normalize(tensor, dim=dim)
        y = safeops.normalize(tensor, dim=dim, policy="stock")
        assert y.shape == expected.shape and y.dtype is expected.dtype, dim
        assert y.stride() == expected.stride(), dim
        assert y.storage_offset() == expected.storage_offset(), dim
        torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("name", views())
def test_meta_agrees_with_cpu(name: str) -> None:
    tensor = views()[name]
    for dim in dims_of(tensor):
        y = safeops.normalize(tensor, dim=dim, policy="stock")
        meta = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
        shadow = safeops.normalize(meta, dim=dim, policy="stock")
        assert (shadow.shape, shadow.stride(), shadow.dtype) == (y.shape, y.stride(), y.dtype), dim


@pytest.mark.parametrize("name", views())
def test_gradients_do_not_depend_on_the_layout(name: str) -> None:
    tensor = views()[name]
    g = random_like(tensor)
    for dim in dims_of(tensor):
        _, grad = value_and_gradient(tensor, g, "zero", dim=dim)
        leaf = tensor.detach().requires_grad_()
        (expected,) = torch.autograd.grad(F.normalize(leaf, dim=dim), leaf, g)
        assert grad.shape == tensor.shape
        torch.testing.assert_close(grad, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_values_within_bounds_and_the_same_zero_hits_in_every_layout(
    dtype: torch.dtype, layout: str
) -> None:
    for shape in ((40, 3), (40, 17), (40, 33), (9, 300)):
        contiguous = random_like(torch.empty(shape, dtype=dtype))
        contiguous[::5] = 0
        y = safeops.normalize(LAYOUTS[layout](contiguous), policy="zero")
        error = ulps(y, normalize(widen(contiguous), 2.0, 1, 0.0, "zero"))
        assert error.max() <= forward_bound(dtype, 2.0, shape[1])
        assert (y[::5] == 0).all()
    assert count("zero_norm") == 8 + 8 + 8 + 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
def test_the_incoming_gradient_may_have_any_layout(dtype: torch.dtype, layout: str) -> None:
    x = random_like(torch.empty(30, 19, dtype=dtype))
    g = random_like(x, seed=2)
    _, expected = value_and_gradient(x, g, "zero")
    _, grad = value_and_gradient(x, LAYOUTS[layout](g), "zero")
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_an_expanded_gradient_is_read_as_its_elements(dtype: torch.dtype) -> None:
    x = random_like(torch.empty(6, 5, dtype=dtype))
    ones = torch.ones((), dtype=dtype)
    _, dense = value_and_gradient(x, torch.ones_like(x), "zero")
    _, expanded = value_and_gradient(x, ones.expand(6, 5), "zero")
    assert_same_bits(expanded, dense)
    leaf = x.clone().requires_grad_()
    (summed,) = torch.autograd.grad(safeops.normalize(leaf, policy="zero").sum().abs(), leaf)
    assert summed.shape == x.shape


def test_negative_and_positive_dims_are_the_same() -> None:
    x = torch.randn(2, 3, 4)
    for dim in range(3):
        assert_same_bits(safeops.normalize(x, dim=dim), safeops.normalize(x, dim=dim - 3))
    assert_same_bits(safeops.normalize(x, dim=(0, -1)), safeops.normalize(x, dim=(-3, 2)))


def test_a_scalar_is_a_row_of_one() -> None:
    for value, expected in ((-3.0, -1.0), (1e-30, 1.0), (0.0, 0.0)):
        x = torch.tensor(value, requires_grad=True)
        y = safeops.normalize(x, dim=0, policy="zero")
        y.backward()
        assert y.shape == () and y.item() == expected and x.grad.item() == 0
    assert count("zero_norm") == 1


def test_no_dim_means_all_dims_as_in_torch() -> None:
    x = torch.randn(2, 3)
    torch.testing.assert_close(safeops.normalize(x, dim=()), F.normalize(x, dim=()))


def test_lists_and_sizes_are_dims_too() -> None:
    x = torch.randn(2, 3, 4)
    expected = safeops.normalize(x, dim=(1, 2))
    assert_same_bits(safeops.normalize(x, dim=[1, 2]), expected)
    assert_same_bits(safeops.normalize(x, 2.0, (1, 2)), expected)


@pytest.mark.parametrize("rank", [1, 5, 6, 8])
def test_many_dims(rank: int) -> None:
    x = torch.randn([2] * rank, dtype=torch.float64).permute(*reversed(range(rank)))
    for dim in (0, rank // 2, rank - 1, tuple(range(0, rank, 2))):
        y = safeops.normalize(x, dim=dim, policy="zero")
        torch.testing.assert_close(y, F.normalize(x, dim=dim))
        assert y.stride() == F.normalize(x, dim=dim).stride()


def test_numpy_memory_is_read_in_place() -> None:
    array = np.asfortranarray(np.arange(1.0, 13).reshape(3, 4))
    y = safeops.normalize(torch.from_numpy(array), policy="zero")
    np.testing.assert_allclose(
        y.numpy(), array / np.linalg.norm(array, axis=1, keepdims=True), rtol=1e-15
    )
