"""`out=`: torch's rules of dtype, shape, aliasing and gradients; nothing written on an error."""

from __future__ import annotations

import warnings

import pytest
import torch

import safeops
from samples import NOT_RAISING, REAL, assert_same_bits, count, identifier
from softmax_samples import INF, LOGITS, NAMES, call, logits, stock

pytestmark = pytest.mark.usefixtures("every_device")


def empty_row() -> torch.Tensor:
    return torch.tensor([[3.0, 4, 0], [-INF, -INF, -INF], [1, 2, 2]])


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_out_holds_what_the_call_without_out_returns(
    name: str, dtype: torch.dtype, policy: str
) -> None:
    x = logits(dtype, (8, 37))
    x[2] = -INF
    expected = call(name, x, policy=policy)
    out = torch.full_like(expected, 7)
    assert call(name, x, policy=policy, out=out) is out
    assert_same_bits(out, expected)
    assert count("empty_row", "forward", name) == 2


@pytest.mark.parametrize("shape", [(0,), (0, 3)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_empty_out_is_resized_silently(name: str, shape: tuple[int, ...]) -> None:
    x, out = logits(torch.float32, (4, 3)), torch.empty(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(name, x, out=out)
    assert_same_bits(out, call(name, x))


@pytest.mark.parametrize("name", NAMES)
def test_an_out_of_another_shape_is_resized_with_torchs_warning(name: str) -> None:
    x = logits(torch.float32, (4, 3))
    for shape in ((5,), (2, 6), (5, 3)):
        out = torch.empty(shape)
        with pytest.warns(UserWarning, match="output with one or more elements was resized"):
            call(name, x, out=out)
        assert_same_bits(out, call(name, x))


@pytest.mark.parametrize("target", [torch.float64, torch.float16, torch.int64], ids=identifier)
@pytest.mark.parametrize("name", LOGITS)
def test_out_of_another_dtype_is_refused_as_in_torch(name: str, target: torch.dtype) -> None:
    x, out = torch.ones(2, 3), torch.ones(2, 3, dtype=target)
    with pytest.raises(RuntimeError):
        stock(name, x, out=out)
    with pytest.raises(RuntimeError, match=rf"{name}.*out"):
        call(name, x, out=out)
    assert (out == 1).all()


@pytest.mark.parametrize("name", LOGITS)
def test_out_has_the_dtype_that_is_asked_for(name: str) -> None:
    x = logits(torch.float16, (2, 3))
    out = torch.empty(2, 3, dtype=torch.float32)
    call(name, x, dtype=torch.float32, out=out)
    assert_same_bits(out, call(name, x, dtype=torch.float32))
    with pytest.raises(RuntimeError, match="out"):
        call(name, x, dtype=torch.float32, out=torch.empty(2, 3, dtype=torch.float16))


@pytest.mark.parametrize("target", [torch.float64, torch.float16, torch.bfloat16], ids=identifier)
def test_logsumexp_casts_to_out(target: torch.dtype) -> None:
    x = logits(torch.float32, (4, 3))
    out, want = torch.empty(4, dtype=target), torch.empty(4, dtype=target)
    safeops.logsumexp(x, 1, out=out)
    torch.logsumexp(x, 1, out=want)
    torch.testing.assert_close(out, want)


def test_logsumexp_into_integers_is_refused_as_in_torch() -> None:
    out = torch.ones(2, dtype=torch.int64)
    with pytest.raises(RuntimeError):
        torch.logsumexp(torch.ones(2, 3), 1, out=out)
    with pytest.raises(RuntimeError, match="logsumexp"):
        safeops.logsumexp(torch.ones(2, 3), 1, out=out)
    assert (out == 1).all()


def strided_outs() -> dict[str, torch.Tensor]:
    return {
        "transposed": torch.full((3, 4), 7.0).t(),
        "every second row": torch.full((8, 3), 7.0)[::2],
        "every second column": torch.full((4, 6), 7.0)[:, ::2],
    }


@pytest.mark.parametrize("layout", strided_outs())
@pytest.mark.parametrize("name", LOGITS)
def test_out_may_be_strided(name: str, layout: str) -> None:
    x, out = logits(torch.float32, (4, 3)), strided_outs()[layout]
    strides = out.stride()
    call(name, x, out=out)
    assert out.stride() == strides
    torch.testing.assert_close(out, call(name, x))


def test_a_strided_out_of_logsumexp_leaves_its_gaps_alone() -> None:
    x, storage = logits(torch.float32, (4, 3)), torch.full((9,), 7.0)
    safeops.logsumexp(x, 1, out=storage[1::2])
    assert_same_bits(storage[1::2].contiguous(), safeops.logsumexp(x, 1))
    assert (storage[::2] == 7).all()


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", LOGITS)
def test_out_may_be_the_input(name: str, dtype: torch.dtype, dim: int, masked: bool) -> None:
    x = logits(dtype, (5, 18, 3))
    where = torch.arange(18 * 3).view(18, 3) % 5 != 2 if masked else None
    expected = call(name, x, dim, where=where, policy="zero")
    call(name, x, dim, where=where, policy="zero", out=x)
    assert_same_bits(x, expected)


@pytest.mark.parametrize("name", NAMES)
def test_out_that_overlaps_itself_is_refused(name: str) -> None:
    shape = (2, 3) if name != "logsumexp" else (2,)
    with pytest.raises(RuntimeError, match=f"{name}.*out|unsupported operation"):
        call(name, torch.randn(2, 3), out=torch.empty(1).expand(shape))


@pytest.mark.parametrize("name", LOGITS)
def test_out_that_overlaps_a_part_of_the_input_is_refused(name: str) -> None:
    storage = torch.randn(8)
    before = storage.clone()
    with pytest.raises(RuntimeError, match=f"{name}.*out|unsupported operation"):
        call(name, storage[:6].view(2, 3), out=storage[1:7].view(2, 3))
    assert_same_bits(storage, before)


def test_logsumexp_may_write_over_its_input_as_in_torch() -> None:
    for function in (torch.logsumexp, safeops.logsumexp):
        storage = torch.arange(6.0)
        expected = torch.logsumexp(storage.view(2, 3), 1)
        function(storage.view(2, 3), 1, out=storage[1:3])
        torch.testing.assert_close(storage[1:3], expected)


@pytest.mark.parametrize("name", NAMES)
def test_out_bumps_the_version_counter(name: str) -> None:
    out = call(name, torch.randn(2, 3))
    weight = torch.randn(out.shape, requires_grad=True)
    version = out._version
    product = weight * out
    call(name, torch.randn(2, 3), out=out)
    assert out._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("which", ["input", "out"])
@pytest.mark.parametrize("name", NAMES)
def test_out_refuses_gradients(name: str, which: str) -> None:
    x = torch.ones(2, 3, requires_grad=which == "input")
    out = torch.ones_like(call(name, x.detach())).requires_grad_(which == "out")
    with pytest.raises(RuntimeError, match=f"{name}.*out="):
        call(name, x, out=out)
    assert (out == 1).all()
    with torch.no_grad():
        call(name, x, out=out)
    torch.testing.assert_close(out.detach(), stock(name, torch.ones(2, 3)))


@pytest.mark.parametrize("name", NAMES)
def test_out_inside_inference_mode(name: str) -> None:
    with torch.inference_mode():
        x = torch.randn(2, 3)
        out = call(name, x, out=torch.empty(0))
    assert out.is_inference()
    torch.testing.assert_close(out.clone(), stock(name, x.clone()))


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in NAMES for kind in ("plain", "strided", "empty")]
    + [(name, "input") for name in LOGITS],
)
def test_raise_leaves_out_untouched(name: str, kind: str, masked: bool) -> None:
    x = empty_row()
    where = None
    if masked:
        x, where = torch.ones(3, 3), torch.tensor([[True], [False], [True]])
    result = (3,) if name == "logsumexp" else (3, 3)
    out = {
        "plain": torch.full(result, 7.0),
        "strided": torch.full((*result, 2), 7.0)[..., 1],
        "empty": torch.empty(0),
        "input": x,
    }[kind]
    before, version = out.clone(), out._version
    with pytest.raises(safeops.SingularityError, match="met 1 singular row of 3"):
        call(name, x, where=where, policy="raise", out=out)
    assert_same_bits(out, before)
    assert out._version == version
    assert count("empty_row", "forward", name) == 1


@pytest.mark.parametrize("name", LOGITS)
def test_raise_in_place_on_a_large_tensor_leaves_it_untouched(name: str) -> None:
    x = torch.randn(3000, 257)
    x[2999] = -INF
    before = x.clone()
    with pytest.raises(safeops.SingularityError, match="first at row 2999"):
        call(name, x, policy="raise", out=x)
    assert_same_bits(x, before)


@pytest.mark.parametrize(
    "arguments", [{"dim": 2}, {"policy": "none"}, {"where": torch.ones(2, dtype=torch.bool)}]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_refused_call_leaves_out_untouched(name: str, arguments: dict[str, object]) -> None:
    for out in (torch.full((3, 3), 7.0), torch.empty(0)):
        before = out.clone()
        with pytest.raises((ValueError, IndexError, RuntimeError)):
            call(name, empty_row(), out=out, **arguments)
        assert_same_bits(out, before)
