"""Refused calls: torch's error type, and a sentence that says what is wrong and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import safeops
from division_samples import NAMES, UNARY, call, numbers, stock
from samples import POLICIES, REAL, count, identifier

X = torch.ones(2, 3)


def arguments_of(name: str, x: torch.Tensor = X) -> tuple[torch.Tensor, ...]:
    return (x, x) if name == "div" else (x,)


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


def forms(name: str) -> list[Callable[..., object]]:
    """The functional, the out= and the in-place form, and division by a number."""
    tensors = arguments_of(name)
    found = [
        lambda **rest: call(name, *tensors, **rest),
        lambda **rest: call(name, *tensors, out=torch.ones(2, 3), **rest),
        lambda **rest: call(f"{name}_", *(t.clone() for t in tensors), **rest),
    ]
    if name == "div":
        found.append(lambda **rest: safeops.div(X, 2, **rest))
        found.append(lambda **rest: safeops.true_divide(X, X, **rest))
        found.append(lambda **rest: safeops.true_divide_(X.clone(), 2, **rest))
    return found


@pytest.mark.parametrize("policy", ["nothing", "Zero", "zero ", ""])
@pytest.mark.parametrize("name", NAMES)
def test_unknown_policy(name: str, policy: str) -> None:
    names = tuple(f"'{known}'" for known in POLICIES)
    for form in forms(name):
        refused = lambda form=form: form(policy=policy)  # noqa: E731
        refusal(name, refused, ValueError, "policy", f"'{policy}'", *names)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("eps", [-1e-12, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", NAMES)
def test_eps_negative_or_not_finite(name: str, eps: float, policy: str) -> None:
    for form in forms(name):
        refusal(name, lambda form=form: form(eps=eps, policy=policy), ValueError, "eps")


@pytest.mark.parametrize("name", NAMES)
def test_eps_of_zero_is_refused_under_epsilon_alone(name: str) -> None:
    for form in forms(name):
        refused = lambda form=form: form(eps=0.0, policy="epsilon")  # noqa: E731
        refusal(name, refused, ValueError, "eps", "epsilon")
        for policy in ("stock", "nan", "zero", "raise"):
            form(eps=0.0, policy=policy)


# The largest eps that is too small, and one that is not.
TOO_SMALL = {
    "div": {torch.float16: (1e-5, 2e-5), torch.float32: (2e-39, 3e-39), REAL[3]: (5e-309, 6e-309)},
    "rsqrt": {torch.float16: (1e-10, 1e-9), torch.float32: (0.0, 1e-45), REAL[3]: (0.0, 5e-324)},
}
TOO_SMALL["reciprocal"] = TOO_SMALL["div"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=identifier)
@pytest.mark.parametrize("name", TOO_SMALL)
def test_eps_whose_floored_value_overflows(name: str, dtype: torch.dtype) -> None:
    small, enough = TOO_SMALL[name][dtype]
    tensors = arguments_of(name, X.to(dtype))
    refusal(
        name,
        lambda: call(name, *tensors, eps=small, policy="epsilon"),
        ValueError,
        "eps",
        "epsilon",
    )
    call(name, *tensors, eps=enough, policy="epsilon")
    zeros = arguments_of(name, torch.zeros(1, dtype=dtype))
    if name != "div":
        assert call(name, *zeros, eps=enough, policy="epsilon").isfinite()
    for policy in ("stock", "nan", "zero", "raise"):
        call(name, *tensors, eps=small, policy=policy)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", ["sqrt", "log"])
def test_roots_and_logarithms_take_any_eps(name: str, dtype: torch.dtype) -> None:
    for eps in (1e-300, 5e-324, 1e300):
        assert not call(name, torch.zeros(1, dtype=dtype), eps=eps, policy="epsilon").isnan()


@pytest.mark.parametrize("mode", ["round", "", "ceil", "Floor"])
def test_unknown_rounding_mode(mode: str) -> None:
    with pytest.raises(RuntimeError):
        torch.div(X, X, rounding_mode=mode)
    for form in forms("div")[:4]:
        refused = lambda form=form: form(rounding_mode=mode)  # noqa: E731
        refusal("div", refused, RuntimeError, "rounding_mode", "trunc", "floor", f"'{mode}'")


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize(
    "dtype",
    [torch.complex64, torch.complex128, torch.bool, torch.uint16, torch.uint32, torch.uint64],
    ids=identifier,
)
def test_dtypes_without_rounding(dtype: torch.dtype, mode: str) -> None:
    x = X.to(dtype)
    with pytest.raises((NotImplementedError, RuntimeError)):
        torch.div(x, x, rounding_mode=mode)
    refusal("div", lambda: safeops.div(x, x, rounding_mode=mode), NotImplementedError)


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((2, 3), (2,)), ((4, 1, 2), (3, 3))], ids=str)
def test_shapes_that_do_not_broadcast(shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (torch.ones(shape) for shape in shapes)
    for function in (torch.div, safeops.div, safeops.true_divide):
        with pytest.raises(RuntimeError, match="must match the size"):
            function(a, b)


@pytest.mark.filterwarnings("ignore:Sparse.*beta state:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_sparse_and_nested_tensors(name: str) -> None:
    for sparse in (X.to_sparse(), X.to_sparse_csr()):
        for tensors in [(sparse,)] if name != "div" else [(sparse, X), (X, sparse), (sparse, 2)]:
            with pytest.raises(NotImplementedError, match=name):
                call(name, *tensors)
    jagged = torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged)
    for function in (name, f"{name}_"):
        tensors = (jagged, 2) if name == "div" else (jagged,)
        refusal(
            name,
            lambda f=function, t=tensors: call(f, *t),
            NotImplementedError,
            "nested",
            "to_padded_tensor",
        )
    if name == "div":
        refusal(name, lambda: safeops.div(X, jagged), NotImplementedError, "other", "nested")


@pytest.mark.parametrize("value", [[1.0, 2.0], None, "2"])
@pytest.mark.parametrize("name", NAMES)
def test_no_tensor_and_no_number(name: str, value: object) -> None:
    for tensors in [(value,)] if name != "div" else [(value, X), (X, value), (value, 2)]:
        for function in (stock, call):
            with pytest.raises((TypeError, RuntimeError)):
                function(name, *tensors)


@pytest.mark.parametrize("name", UNARY)
def test_a_number_alone(name: str) -> None:
    with pytest.raises((TypeError, RuntimeError)):
        call(name, 2.0)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_another_name_or_by_position(name: str) -> None:
    tensors = arguments_of(name)
    with pytest.raises(TypeError, match="mask"):
        call(name, *tensors, mask=X)
    with pytest.raises(TypeError, match="positional"):
        call(name, *tensors, None)
    with pytest.raises(TypeError, match="out"):
        call(f"{name}_", *tensors, out=X)


@pytest.mark.parametrize("name", NAMES)
def test_tensors_on_several_devices(name: str) -> None:
    with pytest.raises(RuntimeError):
        call(name, *arguments_of(name), out=torch.empty(2, 3, device="meta"))
    if name == "div":
        with pytest.raises(RuntimeError):
            safeops.div(X, torch.ones(2, 3, device="meta"))


@pytest.mark.parametrize("number", [2.5, 3, True, 1j], ids=str)
def test_numpys_numbers_and_arrays(number: complex) -> None:
    np = pytest.importorskip("numpy")
    x = numbers(torch.float32, (3,))
    for kind in {float: [np.float64, np.float32, np.float16], int: [np.int64, np.int8]}.get(
        type(number), [np.complex64] if isinstance(number, complex) else [np.bool_]
    ):
        y = safeops.div(x, kind(number))
        assert y.dtype is torch.div(x, number).dtype
        torch.testing.assert_close(y, torch.div(x, number))
    with pytest.raises((TypeError, RuntimeError)):
        safeops.div(x, np.ones(3))


@pytest.mark.parametrize(
    ("input", "other"),
    [(5.1, torch.tensor([1, 2])), (-8.4, 5.3), (5, 2), (True, torch.ones(2)), (2j, X), (1, 0.0)],
    ids=str,
)
def test_a_number_as_the_input_as_in_torch(input: complex, other: object) -> None:
    for name in ("div", "true_divide"):
        y, want = call(name, input, other, policy="stock"), stock(name, input, other)
        assert y.dtype is want.dtype and y.shape == want.shape
        torch.testing.assert_close(y, want)
