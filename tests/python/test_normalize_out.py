"""`out=`: torch's rules of dtype, shape, aliasing and gradients; nothing written on an error."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

import safeops
from samples import (
    DTYPES,
    NOT_RAISING,
    assert_same_bits,
    count,
    identifier,
    random_like,
    skip_without_norm,
)

pytestmark = pytest.mark.usefixtures("every_device")


def zero_row() -> torch.Tensor:
    return torch.tensor([[3.0, 4, 0], [0, 0, 0], [1, 2, 2]])


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_out_holds_what_the_call_without_out_returns(dtype: torch.dtype, policy: str) -> None:
    x = random_like(torch.empty(8, 37, dtype=dtype))
    x[2] = 0
    expected = safeops.normalize(x, policy=policy)
    out = torch.full_like(x, 7)
    assert safeops.normalize(x, policy=policy, out=out) is out
    assert_same_bits(out, expected)
    assert count("zero_norm") == 2


def test_out_is_also_positional_as_in_torch() -> None:
    x, out = torch.randn(2, 3), torch.empty(2, 3)
    assert safeops.normalize(x, 2.0, 1, 1e-12, out) is out
    torch.testing.assert_close(out, F.normalize(x))


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_an_empty_out_is_resized_silently(shape: tuple[int, ...]) -> None:
    x, out = torch.randn(4, 3), torch.empty(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safeops.normalize(x, out=out)
    assert_same_bits(out, safeops.normalize(x))


@pytest.mark.parametrize("shape", [(5,), (4, 2), (2, 6), (5, 3)])
def test_an_out_of_another_shape_is_treated_as_torch_treats_it(shape: tuple[int, ...]) -> None:
    x = torch.randn(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = F.normalize(x, out=torch.empty(shape))
        out = safeops.normalize(x, out=torch.empty(shape))
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected)


def test_an_out_of_another_shape_warns_as_torch_warns() -> None:
    with pytest.warns(UserWarning, match="output with one or more elements was resized"):
        safeops.normalize(torch.randn(4, 3), out=torch.empty(5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_out_of_a_wider_or_narrower_kind_is_cast_to(dtype: torch.dtype) -> None:
    x = torch.randn(4, 3)
    out = torch.empty(4, 3, dtype=dtype)
    safeops.normalize(x, out=out)
    torch.testing.assert_close(out, F.normalize(x, out=torch.empty(4, 3, dtype=dtype)))


@pytest.mark.parametrize(
    ("source", "target"),
    [(torch.float32, torch.int64), (torch.float32, torch.bool), (torch.complex64, torch.float32)],
    ids=identifier,
)
def test_out_of_a_kind_that_cannot_hold_the_result_is_refused(
    source: torch.dtype, target: torch.dtype
) -> None:
    out = torch.ones(2, 3, dtype=target)
    with pytest.raises(RuntimeError, match=r"(?s)normalize.*out"):
        safeops.normalize(torch.ones(2, 3, dtype=source), out=out)
    assert (out == 1).all()


def strided_outs() -> dict[str, torch.Tensor]:
    return {
        "transposed": torch.full((3, 4), 7.0).t(),
        "every second row": torch.full((8, 3), 7.0)[::2],
        "every second column": torch.full((4, 6), 7.0)[:, ::2],
        "inner dims swapped": torch.full((3, 2, 4), 7.0)[:, 1].t(),
    }


@pytest.mark.parametrize("name", strided_outs())
def test_out_may_be_strided(name: str) -> None:
    x, out = torch.randn(4, 3), strided_outs()[name]
    strides = out.stride()
    safeops.normalize(x, out=out)
    assert out.stride() == strides
    assert_same_bits(out, safeops.normalize(x))


def test_a_strided_out_leaves_its_gaps_alone() -> None:
    storage = torch.full((4, 9), 7.0)
    x = torch.randn(4, 3)
    safeops.normalize(x, out=storage[:, 1::3])
    assert_same_bits(storage[:, 1::3].contiguous(), safeops.normalize(x))
    assert (storage[:, 0::3] == 7).all() and (storage[:, 2::3] == 7).all()


@pytest.mark.parametrize("dim", [0, 1, (0, 2), (1, 2)])
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_out_may_be_the_input(dtype: torch.dtype, dim: int | tuple[int, ...]) -> None:
    x = random_like(torch.empty(5, 18, 3, dtype=dtype))
    expected = safeops.normalize(x, dim=dim)
    safeops.normalize(x, dim=dim, out=x)
    torch.testing.assert_close(x, expected, rtol=0, atol=0)


def test_out_that_overlaps_itself_or_part_of_the_input_is_refused() -> None:
    x = torch.randn(2, 3)
    with pytest.raises(RuntimeError, match="normalize.*out|unsupported operation"):
        safeops.normalize(x, out=torch.empty(2, 1).expand(2, 3))
    storage = torch.randn(8)
    before = storage.clone()
    with pytest.raises(RuntimeError, match="normalize.*out|unsupported operation"):
        safeops.normalize(storage[:6].view(2, 3), out=storage[1:7].view(2, 3))
    assert_same_bits(storage, before)


def test_out_bumps_the_version_counter() -> None:
    weight = torch.randn(2, 3, requires_grad=True)
    out = torch.randn(2, 3)
    version = out._version
    product = weight * out
    safeops.normalize(torch.randn(2, 3), out=out)
    assert out._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("which", ["input", "out", "both"])
def test_out_refuses_gradients(which: str) -> None:
    x = torch.ones(2, 3, requires_grad=which != "out")
    out = torch.ones(2, 3, requires_grad=which != "input")
    with pytest.raises(RuntimeError, match="normalize.*out="):
        safeops.normalize(x, out=out)
    assert (out == 1).all()
    with torch.no_grad():
        safeops.normalize(x, out=out)
    torch.testing.assert_close(out.detach(), torch.full((2, 3), 3**-0.5))


def test_out_inside_inference_mode() -> None:
    with torch.inference_mode():
        x = torch.randn(2, 3)
        out = safeops.normalize(x, out=torch.empty(2, 3))
    assert out.is_inference()
    torch.testing.assert_close(out.clone(), F.normalize(x.clone()))


def outs() -> dict[str, torch.Tensor]:
    return {
        "plain": torch.full((3, 3), 7.0),
        "transposed": torch.full((3, 3), 7.0).t(),
        "wider": torch.full((3, 3), 7.0, dtype=torch.float64),
        "narrower": torch.full((3, 3), 7.0, dtype=torch.float16),
        "empty": torch.empty(0),
        "input": zero_row(),
    }


@pytest.mark.parametrize("name", outs())
def test_raise_leaves_out_untouched(name: str) -> None:
    out = outs()[name]
    before, version = out.clone(), out._version
    with pytest.raises(safeops.SingularityError, match="met 1 singular row of 3"):
        safeops.normalize(out if name == "input" else zero_row(), policy="raise", out=out)
    assert_same_bits(out, before)
    assert out._version == version
    assert count("zero_norm") == 1


@pytest.mark.parametrize("p", [1.0, 3.0, float("inf")])
def test_raise_leaves_out_untouched_for_other_orders(p: float) -> None:
    skip_without_norm(p)
    out = torch.full((3, 3), 7.0)
    with pytest.raises(safeops.SingularityError):
        safeops.normalize(zero_row(), p=p, policy="raise", out=out)
    assert (out == 7).all()


def test_raise_in_place_on_a_large_tensor_leaves_it_untouched() -> None:
    x = torch.randn(3000, 257)
    x[2999] = 0
    before = x.clone()
    with pytest.raises(safeops.SingularityError, match="first at row 2999"):
        safeops.normalize(x, policy="raise", out=x)
    assert_same_bits(x, before)


@pytest.mark.parametrize(
    "arguments", [{"dim": 2}, {"eps": -1.0}, {"policy": "none"}, {"p": float("nan")}]
)
def test_a_refused_call_leaves_out_untouched(arguments: dict[str, object]) -> None:
    for out in (torch.full((3, 3), 7.0), torch.empty(0)):
        before = out.clone()
        with pytest.raises((ValueError, IndexError)):
            safeops.normalize(zero_row(), out=out, **arguments)
        assert_same_bits(out, before)
