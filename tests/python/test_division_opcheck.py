"""torch's own registration checks, all of them, on every operator of the family."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.optests.generate_tests import ALL_TEST_UTILS

import safeops  # noqa: F401  registers the operators
from division_samples import NAMES, UNARY, numbers, operands
from samples import NOT_RAISING, identifier

OPS = torch.ops.safeops
UTILITIES = tuple(ALL_TEST_UTILS)

LAYOUTS = {
    "contiguous": lambda dtype: numbers(dtype, (3, 4)),
    "transposed": lambda dtype: numbers(dtype, (4, 3)).t(),
    "channels_last": lambda dtype: numbers(dtype, (2, 4, 2, 2)).to(
        memory_format=torch.channels_last
    ),
    "strided": lambda dtype: numbers(dtype, (4, 8))[::2, 1::2],
    "expanded": lambda dtype: numbers(dtype, (1, 4)).expand(3, 4),
    "no rows": lambda dtype: numbers(dtype, (0, 4)),
    "vector": lambda dtype: numbers(dtype, (5,)),
    "scalar": lambda dtype: numbers(dtype, ()),
}
SHAPES = [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (3, 4)), ((4,), ()), ((0, 4), (4,))]


def check(
    op: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object] | None = None
) -> None:
    results = torch.library.opcheck(op, args, kwargs or {}, test_utils=UTILITIES)
    assert results == dict.fromkeys(UTILITIES, "SUCCESS")


def overload(name: str, which: str = "default") -> torch._ops.OpOverload:
    return getattr(getattr(OPS, name), which)


# An example of everything, not everything of everything: the operators share their registration.


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_every_operator(name: str, policy: str) -> None:
    # Without a singular element: opcheck compares values, and NaN differs from NaN.
    tensors = [t.requires_grad_() for t in operands(name, torch.float32, zeros=0)]
    check(overload(name), (*tensors, *[None] * (name == "div"), 1e-6, policy))


@pytest.mark.parametrize("requires_grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, requires_grad: bool) -> None:
    x = LAYOUTS[layout](torch.float32)
    if layout in ("contiguous", "strided"):
        x[0] = 0
    check(OPS.rsqrt.default, (x.detach().requires_grad_(requires_grad), None, "zero"))


@pytest.mark.parametrize(
    ("shapes", "requires"),
    [
        *((shapes, (True, True)) for shapes in SHAPES),
        *((SHAPES[1], requires) for requires in ((True, False), (False, True), (False, False))),
    ],
    ids=str,
)
def test_quotients(shapes: tuple[tuple[int, ...], ...], requires: tuple[bool, bool]) -> None:
    a, b = (
        numbers(torch.float32, shape, seed=seed).requires_grad_(grad)
        for seed, (shape, grad) in enumerate(zip(shapes, requires, strict=True))
    )
    check(OPS.div.default, (a, b), {"policy": "zero"})


@pytest.mark.parametrize("layout", ["transposed", "channels_last", "expanded"])
def test_layouts_of_quotients(layout: str) -> None:
    a = LAYOUTS[layout](torch.float32).detach().requires_grad_()
    b = numbers(torch.float32, tuple(a.shape), seed=1).requires_grad_()
    check(OPS.div.default, (a, b, None, None, "zero"))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float64, torch.complex64, torch.int64], ids=identifier
)
@pytest.mark.parametrize("name", ["div", "sqrt"])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    x = numbers(torch.float32, (3,), 1, 9).to(dtype).requires_grad_(dtype is not torch.int64)
    rest = [numbers(torch.float32, (2, 1), seed=1).requires_grad_()] if name == "div" else []
    check(overload(name), (x, *rest))


@pytest.mark.parametrize(
    ("dtype", "number"),
    [(torch.float32, 2), (torch.float16, 2.5), (torch.float32, 1j), (torch.int32, True)],
    ids=str,
)
def test_numbers(dtype: torch.dtype, number: complex) -> None:
    x = numbers(torch.float32, (3, 4), 1, 9).to(dtype).requires_grad_(dtype is not torch.int32)
    check(OPS.div.Scalar, (x, number, None, None, "zero"))


def test_rounding_modes() -> None:
    a, b = (t.requires_grad_() for t in operands("div", torch.float32))
    check(OPS.div.default, (a, b, "trunc", None, "zero"))
    check(OPS.div.Scalar, (a, 2, "floor", None, "zero"))
    whole = torch.arange(1, 7).view(2, 3)
    check(OPS.div.default, (whole, whole.flip(0), "floor", None, "zero"))


@pytest.mark.parametrize("layout", ["transposed", "scalar"])
@pytest.mark.parametrize("form", ["out", "in place"])
@pytest.mark.parametrize("name", NAMES)
def test_targets(name: str, form: str, layout: str) -> None:
    x = LAYOUTS[layout](torch.float32)
    operands_ = (x, x + 1) if name == "div" else (x,)
    if form == "out":
        check(overload(name, "out"), operands_, {"policy": "zero", "out": torch.zeros(x.shape)})
    else:
        check(overload(f"{name}_"), operands_, {"policy": "zero"})


def test_targets_of_a_division_by_a_number() -> None:
    x = LAYOUTS["strided"](torch.float32)
    check(OPS.div.Scalar_out, (x, 2), {"policy": "zero", "out": torch.zeros(3 - 1, 4)})
    check(OPS.div_.Scalar, (x, 2), {"policy": "zero"})


@pytest.mark.parametrize(
    ("name", "layout", "dtype", "requires_grad"),
    [
        *((name, "transposed", torch.float32, True) for name in UNARY),
        ("log", "strided", torch.float16, False),
        ("sqrt", "scalar", torch.float64, True),
        ("reciprocal", "no rows", torch.complex64, True),
    ],
    ids=str,
)
def test_backward_operators(
    name: str, layout: str, dtype: torch.dtype, requires_grad: bool
) -> None:
    x = LAYOUTS[layout](dtype)
    inputs = [t.detach().requires_grad_(requires_grad) for t in (torch.ones_like(x), x)]
    check(overload(f"_{name}_backward"), (*inputs, 0.0, "zero"))


@pytest.mark.parametrize(
    ("shapes", "requires_grad", "wanted"),
    [
        *((shapes, True, (True, True)) for shapes in SHAPES),
        *((SHAPES[1], True, wanted) for wanted in ((True, False), (False, True))),
        (SHAPES[1], False, (True, True)),
    ],
    ids=str,
)
def test_the_backward_operator_of_quotients(
    shapes: tuple[tuple[int, ...], ...], requires_grad: bool, wanted: tuple[bool, bool]
) -> None:
    a, b = (numbers(torch.float32, shape, seed=seed) for seed, shape in enumerate(shapes))
    g = numbers(torch.float32, torch.broadcast_shapes(*shapes), seed=2)
    for tensor in (a, b, g):
        tensor.requires_grad_(requires_grad)
    for dividend in (a, None) if wanted == (True, False) else (a,):
        check(OPS._div_backward.default, (g, dividend, b, None, 0.0, "zero", list(wanted)))


def test_schemas_are_the_contracts() -> None:
    eps = 'float? eps=None, str policy=""'
    contract = {
        "_div_backward": (
            "(Tensor grad, Tensor? self, Tensor other, str? rounding_mode, float eps, str policy, "
            "bool[2] wanted) -> (Tensor grad_self, Tensor grad_other)"
        )
    }
    for suffix, other in (("", "Tensor"), ("Scalar", "Scalar")):
        rest = f"{other} other, str? rounding_mode=None, {eps}"
        contract[f"div.{suffix}"] = f"(Tensor self, {rest}) -> Tensor"
        out = f"{suffix}_out" if suffix else "out"
        contract[f"div.{out}"] = f"(Tensor input, {rest}, *, Tensor(a!) out) -> ()"
        contract[f"div_.{suffix}"] = f"(Tensor(a!) input, {rest}) -> ()"
    for name in UNARY:
        contract[name] = f"(Tensor self, {eps}) -> Tensor"
        contract[f"{name}.out"] = f"(Tensor input, {eps}, *, Tensor(a!) out) -> ()"
        contract[f"{name}_"] = f"(Tensor(a!) input, {eps}) -> ()"
        contract[f"_{name}_backward"] = (
            "(Tensor grad, Tensor self, float eps, str policy) -> Tensor"
        )
    for qualified, schema in contract.items():
        name, _, which = qualified.partition(".")
        op = overload(name, which or "default")
        parsed = torch._C.parse_schema(f"safeops::{qualified.rstrip('.')}{schema}")
        assert str(op._schema) == str(parsed)
        assert torch.Tag.pt2_compliant_tag in op.tags
