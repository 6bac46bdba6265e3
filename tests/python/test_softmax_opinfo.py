"""torch's operator database as an oracle: values, dtype, shape and strides under `stock`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import safeops
import softmax_reference as reference
from reference import widen
from samples import REAL, identifier
from softmax_samples import NAMES

PLAIN = {
    "softmax": "softmax",
    "softmax.with_dtype": "softmax",
    "log_softmax": "log_softmax",
    "log_softmax.with_dtype": "log_softmax",
    "nn.functional.softmin": "softmin",
    "nn.functional.softmin.with_dtype": "softmin",
    "logsumexp": "logsumexp",
}
MASKED = {
    "masked.softmax": "softmax",
    "masked.log_softmax": "log_softmax",
    "masked.logsumexp": "logsumexp",
}
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)


def op_info(name: str) -> Any:
    # Importing the database costs seconds: only the tests that read it pay.
    from torch.testing._internal.common_methods_invocations import op_db

    (info,) = [op for op in op_db if op.full_name == name]
    return info


def samples_of(info: Any, dtype: torch.dtype) -> Iterator[Any]:
    for make in (info.sample_inputs, info.reference_inputs):
        for sample in make("cpu", dtype):
            yield sample
            yield sample.noncontiguous()


def assert_agrees(y: torch.Tensor, expected: torch.Tensor) -> None:
    """Form and positions of NaN and infinity exactly, other values within torch's own error."""
    y, expected = y.detach(), expected.detach()
    assert y.dtype is expected.dtype and y.shape == expected.shape
    assert y.stride() == expected.stride()
    epsilon = torch.finfo(y.real.dtype).eps
    # torch accumulates in float32 where we do not.
    torch.testing.assert_close(y, expected, rtol=8 * epsilon, atol=8 * epsilon, equal_nan=True)


def assert_accurate(
    name: str, y: torch.Tensor, x: torch.Tensor, dim: Any, where: torch.Tensor | None = None
) -> None:
    axes = () if x.dim() == 0 else dim if isinstance(dim, int) else tuple(dim)
    want = reference.value(name, widen(x), axes, "stock", where)
    if name == "logsumexp":
        want = want.reshape(tuple(y.shape))
    assert reference.value_errors(name, y.detach(), want).max(initial=0) <= 1


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("full_name", PLAIN)
def test_values(full_name: str, dtype: torch.dtype) -> None:
    name, info, cases = PLAIN[full_name], op_info(full_name), 0
    for sample in samples_of(info, dtype):
        x, arguments, keywords = sample.input, sample.args, sample.kwargs
        y = getattr(safeops, name)(x, *arguments, policy="stock", **keywords)
        assert_agrees(y, info(x, *arguments, **keywords))
        if y.dtype is dtype and name != "softmin":
            dim = arguments[0] if arguments else keywords["dim"]
            assert_accurate(name, y, x, dim)
        cases += 1
    print(f"{full_name}: {cases} samples")
    assert cases >= 12


def gradient_agrees(
    name: str,
    x: torch.Tensor,
    dim: Any,
    y: torch.Tensor,
    expected: torch.Tensor,
    where: torch.Tensor | None = None,
) -> None:
    """The gradient is within its bounds, and near torch's, which is coarse in a half type."""
    g = torch.testing.make_tensor(y.shape, dtype=y.dtype, device="cpu")
    if where is not None and name != "logsumexp":
        # torch lets what arrives at a masked element of log_softmax through to the others.
        g = torch.where(where, g, torch.zeros_like(g))
    (grad,) = torch.autograd.grad(y, x, g)
    (want,) = torch.autograd.grad(expected, x, g)
    assert grad.dtype is x.dtype and grad.shape == x.shape and grad.stride() == want.stride()
    epsilon = max(torch.finfo(y.dtype).eps, torch.finfo(x.dtype).eps)
    # torch's logsumexp takes the exponential of a difference from a rounded y.
    largest = y.detach().nan_to_num(posinf=0, neginf=0).abs().max().item() if y.numel() else 0.0
    relative = 16 * epsilon * (1 + largest if name == "logsumexp" else 1)
    regular = ~grad.isnan()
    torch.testing.assert_close(
        grad[regular], want[regular], rtol=relative, atol=2 * epsilon * (1 + g.abs().sum().item())
    )
    if where is None:
        assert torch.equal(~regular, want.isnan())
    else:
        # torch's gradient is 0 where all is masked: its mask is a selection before the operator.
        part = where.expand(x.shape)
        empty = ~part.any(dim, keepdim=True) if x.dim() and x.numel() else ~part
        assert (grad[~part] == 0).all()
        assert torch.equal(~regular, want.isnan() | (part & empty))


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("full_name", PLAIN)
def test_gradients(full_name: str, dtype: torch.dtype) -> None:
    name, info, cases = PLAIN[full_name], op_info(full_name), 0
    for sample in samples_of(info, dtype):
        x, arguments, keywords = sample.input.requires_grad_(), sample.args, sample.kwargs
        y = getattr(safeops, name)(x, *arguments, policy="stock", **keywords)
        dim = arguments[0] if arguments else keywords["dim"]
        gradient_agrees(name, x, dim, y, info(x, *arguments, **keywords))
        cases += 1
    print(f"{full_name}: {cases} samples")
    assert cases >= 12


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("full_name", MASKED)
def test_masked_samples(full_name: str, dtype: torch.dtype) -> None:
    name, info, cases, masked, empty = MASKED[full_name], op_info(full_name), 0, 0, 0
    for sample in samples_of(info, dtype):
        x, keywords = sample.input.requires_grad_(), dict(sample.kwargs)
        dim = sample.args[0] if sample.args else keywords.pop("dim", None)
        assert len(sample.args) <= 1
        mask = keywords.pop("mask", None)
        dims = tuple(range(x.dim())) if dim in (None, ()) else dim
        y = getattr(safeops, name)(x, dims, where=mask, policy="stock", **keywords)
        expected = info(x, dim, mask=mask, **keywords)
        assert_agrees(y, expected)
        if y.dtype is dtype:
            assert_accurate(name, y, x, dims, mask)
        gradient_agrees(name, x, dims, y, expected, mask)
        masked += mask is not None
        empty += safeops.diagnostics.snapshot().total(name, "empty_row", "forward")
        safeops.diagnostics.reset()
        cases += 1
    print(f"{full_name}: {cases} samples, {masked} of them masked, {empty} empty rows")
    assert cases >= 12 and masked > 0 and empty > 0


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.complex64, torch.complex128], ids=identifier)
def test_logsumexp_of_integers_and_complex_numbers(dtype: torch.dtype) -> None:
    info, cases = op_info("logsumexp"), 0
    if dtype not in info.supported_dtypes("cpu"):
        pytest.fail(f"torch has no samples of logsumexp for {dtype}")
    for sample in samples_of(info, dtype):
        y = safeops.logsumexp(sample.input, *sample.args, policy="stock", **sample.kwargs)
        assert_agrees(y, info(sample.input, *sample.args, **sample.kwargs))
        cases += 1
    assert cases >= 12


@pytest.mark.parametrize("dtype", INTEGERS, ids=identifier)
@pytest.mark.parametrize("full_name", ["softmax.with_dtype", "log_softmax.with_dtype"])
def test_integers_with_a_dtype(full_name: str, dtype: torch.dtype) -> None:
    name, info, cases = PLAIN[full_name], op_info(full_name), 0
    for sample in samples_of(info, dtype):
        y = getattr(safeops, name)(sample.input, *sample.args, policy="stock", **sample.kwargs)
        assert_agrees(y, info(sample.input, *sample.args, **sample.kwargs))
        cases += 1
    assert cases >= 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_out(name: str, dtype: torch.dtype) -> None:
    cases = 0
    for sample in samples_of(op_info(name), dtype):
        out, want = torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype)
        getattr(safeops, name)(sample.input, *sample.args, policy="stock", out=out, **sample.kwargs)
        getattr(torch, name)(sample.input, *sample.args, out=want, **sample.kwargs)
        assert_agrees(out, want)
        cases += 1
    assert cases >= 12


def test_signatures_are_torchs_with_more_behind() -> None:
    for name in (*NAMES, "softmin"):
        parameters = inspect.signature(getattr(safeops, name)).parameters
        positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        last = "keepdim" if name == "logsumexp" else "dtype"
        assert [p.name for p in positional] == ["input", "dim", last]
        assert positional[1].default is inspect.Parameter.empty
