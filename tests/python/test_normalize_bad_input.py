"""Refused calls: torch's error type, and a sentence that says what is wrong and what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import safeops
from samples import DTYPES, POLICIES, count, identifier, value_and_gradient

X = torch.ones(2, 3)


def refusal(call: Callable[[], object], error: type[BaseException], *words: str) -> str:
    """The message of the refused call; every word must be in it, and nothing counted."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    for word in ("normalize", *words):
        assert word in message, message
    assert "\n" not in message.strip(), message
    assert count() == 0
    return message


@pytest.mark.parametrize("policy", ["nothing", "Zero", "zero ", "STOCK"])
def test_unknown_policy(policy: str) -> None:
    names = tuple(f"'{name}'" for name in POLICIES)
    refusal(
        lambda: safeops.normalize(X, policy=policy), ValueError, "policy", f"'{policy}'", *names
    )
    refusal(
        lambda: torch.ops.safeops.normalize(X, policy=policy), ValueError, "policy", f"'{policy}'"
    )


def test_a_policy_that_is_no_text() -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError), match="policy"):
        safeops.normalize(X, policy=3)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("eps", [-1e-12, -1.0, math.nan, math.inf, -math.inf])
def test_eps_that_is_no_threshold(eps: float, policy: str) -> None:
    shown = {math.inf: "inf", -math.inf: "-inf"}.get(eps, "nan" if math.isnan(eps) else "-1")
    refusal(lambda: safeops.normalize(X, eps=eps, policy=policy), ValueError, "eps", shown)


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_eps_of_zero_under_epsilon(dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    refusal(lambda: safeops.normalize(x, eps=0.0, policy="epsilon"), ValueError, "eps", "epsilon")
    for policy in ("stock", "nan", "zero", "raise"):
        safeops.normalize(x, eps=0.0, policy=policy)


SMALLEST = re.compile(r"(?:smallest|at least)[^0-9]*([0-9][0-9.]*(?:e[+-]?[0-9]+)?)")


@pytest.mark.parametrize(
    ("dtype", "eps"),
    [
        (torch.float16, 1e-5),
        (torch.float16, 1e-12),
        (torch.bfloat16, 1e-40),
        (torch.float32, 1e-39),
        (torch.float64, 1e-310),
        (torch.complex64, 1e-39),
        (torch.complex128, 1e-310),
    ],
    ids=identifier,
)
def test_eps_whose_reciprocal_overflows_names_the_smallest_usable_one(
    dtype: torch.dtype, eps: float
) -> None:
    x = torch.zeros(1, 3, dtype=dtype)
    message = refusal(
        lambda: safeops.normalize(x, eps=eps, policy="epsilon"),
        ValueError,
        "eps",
        "epsilon",
        f"{eps:g}",
    )
    found = SMALLEST.search(message)
    assert found, message
    smallest = float(found[1])
    # The printed number works, and it is the edge: a twentieth less does not.
    _, grad = value_and_gradient(x, torch.ones_like(x), "epsilon", eps=smallest)
    assert grad.isfinite().all()
    with pytest.raises(ValueError):
        safeops.normalize(x, eps=smallest * 0.95, policy="epsilon")
    safeops.diagnostics.reset()
    safeops.normalize(x, eps=eps, policy="stock")


@pytest.mark.parametrize("dim", [2, -3, 5, (0, 2), (1, -3)], ids=str)
def test_dim_out_of_range(dim: int | tuple[int, ...]) -> None:
    with pytest.raises(IndexError):
        F.normalize(X, dim=dim)
    wrong = next(d for d in ((dim,) if isinstance(dim, int) else dim) if not -2 <= d <= 1)
    refusal(lambda: safeops.normalize(X, dim=dim), IndexError, "dim", str(wrong), "-2", "1")


def test_dim_out_of_range_for_a_vector_with_the_default_dim() -> None:
    with pytest.raises(IndexError):
        F.normalize(torch.ones(3))
    refusal(lambda: safeops.normalize(torch.ones(3)), IndexError, "dim", "1")


def test_dim_out_of_range_for_a_scalar() -> None:
    for dim in (1, -2):
        with pytest.raises(IndexError):
            F.normalize(torch.tensor(1.0), dim=dim)
        refusal(lambda d=dim: safeops.normalize(torch.tensor(1.0), dim=d), IndexError, "dim")


@pytest.mark.parametrize("dim", [(0, 0), (1, -1), (0, 1, 0)], ids=str)
def test_duplicate_dims(dim: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        F.normalize(X, dim=dim)
    refusal(lambda: safeops.normalize(X, dim=dim), RuntimeError, "dim")


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=identifier
)
def test_integers_and_booleans(dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    with pytest.raises(RuntimeError):
        F.normalize(x)
    # Spelled as torch spells it, in Python or in C++.
    message = refusal(lambda: safeops.normalize(x), RuntimeError, "input must", "float32")
    short = {torch.int64: "long", torch.int32: "int", torch.uint8: "byte", torch.bool: "bool"}[
        dtype
    ]
    assert identifier(dtype) in message or short in message.lower()


@pytest.mark.filterwarnings("ignore:Sparse.*beta state:UserWarning")
def test_sparse_and_nested_tensors() -> None:
    refusal(lambda: safeops.normalize(X.to_sparse()), NotImplementedError)
    refusal(lambda: safeops.normalize(X.to_sparse_csr()), NotImplementedError)
    nested = torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged)
    refusal(lambda: safeops.normalize(nested), NotImplementedError)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_order_that_is_nan(policy: str) -> None:
    refusal(lambda: safeops.normalize(X, p=math.nan, policy=policy), ValueError, "p must")


@pytest.mark.parametrize("p", [math.inf, -math.inf, -1.0])
def test_a_norm_without_a_neutral_element_over_nothing(p: float) -> None:
    empty = torch.empty(3, 0)
    with pytest.raises(RuntimeError):
        F.normalize(empty, p=p)
    # Nothing is divided, so either torch's refusal or an empty tensor is right; a crash is not.
    try:
        assert safeops.normalize(empty, p=p, policy="zero").shape == (3, 0)
    except RuntimeError as error:
        assert "normalize" in str(error)


def test_no_tensor_at_all() -> None:
    for value in ([1.0, 2.0], None, 3.0):
        with pytest.raises((TypeError, AttributeError, RuntimeError)):
            safeops.normalize(value)


@pytest.mark.parametrize(
    "arguments", [{"p": "two"}, {"eps": "small"}, {"dim": 1.5}, {"dim": "last"}]
)
def test_arguments_of_another_type(arguments: dict[str, object]) -> None:
    with pytest.raises((TypeError, RuntimeError, ValueError)):
        safeops.normalize(X, **arguments)


def test_an_unknown_keyword() -> None:
    with pytest.raises(TypeError, match="keepdim"):
        safeops.normalize(X, keepdim=True)


def test_out_on_another_device() -> None:
    with pytest.raises(RuntimeError):
        safeops.normalize(X, out=torch.empty(2, 3, device="meta"))


def test_a_refused_eps_in_a_scope_is_refused_too() -> None:
    with pytest.raises(ValueError, match="eps"), safeops.policy("epsilon", eps=-1.0):
        safeops.normalize(X)
    with pytest.raises(ValueError, match="policy"), safeops.policy("sometimes"):
        safeops.normalize(X)
