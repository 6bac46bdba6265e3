"""torch's own registration checks, all of them, on every operator of the family."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.optests.generate_tests import ALL_TEST_UTILS

import safeops  # noqa: F401  registers the operators
from samples import LONG, REAL, identifier
from softmax_samples import INF, LOGITS, NAMES, logits, some_mask

OPS = torch.ops.safeops
UTILITIES = tuple(ALL_TEST_UTILS)

LAYOUTS = {
    "contiguous": lambda dtype: logits(dtype, (3, 4)),
    "transposed": lambda dtype: logits(dtype, (4, 3)).t(),
    "channels_last": lambda dtype: logits(dtype, (2, 4, 2, 2)).to(
        memory_format=torch.channels_last
    ),
    "strided": lambda dtype: logits(dtype, (4, 8))[::2, 1::2],
    "expanded": lambda dtype: logits(dtype, (1, 4)).expand(3, 4),
    "no rows": lambda dtype: logits(dtype, (0, 4)),
    "no columns": lambda dtype: logits(dtype, (4, 0)),
    "vector": lambda dtype: logits(dtype, (5,)),
    "scalar": lambda dtype: logits(dtype, ()),
}

# Every layout once: a dtype adds nothing to how an operator is registered.
INNER_LAYOUTS = {
    torch.float16: ("contiguous",),
    torch.bfloat16: ("no rows",),
    torch.float32: ("transposed", "scalar"),
    torch.float64: ("contiguous",),
}


# What is registered is the same for every dtype: the others once.
INNER = [
    (dtype, masked, requires_grad)
    for dtype in REAL
    for masked in (False, True)
    for requires_grad in (True, False)
    if LONG or dtype is torch.float32 or (masked and requires_grad)
]


def check(op: torch._ops.OpOverload, args: tuple, kwargs: dict | None = None) -> None:
    results = torch.library.opcheck(op, args, kwargs or {}, test_utils=UTILITIES)
    assert results == dict.fromkeys(UTILITIES, "SUCCESS")


def rest(name: str, dtype: torch.dtype | None, where: torch.Tensor | None, policy: str) -> tuple:
    """The arguments after self and dim."""
    if name == "logsumexp":
        return (False, where, policy)
    return (dtype, where, None, policy)


def dim_of(name: str, dim: int = -1) -> object:
    return [dim] if name == "logsumexp" else dim


@pytest.mark.parametrize(
    ("layout", "requires_grad"),
    [(layout, True) for layout in LAYOUTS]
    + [(layout, False) for layout in (LAYOUTS if LONG else ("contiguous", "no rows"))],
)
@pytest.mark.parametrize("name", NAMES)
def test_functional(name: str, layout: str, requires_grad: bool) -> None:
    x = LAYOUTS[layout](torch.float32)
    if layout in ("contiguous", "transposed"):
        x[0] = -INF
    x = x.detach().requires_grad_(requires_grad)
    check(getattr(OPS, name).default, (x, dim_of(name), *rest(name, None, None, "zero")))


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_functional_with_a_mask_in_every_dtype(name: str, dtype: torch.dtype) -> None:
    x = logits(dtype, (2, 3, 4)).requires_grad_()
    where = some_mask((3, 1) if dtype is torch.float32 else (2, 3, 4))
    for dim in (1, -1):
        arguments = (x, dim_of(name, dim), *rest(name, None, where, "zero"))
        check(getattr(OPS, name).default, arguments)


@pytest.mark.parametrize("shape", [(4,), (1, 1, 1), ()], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_functional_with_a_mask_of_fewer_dims(name: str, shape: tuple[int, ...]) -> None:
    x = logits(torch.float32, (2, 3, 4)).requires_grad_()
    arguments = (x, dim_of(name), *rest(name, None, some_mask(shape), "zero"))
    check(getattr(OPS, name).default, arguments)


@pytest.mark.parametrize("policy", ["", "stock", "epsilon", "nan", "raise"])
@pytest.mark.parametrize("name", NAMES)
def test_functional_under_other_policies(name: str, policy: str) -> None:
    # Without an empty row: opcheck compares values, and NaN differs from NaN.
    x = logits(torch.float32, (3, 4)).requires_grad_()
    check(getattr(OPS, name).default, (x, dim_of(name), *rest(name, None, None, policy)))


@pytest.mark.parametrize(
    ("source", "target"),
    [(torch.float16, torch.float32), (torch.float32, torch.float64), (torch.int64, torch.float32)],
    ids=identifier,
)
@pytest.mark.parametrize("name", LOGITS)
def test_functional_with_a_dtype(name: str, source: torch.dtype, target: torch.dtype) -> None:
    x = logits(source, (3, 4)).requires_grad_(source.is_floating_point)
    check(getattr(OPS, name).default, (x, 1, *rest(name, target, None, "zero")))


@pytest.mark.parametrize("name", NAMES)
def test_functional_with_defaults_and_keywords(name: str) -> None:
    x = logits(torch.float32, (3, 4)).requires_grad_()
    check(getattr(OPS, name).default, (x, dim_of(name)))
    check(getattr(OPS, name).default, (x, dim_of(name)), {"policy": "zero"})


@pytest.mark.parametrize("dim", [[0, 2], [0, 1, 2], []], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_logsumexp_over_several_dims(keepdim: bool, dim: list[int]) -> None:
    x = logits(torch.float32, (2, 3, 4)).requires_grad_()
    for where in (None, some_mask((3, 1))):
        check(OPS.logsumexp.default, (x, dim, keepdim, where, "zero"))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=identifier)
def test_logsumexp_of_other_dtypes(dtype: torch.dtype) -> None:
    check(OPS.logsumexp.default, (torch.ones(3, 4, dtype=dtype), [1]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_out(name: str, layout: str) -> None:
    x = LAYOUTS[layout](torch.float32)
    arguments = (x, dim_of(name), *rest(name, None, None, "zero"))
    shape = getattr(OPS, name)(*arguments).shape
    check(getattr(OPS, name).out, arguments, {"out": torch.zeros(shape)})


@pytest.mark.parametrize(("dtype", "masked", "requires_grad"), INNER, ids=identifier)
@pytest.mark.parametrize("name", LOGITS)
def test_inner_operators(name: str, dtype: torch.dtype, masked: bool, requires_grad: bool) -> None:
    forward, backward = (getattr(OPS, f"_{name}_{way}").default for way in ("forward", "backward"))
    for layout in INNER_LAYOUTS[dtype]:
        x = LAYOUTS[layout](dtype).detach().requires_grad_(requires_grad)
        where = some_mask(tuple(x.shape)) if masked else None
        check(forward, (x, -1, dtype, where, 1e-12, "zero"))
        out, peak = (t.detach() for t in forward(x, -1, dtype, where, 1e-12, "zero"))
        inputs = [t.requires_grad_(requires_grad) for t in (torch.ones_like(out), out)]
        check(backward, (*inputs, peak, where, -1, dtype, "zero"))


@pytest.mark.parametrize(("dtype", "masked", "requires_grad"), INNER, ids=identifier)
def test_inner_operators_of_logsumexp(
    dtype: torch.dtype, masked: bool, requires_grad: bool
) -> None:
    for layout in INNER_LAYOUTS[dtype]:
        x = LAYOUTS[layout](dtype).detach().requires_grad_(requires_grad)
        where = some_mask(tuple(x.shape)) if masked else None
        check(OPS._logsumexp_forward.default, (x, [-1], where, "zero"))
        out, lse = (result.detach() for result in OPS._logsumexp_forward(x, [-1], where, "zero"))
        inputs = (torch.ones_like(out).requires_grad_(requires_grad), x, lse)
        check(OPS._logsumexp_backward.default, (*inputs, where, [-1], "zero"))


def test_schemas_are_the_contracts() -> None:
    logits_ = (
        "Tensor self, int dim, ScalarType? dtype=None, Tensor? where=None, float? eps=None, "
        'str policy=""'
    )
    sums = 'Tensor self, int[1] dim, bool keepdim=False, Tensor? where=None, str policy=""'
    contract = {
        "_logsumexp_forward": (
            "(Tensor self, int[] dim, Tensor? where, str policy) -> (Tensor out, Tensor lse)"
        ),
        "_logsumexp_backward": (
            "(Tensor grad, Tensor self, Tensor lse, Tensor? where, int[] dim, str policy) -> Tensor"
        ),
    }
    for name, arguments in (("softmax", logits_), ("log_softmax", logits_), ("logsumexp", sums)):
        contract[name] = f"({arguments}) -> Tensor"
        into = arguments.replace("Tensor self", "Tensor input")
        contract[f"{name}.out"] = f"({into}, *, Tensor(a!) out) -> ()"
    for name in LOGITS:
        contract[f"_{name}_forward"] = (
            "(Tensor self, int dim, ScalarType dtype, Tensor? where, float eps, str policy) -> "
            "(Tensor out, Tensor peak)"
        )
        contract[f"_{name}_backward"] = (
            "(Tensor grad, Tensor out, Tensor peak, Tensor? where, int dim, "
            "ScalarType input_dtype, str policy) -> Tensor"
        )
    for name, schema in contract.items():
        packet, _, overload = name.partition(".")
        op = getattr(getattr(OPS, packet), overload or "default")
        assert str(op._schema) == str(torch._C.parse_schema(f"safeops::{name}{schema}"))
        assert torch.Tag.pt2_compliant_tag in op.tags
