"""`out=`: torch's rules of dtype, shape, aliasing and gradients; nothing written on an error."""

from __future__ import annotations

import warnings

import pytest
import torch

import safeops
from division_samples import NAMES, UNARY, call, numbers, operands, stock
from samples import NOT_RAISING, REAL, assert_same_bits, count, identifier, skip_on_cuda

pytestmark = pytest.mark.usefixtures("every_device")

# With a number as the divisor, too.
FORMS = (*NAMES, "div by 0", "div by 3", "true_divide")


def arguments_of(form: str, dtype: torch.dtype = torch.float32) -> tuple[str, tuple[object, ...]]:
    """The operator's name and operands; the first element is singular, but for div by 0 and 3."""
    if form == "true_divide":
        return form, operands("div", dtype)
    if form in NAMES:
        return form, operands(form, dtype)
    return "div", (numbers(dtype, (4, 6)), int(form[-1]))


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("form", FORMS)
def test_out_holds_what_the_call_without_out_returns(
    form: str, dtype: torch.dtype, policy: str
) -> None:
    name, arguments = arguments_of(form, dtype)
    expected = call(name, *arguments, policy=policy)
    out = torch.full_like(expected, 7)
    assert call(name, *arguments, policy=policy, out=out) is out
    assert_same_bits(out, expected)
    hits = {"div by 3": 0, "div by 0": 48, "sqrt": 2 * (policy == "epsilon")}.get(form, 2)
    assert count(None, "forward", "div" if form == "true_divide" else name) == hits


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_out_with_a_rounding_mode(mode: str) -> None:
    a, b = operands("div", torch.float32)
    out = torch.empty(0)
    safeops.div(a, b, rounding_mode=mode, policy="zero", out=out)
    assert_same_bits(out, safeops.div(a, b, rounding_mode=mode, policy="zero"))
    skip_on_cuda(True, "integers")
    whole = torch.empty(0, dtype=torch.int64)
    safeops.div(torch.tensor([7, -7]), 2, rounding_mode=mode, out=whole)
    assert whole.tolist() == [3, -3 if mode == "trunc" else -4]


@pytest.mark.parametrize("shape", [(0,), (0, 3)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_an_empty_out_is_resized_silently(form: str, shape: tuple[int, ...]) -> None:
    name, arguments = arguments_of(form)
    out = torch.empty(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(name, *arguments, policy="zero", out=out)
    assert_same_bits(out, call(name, *arguments, policy="zero"))


@pytest.mark.parametrize("form", FORMS)
def test_an_out_of_another_shape_is_resized_with_torchs_warning(form: str) -> None:
    name, arguments = arguments_of(form)
    out = torch.empty(5)
    with pytest.warns(UserWarning, match="output with one or more elements was resized"):
        call(name, *arguments, policy="zero", out=out)
    assert_same_bits(out, call(name, *arguments, policy="zero"))


@pytest.mark.parametrize(
    "target", [torch.float64, torch.float16, torch.complex64, torch.int64], ids=identifier
)
@pytest.mark.parametrize("source", [torch.float32, torch.int64, torch.complex64], ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_out_of_another_dtype_as_in_torch(
    name: str, source: torch.dtype, target: torch.dtype
) -> None:
    skip_on_cuda(source.is_complex, "complex numbers")
    x = numbers(torch.float32, (3,), 1.0, 9.0).to(source)
    tensors = (x, x.flip(0)) if name == "div" else (x,)
    out, want = (torch.ones(3, dtype=target) for _ in range(2))
    try:
        stock(name, *tensors, out=want)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="can't be cast|cast"):
            call(name, *tensors, out=out)
        assert (out == 1).all()
    else:
        call(name, *tensors, out=out)
        torch.testing.assert_close(out, want)


def strided_outs() -> dict[str, torch.Tensor]:
    return {
        "transposed": torch.full((6, 4), 7.0).t(),
        "every second row": torch.full((8, 6), 7.0)[::2],
        "every second column": torch.full((4, 12), 7.0)[:, ::2],
    }


@pytest.mark.parametrize("layout", strided_outs())
@pytest.mark.parametrize("form", FORMS)
def test_out_may_be_strided(form: str, layout: str) -> None:
    name, arguments = arguments_of(form)
    out = strided_outs()[layout]
    strides = out.stride()
    call(name, *arguments, policy="zero", out=out)
    assert out.stride() == strides
    assert_same_bits(out, call(name, *arguments, policy="zero"))
    if out._base is not None and layout != "transposed":
        assert (out._base == 7).sum() == out.numel()


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("form", FORMS)
def test_out_may_be_an_operand(form: str, dtype: torch.dtype) -> None:
    name, arguments = arguments_of(form, dtype)
    expected = call(name, *arguments, policy="zero")
    for i, operand in enumerate(arguments):
        if isinstance(operand, torch.Tensor):
            copies = [t.clone() if isinstance(t, torch.Tensor) else t for t in arguments]
            call(name, *copies, policy="zero", out=copies[i])
            assert_same_bits(copies[i], expected)


@pytest.mark.parametrize("name", NAMES)
def test_out_that_overlaps_itself_or_a_part_of_an_operand_is_refused(name: str) -> None:
    x = numbers(torch.float32, (2, 3))
    storage = numbers(torch.float32, (8,))
    before = storage.clone()
    part = storage[:6].view(2, 3)
    for arguments, out in (((x, x), torch.empty(1).expand(2, 3)), ((part, x), storage[2:])):
        tensors = arguments if name == "div" else arguments[:1]
        out = out if out.dim() == 2 else out.view(2, 3)
        for function in (stock, call):
            with pytest.raises(RuntimeError, match="unsupported operation|out"):
                function(name, *tensors, out=out)
    assert_same_bits(storage, before)


@pytest.mark.parametrize("form", FORMS)
def test_out_bumps_the_version_counter(form: str) -> None:
    name, arguments = arguments_of(form)
    out = call(name, *arguments, policy="zero")
    weight = torch.randn(out.shape, requires_grad=True)
    version = out._version
    product = weight * out
    call(name, *arguments, policy="zero", out=out)
    assert out._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("which", ["input", "other", "out"])
@pytest.mark.parametrize("form", FORMS)
def test_out_refuses_gradients(form: str, which: str) -> None:
    name, arguments = arguments_of(form)
    out = torch.ones(4, 6)
    tensors = [t for t in arguments if isinstance(t, torch.Tensor)]
    chosen = {"input": tensors[0], "other": tensors[-1], "out": out}[which]
    chosen.requires_grad_()
    with pytest.raises(RuntimeError, match="out="):
        call(name, *arguments, policy="zero", out=out)
    assert (out == 1).all()
    with torch.no_grad():
        call(name, *arguments, policy="zero", out=out)
        assert_same_bits(out, call(name, *arguments, policy="zero"))


@pytest.mark.parametrize("form", FORMS)
def test_out_inside_inference_mode(form: str) -> None:
    with torch.inference_mode():
        name, arguments = arguments_of(form)
        out = call(name, *arguments, policy="zero", out=torch.empty(0))
    assert out.is_inference()
    assert_same_bits(out.clone(), call(name, *arguments, policy="zero"))


@pytest.mark.parametrize("kind", ["plain", "strided", "empty", "operand", "cast"])
@pytest.mark.parametrize("name", NAMES)
def test_raise_leaves_out_untouched(name: str, kind: str) -> None:
    tensors = operands(name, torch.float32)
    if name == "sqrt":
        tensors[0][0, 0] = -1
    out = {
        "plain": torch.full((4, 6), 7.0),
        "strided": torch.full((4, 6, 2), 7.0)[..., 1],
        "empty": torch.empty(0),
        "operand": tensors[-1],
        "cast": torch.full((4, 6), 7.0, dtype=torch.float16),
    }[kind]
    before, version = out.clone(), out._version
    with pytest.raises(safeops.SingularityError, match="met 1 singular element of 24"):
        call(name, *tensors, policy="raise", out=out)
    assert_same_bits(out, before)
    assert out._version == version
    assert count(None, "forward", name) == 1


@pytest.mark.parametrize("name", NAMES)
def test_raise_in_place_on_a_large_tensor_leaves_it_untouched(name: str) -> None:
    tensors = operands(name, torch.float32, (700, 257), zeros=0)
    tensors[-1][699, 256] = -1 if name == "sqrt" else 0
    before = tensors[-1].clone()
    with pytest.raises(safeops.SingularityError, match=f"first at element {700 * 257 - 1}\\)"):
        call(name, *tensors, policy="raise", out=tensors[-1])
    assert_same_bits(tensors[-1], before)


def test_raise_leaves_an_integer_out_untouched() -> None:
    skip_on_cuda(True, "integers")
    out = torch.tensor([7, 7])
    for policy, error in (("raise", safeops.SingularityError), ("stock", RuntimeError)):
        with pytest.raises(error):
            safeops.div(out, torch.tensor([1, 0]), rounding_mode="floor", policy=policy, out=out)
        assert out.tolist() == [7, 7]


@pytest.mark.parametrize("arguments", [{"policy": "none"}, {"eps": -1.0}])
@pytest.mark.parametrize("name", UNARY)
def test_a_refused_call_leaves_out_untouched(name: str, arguments: dict[str, object]) -> None:
    for out in (torch.full((4, 6), 7.0), torch.empty(0)):
        before = out.clone()
        with pytest.raises(ValueError, match=name):
            call(name, *operands(name, torch.float32), out=out, **arguments)
        assert_same_bits(out, before)
