"""torch's operator database as an oracle: values, gradients and form under `stock`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import division_reference as reference
import safeops
from division_numbers import HALF, assert_same_numbers, value_bound
from division_samples import UNARY
from reference import spacing, ulps, widen
from samples import DTYPES, LONG, REAL, identifier, significant_strides

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
QUOTIENTS = {
    "div.no_rounding_mode": "div",
    "div.trunc_rounding": "div",
    "div.floor_rounding": "div",
    "true_divide": "true_divide",
}
ROUNDED = ("div.trunc_rounding", "div.floor_rounding")
# Samples of that many elements are views of each other or alike: one for a kind of dtype.
LARGE = 300_000
WITH_A_LARGE_SAMPLE = (torch.float32, torch.complex64, torch.int64)
INFOS = {**QUOTIENTS, **{name: name for name in UNARY}}


def op_info(full_name: str) -> Any:
    # Importing the database costs seconds: only the tests that read it pay.
    from torch.testing._internal.common_methods_invocations import op_db

    (info,) = [op for op in op_db if op.full_name == full_name]
    return info


def elements_of(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 1


class Case:
    """An operator and a dtype with all samples and reference inputs."""

    def __init__(self, full_name: str, dtype: torch.dtype) -> None:
        self.full_name, self.name, self.dtype = full_name, INFOS[full_name], dtype
        self.stock = op_info(full_name)
        assert dtype in self.stock.supported_dtypes("cpu")
        self.samples = list(self.stock.sample_inputs("cpu", dtype))
        # The samples as views that are not dense, too.
        self.samples += [sample.noncontiguous() for sample in self.samples]
        self.samples += self.stock.reference_inputs("cpu", dtype)
        if not LONG:
            large = [i for i, s in enumerate(self.samples) if elements_of(s.input) > LARGE]
            for i in reversed(large[int(dtype in WITH_A_LARGE_SAMPLE) :]):
                del self.samples[i]
        self.least = 2 * 9 + 100 if full_name in QUOTIENTS else 2 + 19
        assert len(self.samples) >= self.least

    def calls(self) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        for sample in self.samples:
            yield (sample.input, *sample.args), sample.kwargs


def pairs(floating: bool = False, rounded: bool | None = None) -> list[Any]:
    found = []
    for full_name in INFOS:
        # Where they become floating-point one integer is as good as another.
        integers = INTEGERS if LONG or full_name in ROUNDED else (torch.int64, torch.uint8)
        for dtype in DTYPES if floating else (*DTYPES, *integers, torch.bool):
            refused = full_name in ROUNDED and (dtype.is_complex or dtype is torch.bool)
            if not refused and rounded in (None, full_name in ROUNDED):
                label = f"{full_name}-{identifier(dtype)}"
                found.append(pytest.param((full_name, dtype), id=label))
    return found


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    # Of a wider scope than the tests: they run side by side for one case, which is costly to make.
    return Case(*request.param)


def defined_quotient(a: Any, b: Any, rounding_mode: str | None) -> torch.Tensor:
    """Torch's quotient; floor in a half type is that of the float32 pair, rounded once."""
    want = torch.div(a, b, rounding_mode=rounding_mode)
    if rounding_mode == "floor" and want.dtype in HALF:
        wide = [t.float() if isinstance(t, torch.Tensor) else t for t in (a, b)]
        exact = torch.div(*wide, rounding_mode="floor").to(want.dtype)
        want = torch.empty_like(want).copy_(exact)
    return want


def some(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of a tensor, of a large one every 19th: the oracles are slow."""
    return tensor.detach().reshape(-1)[:: 19 if tensor.numel() > 100_000 else 1]


def assert_form(y: torch.Tensor, expected: torch.Tensor) -> None:
    assert y.dtype is expected.dtype and y.shape == expected.shape
    if expected.numel() == 0:
        # Over a number torch gives an empty tensor strides of 0 where a dim has size 1.
        assert significant_strides(y) == significant_strides(expected)
    else:
        assert y.stride() == expected.stride()


def assert_near(actual: torch.Tensor, want: torch.Tensor, units: float) -> None:
    """Complex numbers: not finite where torch's are, else within some units of the modulus."""
    finite = want.isfinite()
    assert torch.equal(actual.isfinite(), finite)
    difference = (actual - want).abs()[finite].double()
    size = torch.from_numpy(
        spacing(want.abs()[finite].numpy(), actual.real.dtype).astype(np.float64)
    )
    assert (difference <= units * size).all()


def assert_value(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> torch.Tensor:
    y = getattr(safeops, name)(*arguments, policy="stock", **keywords)
    if name in ("div", "true_divide"):
        want = defined_quotient(*arguments, keywords.get("rounding_mode"))
    else:
        want = getattr(torch, name)(*arguments)
    assert_form(y, want)
    if want.dtype.is_complex:
        assert_complex_value(y, want, name, arguments)
    elif name in ("div", "true_divide", "reciprocal"):
        assert_same_numbers(y, want)
    else:
        x = arguments[0] if arguments[0].is_floating_point() else arguments[0].to(want.dtype)
        exact = reference.value(name, (widen(some(x)),))
        assert ulps(some(y), exact).max(initial=0) <= value_bound(name, want.dtype)
        assert torch.equal(y.isnan(), want.isnan())
    return y


def assert_complex_value(
    y: torch.Tensor, want: torch.Tensor, name: str, arguments: tuple[Any, ...]
) -> None:
    """Near torch's where that is finite; it loses other answers (see the tests of complex ones)."""
    tensors = [torch.as_tensor(t, dtype=want.dtype).expand(want.shape) for t in arguments]
    regular = torch.ones(want.shape, dtype=torch.bool)
    for t in tensors:
        regular &= t.isfinite() & (t != 0)
    assert not y[regular].isnan().any()
    finite = some(want.isfinite())
    y, want, tensors = some(y), some(want), [some(t) for t in tensors]
    if want.dtype is torch.complex64:
        # complex128 loses nothing of what complex64 holds.
        want = getattr(torch, name)(*(t.to(torch.complex128) for t in tensors))
    assert_near(y[finite], want[finite].to(y.dtype), 8)


@pytest.mark.parametrize("case", pairs(), indirect=True)
def test_values(case: Case) -> None:
    cases, elements = 0, 0
    for arguments, keywords in case.calls():
        y = assert_value(case.name, arguments, keywords)
        cases, elements = cases + 1, elements + y.numel()
    print(f"{case.full_name}: {cases} samples of {elements} elements")
    assert cases >= case.least and elements > (
        900_000 if LONG or case.dtype in WITH_A_LARGE_SAMPLE else 2_000
    )


@pytest.mark.parametrize("full_name", INFOS)
def test_every_dtype_of_the_database_is_tested(full_name: str) -> None:
    tested = {dtype for name, dtype in (param.values[0] for param in pairs()) if name == full_name}
    untested = set(op_info(full_name).supported_dtypes("cpu")) - tested
    assert untested <= set(() if LONG or full_name in ROUNDED else INTEGERS)


def seen(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


@pytest.mark.parametrize("case", pairs(), indirect=True)
def test_in_place(case: Case) -> None:
    """The same bits as out of place, and an error where torch has one."""
    written, refused = 0, 0
    for (x, *rest), keywords in case.calls():
        if not isinstance(x, torch.Tensor):
            continue
        y = getattr(safeops, case.name)(x, *rest, policy="stock", **keywords)
        x = x.clone()
        if y.shape != x.shape or not torch.can_cast(y.dtype, x.dtype):
            for module, extra in ((torch.Tensor, {}), (safeops, {"policy": "stock"})):
                with pytest.raises(RuntimeError):
                    getattr(module, f"{case.name}_")(x, *rest, **keywords, **extra)
            refused += 1
            continue
        result = getattr(safeops, f"{case.name}_")(x, *rest, **keywords, policy="stock")
        assert result is x
        assert_same_numbers(seen(x), seen(y.to(x.dtype)))
        written += 1
    floating = case.dtype.is_floating_point or case.dtype.is_complex
    assert (written if floating or case.full_name in ROUNDED else refused) > 20


def wide_terms(
    name: str, arguments: tuple[Any, ...], g: torch.Tensor, wide: torch.dtype
) -> list[torch.Tensor]:
    """What is summed to the gradient of every argument, in float64; conjugated as torch does."""
    g = g.to(wide)
    tensors = [torch.as_tensor(t, dtype=wide).detach() for t in arguments]
    if name in ("div", "true_divide"):
        a, b = tensors
        return [g / b.conj(), -g * ((a / b) / b).conj()]
    (x,) = tensors
    if name == "log":
        return [g / x.conj()]
    y = getattr(torch, name)(x)
    if name == "sqrt":
        return [g / (2 * y).conj()]
    return [-g * (y * y).conj() if name == "reciprocal" else -g / 2 * (y * y * y).conj()]


def assert_gradient(
    grad: torch.Tensor, torchs: torch.Tensor, terms: torch.Tensor, dtype: torch.dtype
) -> None:
    if torchs.dtype.is_floating_point and terms.is_complex():
        terms = terms.real
    want = terms.sum_to_size(grad.shape)
    scale = terms.abs().sum_to_size(grad.shape)
    finite = want.isfinite() & torchs.isfinite() & (scale < torch.finfo(dtype).max / 2)
    # Every term is rounded, and so is every addition of a sum.
    units = 8 if terms.numel() == grad.numel() else 16
    allowed = units * torch.finfo(dtype).eps * scale + torch.finfo(dtype).tiny
    error = (grad.to(want.dtype) - want).abs()
    assert (error <= allowed)[finite].all()
    # torch's slopes at an infinite complex number are NaN, where ours are 0.
    known = finite if dtype.is_complex else finite | torchs.isnan()
    assert torch.equal(grad.isnan()[known], torchs.isnan()[known])


@pytest.mark.parametrize("case", pairs(floating=True, rounded=False), indirect=True)
def test_gradients(case: Case) -> None:
    cases = 0
    wide = torch.complex128 if case.dtype.is_complex else torch.float64
    for arguments, _ in case.calls():
        arguments = [
            t.detach().requires_grad_() if isinstance(t, torch.Tensor) else t for t in arguments
        ]
        leaves = [t for t in arguments if isinstance(t, torch.Tensor)]
        if not leaves:
            continue
        y = getattr(safeops, case.name)(*arguments, policy="stock")
        g = torch.linspace(-2, 2, y.numel(), dtype=y.dtype).view(y.shape)
        grads = torch.autograd.grad(y, leaves, g)
        torchs = torch.autograd.grad(case.stock(*arguments), leaves, g)
        for grad, theirs in zip(grads, torchs, strict=True):
            assert_form(grad, theirs)
        if all(t.shape == y.shape for t in leaves):
            arguments = [some(t) if isinstance(t, torch.Tensor) else t for t in arguments]
            grads, torchs, g = [some(t) for t in grads], [some(t) for t in torchs], some(g)
        terms = wide_terms(case.name, tuple(arguments), g, wide)
        terms = [t for t, x in zip(terms, arguments, strict=True) if isinstance(x, torch.Tensor)]
        for grad, theirs, term in zip(grads, torchs, terms, strict=True):
            assert_gradient(grad, theirs, term, case.dtype)
        cases += 1
    print(f"{case.full_name}: gradients of {cases} samples")
    assert cases > 20


@pytest.mark.parametrize(
    "case",
    [p for p in pairs(floating=True, rounded=True) if p.values[0][1] in REAL],
    indirect=True,
)
def test_gradients_of_rounded_quotients_are_zero(case: Case) -> None:
    cases = 0
    for arguments, keywords in case.calls():
        arguments = [
            t.detach().requires_grad_() if isinstance(t, torch.Tensor) else t for t in arguments
        ]
        leaves = [t for t in arguments if isinstance(t, torch.Tensor)]
        if not leaves:
            continue
        y = safeops.div(*arguments, policy="stock", **keywords)
        g = torch.ones_like(y)
        grads = torch.autograd.grad(y, leaves, g)
        torchs = torch.autograd.grad(case.stock(*arguments, **keywords), leaves, g)
        for grad, theirs in zip(grads, torchs, strict=True):
            assert_form(grad, theirs)
            assert (grad == 0).all() and (theirs == 0).all()
        cases += 1
    assert cases > 100
