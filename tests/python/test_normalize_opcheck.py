"""torch's own registration checks, all of them, on every operator of the family."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.optests.generate_tests import ALL_TEST_UTILS

import safeops  # noqa: F401  registers the operators
from samples import DTYPES, LONG, identifier, random_like

OPS = torch.ops.safeops
UTILITIES = tuple(ALL_TEST_UTILS)
POLICIES = ("stock", "zero")


def regular(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return random_like(torch.empty(shape, dtype=dtype))


def with_singular_row(x: torch.Tensor) -> torch.Tensor:
    if x.dim() > 1 and x.shape[0] > 1:
        x[0] = 0
    return x


LAYOUTS = {
    "contiguous": (lambda dtype: regular(3, 4, dtype=dtype), [1]),
    "transposed": (lambda dtype: regular(4, 3, dtype=dtype).t(), [1]),
    "channels_last": (
        lambda dtype: regular(2, 3, 2, 2, dtype=dtype).to(memory_format=torch.channels_last),
        [1],
    ),
    "channels_last, two dims": (
        lambda dtype: regular(2, 3, 2, 2, dtype=dtype).to(memory_format=torch.channels_last),
        [1, 3],
    ),
    "strided": (lambda dtype: regular(4, 8, dtype=dtype)[::2, 1::2], [1]),
    "expanded": (lambda dtype: regular(1, 4, dtype=dtype).expand(3, 4), [1]),
    "no rows": (lambda dtype: regular(0, 3, dtype=dtype), [1]),
    "no columns": (lambda dtype: regular(3, 0, dtype=dtype), [1]),
    "vector": (lambda dtype: regular(5, dtype=dtype), [0]),
    "scalar": (lambda dtype: regular(dtype=dtype), [0]),
}


# A dtype adds nothing to how an operator is registered.
SAMPLES = [
    (dtype, layout)
    for dtype in DTYPES
    for layout in LAYOUTS
    if LONG or dtype is torch.float32 or layout == "contiguous"
]


WITH_GRAD = [
    (dtype, layout, requires_grad)
    for dtype, layout in SAMPLES
    for requires_grad in (True, False)
    if LONG or requires_grad or (dtype is torch.float32 and layout in ("contiguous", "no rows"))
]


def check(op: torch._ops.OpOverload, args: tuple, kwargs: dict | None = None) -> None:
    results = torch.library.opcheck(op, args, kwargs or {}, test_utils=UTILITIES)
    assert results == dict.fromkeys(UTILITIES, "SUCCESS")


def sample(layout: str, dtype: torch.dtype, requires_grad: bool) -> tuple[torch.Tensor, list[int]]:
    make, dim = LAYOUTS[layout]
    tensor = make(dtype)
    if layout in ("contiguous", "transposed"):
        tensor = with_singular_row(tensor)
    return tensor.detach().requires_grad_(requires_grad), dim


def test_every_utility_of_torch_is_used() -> None:
    assert {"test_schema", "test_aot_dispatch_static", "test_aot_dispatch_dynamic"} < set(UTILITIES)
    assert len(UTILITIES) >= 5


@pytest.mark.parametrize(("dtype", "layout", "requires_grad"), WITH_GRAD, ids=identifier)
def test_normalize(dtype: torch.dtype, layout: str, requires_grad: bool) -> None:
    x, dim = sample(layout, dtype, requires_grad)
    check(OPS.normalize.default, (x, 2.0, dim, None, "zero"))


@pytest.mark.parametrize(
    ("p", "policy"),
    [(2.0, policy) for policy in ("", "stock", "epsilon", "nan", "raise")]
    + [(p, policy) for p in (1.0, 3.0, float("inf")) for policy in ("stock", "raise")],
)
def test_normalize_under_other_policies_and_orders(p: float, policy: str) -> None:
    # Without a singular row: opcheck compares values, and NaN differs from NaN.
    check(OPS.normalize.default, (regular(3, 4).requires_grad_(), p, [1], None, policy))


def test_normalize_with_defaults_and_keywords() -> None:
    check(OPS.normalize.default, (regular(3, 4).requires_grad_(),))
    check(OPS.normalize.default, (regular(3, 4),), {"dim": [0], "eps": 0.5, "policy": "epsilon"})


@pytest.mark.parametrize(("dtype", "layout"), SAMPLES, ids=identifier)
def test_normalize_out(dtype: torch.dtype, layout: str) -> None:
    x, dim = sample(layout, dtype, False)
    check(
        OPS.normalize.out, (x, 2.0, dim, None, "zero"), {"out": torch.zeros(x.shape, dtype=dtype)}
    )


def test_normalize_out_strided() -> None:
    x, out = regular(3, 4), torch.zeros(4, 3).t()
    check(OPS.normalize.out, (x, 2.0, [1], None, "zero"), {"out": out})


@pytest.mark.parametrize(("dtype", "layout", "requires_grad"), WITH_GRAD, ids=identifier)
def test_inner_forward(dtype: torch.dtype, layout: str, requires_grad: bool) -> None:
    x, dim = sample(layout, dtype, requires_grad)
    check(OPS._normalize_forward.default, (x, 2.0, dim, 0.0, "zero"))


@pytest.mark.parametrize(("dtype", "layout", "requires_grad"), WITH_GRAD, ids=identifier)
def test_inner_backward(dtype: torch.dtype, layout: str, requires_grad: bool) -> None:
    x, dim = sample(layout, dtype, False)
    out, norm = OPS._normalize_forward(x, 2.0, dim, 0.0, "zero")
    inputs = [t.detach().requires_grad_(requires_grad) for t in (out * 0.5, x, norm)]
    check(OPS._normalize_backward.default, (*inputs, 2.0, dim, 0.0, "zero"))


@pytest.mark.parametrize("p", [1.0, 3.0, float("inf")])
@pytest.mark.parametrize("policy", POLICIES)
def test_inner_operators_for_other_orders(policy: str, p: float) -> None:
    x = with_singular_row(regular(3, 4)).requires_grad_()
    check(OPS._normalize_forward.default, (x, p, [1], 1e-3, policy))
    out, norm = OPS._normalize_forward(x.detach(), p, [1], 1e-3, policy)
    check(OPS._normalize_backward.default, (out.cos(), x, norm, p, [1], 1e-3, policy))


def test_schemas_are_the_contracts() -> None:
    arguments = 'Tensor self, float p=2.0, int[1] dim=1, float? eps=None, str policy=""'
    inner = "float p, int[] dim, float eps, str policy"
    contract = {
        OPS.normalize.default: f"safeops::normalize({arguments}) -> Tensor",
        OPS.normalize.out: (
            f"safeops::normalize.out({arguments.replace('Tensor self', 'Tensor input')}, *, "
            "Tensor(a!) out) -> ()"
        ),
        OPS._normalize_forward.default: (
            f"safeops::_normalize_forward(Tensor self, {inner}) -> (Tensor out, Tensor norm)"
        ),
        OPS._normalize_backward.default: (
            "safeops::_normalize_backward(Tensor grad, Tensor self, Tensor norm, "
            f"{inner}) -> Tensor"
        ),
    }
    for op, schema in contract.items():
        assert str(op._schema) == str(torch._C.parse_schema(schema))


@pytest.mark.parametrize("name", ["normalize", "_normalize_forward", "_normalize_backward"])
def test_operators_are_tagged_as_compliant(name: str) -> None:
    assert torch.Tag.pt2_compliant_tag in getattr(OPS, name).default.tags
