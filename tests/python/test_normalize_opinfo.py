"""torch's operator database as an oracle: values, dtype, shape and strides under `stock`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import safeops
from reference import default_eps, forward_bound, normalize, singular_rows, ulps, widen
from samples import DTYPES, identifier

WIDE = {dtype: torch.complex128 if dtype.is_complex else torch.float64 for dtype in DTYPES}


def op_info(name: str) -> Any:
    # Importing the database costs seconds: only the tests that read it pay.
    from torch.testing._internal.common_methods_invocations import op_db

    (info,) = [op for op in op_db if op.full_name == name]
    return info


def samples_of(info: Any, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Any]:
    yield from info.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    yield from info.reference_inputs("cpu", dtype, requires_grad=requires_grad)


def axes_of(x: torch.Tensor, dim: Any) -> int | tuple[int, ...]:
    if x.dim() == 0:
        return ()
    return dim if isinstance(dim, int) else tuple(dim)


def assert_agrees(x: torch.Tensor, p: float, dim: Any, eps: float, expected: torch.Tensor) -> int:
    """Form exactly as torch, value as the oracle; returns 1 if torch's own value was compared."""
    y = safeops.normalize(x, p, dim, eps, policy="stock").detach()
    expected = expected.detach()
    assert y.dtype is expected.dtype and y.shape == expected.shape
    assert y.stride() == expected.stride()
    wide, axes = widen(x), axes_of(x, dim)
    length = x.numel() // max(singular_rows(wide, p, axes, eps).size, 1)
    assert ulps(y, normalize(wide, p, axes, eps, "stock")).max(initial=0) <= forward_bound(
        x.dtype, p, length
    )
    if x.dtype in (torch.float16, torch.bfloat16) and singular_rows(wide, p, axes, eps).any():
        return (
            0  # torch holds eps in the half type, where 1e-12 is 0: the value it documents is lost
        )
    torch.testing.assert_close(y, expected, equal_nan=True)
    return 1


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_samples_of_normalize(dtype: torch.dtype) -> None:
    info, cases, compared = op_info("nn.functional.normalize"), 0, 0
    for sample in samples_of(info, dtype):
        for case in (sample, sample.noncontiguous()):
            arguments = {"p": 2.0, "dim": 1, "eps": 1e-12} | case.kwargs
            assert not case.args
            expected = F.normalize(case.input, **arguments)
            compared += assert_agrees(case.input, *arguments.values(), expected)
            cases += 1
    print(f"{cases} samples, {compared} of them against torch")
    assert cases >= 16 and compared == cases


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_gradients_on_samples_of_normalize(dtype: torch.dtype) -> None:
    cases = 0
    for sample in samples_of(op_info("nn.functional.normalize"), dtype, requires_grad=True):
        y = safeops.normalize(sample.input, policy="stock", **sample.kwargs)
        # torch's own gradient in a half type is too coarse to compare with.
        wide = sample.input.detach().to(WIDE[dtype]).requires_grad_()
        g = torch.testing.make_tensor(y.shape, dtype=dtype, device="cpu")
        (grad,) = torch.autograd.grad(y, sample.input, g)
        (want,) = torch.autograd.grad(F.normalize(wide, **sample.kwargs), wide, g.to(WIDE[dtype]))
        arguments = {"p": 2.0, "dim": 1, "eps": 1e-12} | sample.kwargs
        n = torch.linalg.vector_norm(wide, arguments["p"], arguments["dim"], keepdim=True)
        # The gradient is a difference of two terms of this size.
        scale = (g.abs() / n.clamp_min(arguments["eps"])).max().item() if g.numel() else 0.0
        tolerance = 8 * torch.finfo(dtype).eps
        assert grad.dtype is dtype
        torch.testing.assert_close(grad.to(want), want, rtol=tolerance, atol=tolerance * scale)
        cases += 1
    assert cases >= 8


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_plain_samples_of_masked_normalize(dtype: torch.dtype) -> None:
    info, cases, compared = op_info("masked.normalize"), 0, 0
    if dtype not in info.supported_dtypes("cpu"):
        pytest.skip(f"torch has no masked.normalize samples for {dtype}")
    for sample in samples_of(info, dtype):
        if sample.kwargs.get("mask") is not None or sample.kwargs.get("dtype") is not None:
            continue
        p, dim = sample.args
        for x in (sample.input, sample.noncontiguous().input):
            if x.numel() == 0 and p not in (0, 1, 2):
                continue  # torch refuses a norm without a neutral element over nothing
            expected = info(x, p, dim, **sample.kwargs)
            eps = sample.kwargs.get("eps", 1e-12)
            compared += assert_agrees(x, float(p), dim, eps, expected)
            cases += 1
    print(f"{cases} samples, {compared} of them against torch")
    assert cases > 0 and compared > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=identifier)
def test_out_on_samples_of_normalize(dtype: torch.dtype) -> None:
    cases = 0
    for sample in samples_of(op_info("nn.functional.normalize"), dtype):
        out = torch.empty(0, dtype=dtype)
        safeops.normalize(sample.input, out=out, policy="stock", **sample.kwargs)
        expected = F.normalize(sample.input, out=torch.empty(0, dtype=dtype), **sample.kwargs)
        torch.testing.assert_close(out, expected)
        assert out.stride() == expected.stride()
        cases += 1
    assert cases >= 8


def test_the_default_eps_is_the_one_torch_documents() -> None:
    import inspect

    assert inspect.signature(F.normalize).parameters["eps"].default == default_eps(
        "stock", torch.float32
    )
    ours = inspect.signature(safeops.normalize).parameters
    theirs = inspect.signature(F.normalize).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name in ("p", "dim", "out"):
        assert ours[name].default == theirs[name].default
    assert ours["policy"].kind is inspect.Parameter.KEYWORD_ONLY
