"""Refused calls: torch's error type, and a sentence that says what is wrong and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import safeops
from samples import POLICIES, count, identifier
from softmax_samples import LOGITS, NAMES, call, stock

X = torch.ones(2, 3)


def refusal(
    name: str, refused: Callable[[], object], error: type[BaseException], *words: str
) -> None:
    """Every word must be in the message, and nothing counted."""
    with pytest.raises(error) as caught:
        refused()
    message = str(caught.value)
    for word in (name, *words):
        assert word in message, message
    assert "\n" not in message.strip(), message
    assert count(None, "forward", name) == 0


@pytest.mark.parametrize("policy", ["nothing", "Zero", "zero ", ""])
@pytest.mark.parametrize("name", NAMES)
def test_unknown_policy(name: str, policy: str) -> None:
    names = tuple(f"'{known}'" for known in POLICIES)
    refusal(name, lambda: call(name, X, policy=policy), ValueError, "policy", f"'{policy}'", *names)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("eps", [-1e-12, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", LOGITS)
def test_eps_that_is_no_number_to_take_a_logarithm_of(name: str, eps: float, policy: str) -> None:
    refusal(name, lambda: call(name, X, eps=eps, policy=policy), ValueError, "eps")


@pytest.mark.parametrize("name", LOGITS)
def test_eps_of_zero_under_epsilon(name: str) -> None:
    refusal(
        name, lambda: call(name, X, eps=0.0, policy="epsilon"), ValueError, "eps", "epsilon", "0"
    )
    for policy in ("stock", "nan", "zero", "raise"):
        call(name, X, eps=0.0, policy=policy)


@pytest.mark.parametrize("dim", [2, -3, 5])
@pytest.mark.parametrize("name", NAMES)
def test_dim_out_of_range(name: str, dim: int) -> None:
    with pytest.raises(IndexError):
        stock(name, X, dim)
    refusal(name, lambda: call(name, X, dim), IndexError, "dim", str(dim), "-2", "1")


@pytest.mark.parametrize("dim", [1, -2])
@pytest.mark.parametrize("name", NAMES)
def test_dim_out_of_range_for_a_scalar(name: str, dim: int) -> None:
    x = torch.tensor(1.0)
    with pytest.raises(IndexError):
        stock(name, x, dim)
    refusal(name, lambda: call(name, x, dim), IndexError, "dim")


@pytest.mark.parametrize("dim", [(0, 0), (1, -1), (0, 1, 0)], ids=str)
def test_dims_named_twice(dim: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        torch.logsumexp(X, dim)
    refusal("logsumexp", lambda: call("logsumexp", X, dim), RuntimeError, "dim")


@pytest.mark.parametrize("dim", [(0, 2), (0, -3)], ids=str)
def test_one_of_several_dims_out_of_range(dim: tuple[int, ...]) -> None:
    refusal("logsumexp", lambda: call("logsumexp", X, dim), IndexError, "dim")


@pytest.mark.parametrize(
    "dtype",
    [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64],
    ids=identifier,
)
@pytest.mark.parametrize("name", LOGITS)
def test_integers_booleans_and_complex_numbers(name: str, dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    with pytest.raises(NotImplementedError):
        stock(name, x)
    refusal(name, lambda: call(name, x), NotImplementedError, "input must", "float32")


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=identifier)
@pytest.mark.parametrize("name", LOGITS)
def test_a_dtype_that_holds_no_weights(name: str, dtype: torch.dtype) -> None:
    with pytest.raises(NotImplementedError):
        stock(name, X, dtype=dtype)
    with pytest.raises((NotImplementedError, RuntimeError), match=name):
        call(name, X, dtype=dtype)


@pytest.mark.filterwarnings("ignore:Sparse.*beta state:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_sparse_and_nested_tensors(name: str) -> None:
    for sparse in (X.to_sparse(), X.to_sparse_csr()):
        refused = lambda x=sparse: call(name, x)  # noqa: E731
        with pytest.raises(NotImplementedError, match=name):
            refused()
    jagged = torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged)
    refusal(name, lambda: call(name, jagged), NotImplementedError, "nested", "to_padded_tensor")
    mask = torch.nested.nested_tensor([X > 0, X[:1] > 0], layout=torch.jagged)
    refusal(name, lambda: call(name, X, where=mask), NotImplementedError, "nested")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_nested_tensors_of_the_strided_kind(name: str) -> None:
    nested = torch.nested.nested_tensor([X, X[:1]])
    with pytest.raises(NotImplementedError, match=name):
        call(name, nested)


@pytest.mark.parametrize("name", NAMES)
def test_no_tensor_at_all(name: str) -> None:
    for value in ([1.0, 2.0], None, 3.0):
        with pytest.raises((TypeError, RuntimeError)):
            call(name, value)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_another_type_or_name(name: str) -> None:
    for arguments in ({"dim": 1.5}, {"dim": "last"}, {"dim": None}):
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            call(name, X, **arguments)
    with pytest.raises(TypeError, match="mask"):
        call(name, X, mask=X > 0)
    with pytest.raises(TypeError):
        getattr(safeops, name)(X)


@pytest.mark.parametrize("name", NAMES)
def test_out_on_another_device(name: str) -> None:
    with pytest.raises(RuntimeError):
        call(name, X, out=torch.empty(2, 3, device="meta"))


def test_softmin_has_no_out_and_no_booleans() -> None:
    with pytest.raises(TypeError, match="out"):
        safeops.softmin(X, 0, out=torch.empty(2, 3))
    with pytest.raises((NotImplementedError, RuntimeError)):
        safeops.softmin(X > 0, 0)
