"""Values, gradients, hits and errors of the softmax family at empty rows, policy by policy."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import safeops
import softmax_reference as reference
from reference import widen
from samples import NOT_RAISING, POLICIES, REAL, assert_same_bits, count, counts, identifier
from softmax_samples import (
    EMPTY_SLOPE,
    EMPTY_VALUE,
    INF,
    LOGITS,
    NAMES,
    call,
    incoming,
    logits,
    some_mask,
    stock,
    value_and_gradient,
    wide,
)

pytestmark = pytest.mark.usefixtures("every_device")

NAN = math.nan
OPS = torch.ops.safeops


def filled(like: torch.Tensor, number: float) -> torch.Tensor:
    return torch.full_like(like, number)


def assert_equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_an_empty_row_alone(name: str, dtype: torch.dtype, policy: str) -> None:
    x = torch.full((1, 3), -INF, dtype=dtype)
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, policy)
    number = EMPTY_VALUE[name][policy]
    if name == "log_softmax" and policy == "epsilon":
        number = math.log(reference.default_eps(dtype))
    assert_equal(y, filled(y, number))
    assert_equal(grad, filled(grad, EMPTY_SLOPE[policy]))
    assert grad.dtype is dtype
    assert count("empty_row", "forward", name) == count("empty_row", "backward", name) == 1
    assert counts(name) == (1, 1)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_row_under_raise_is_an_error(name: str) -> None:
    x = torch.tensor([[0.0, 1.0], [-INF, -INF], [-INF, 2.0], [-INF, -INF]])
    with pytest.raises(safeops.SingularityError) as caught:
        call(name, x, policy="raise")
    assert str(caught.value) == (
        f"safeops::{name}: policy 'raise' met 2 singular rows of 4 (empty_row 2; first at row 1) "
        "in a float32 tensor of shape [4, 2]; use policy 'zero', 'epsilon' or 'nan' to continue"
    )
    error = caught.value
    assert (error.operator, error.condition, error.count) == (name, "empty_row", 2)
    assert (error.first_row, error.shape, error.dtype) == (1, (4, 2), "float32")
    with pytest.raises(ValueError, match="policy 'raise' met 2 singular rows") as caught:
        getattr(OPS, name)(x, -1, policy="raise")
    assert type(caught.value) is ValueError
    assert counts(name) == (4, 0)


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_the_decision_is_taken_row_by_row(
    name: str, dtype: torch.dtype, policy: str, masked: bool
) -> None:
    x = logits(dtype, (6, 5))
    x[1], x[4] = -INF, -INF
    x[2, 1:4], x[5, 0] = -INF, -INF
    where = some_mask((6, 5)) if masked else None
    if masked:
        where[3] = False
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, policy, where=where)
    regular = [0, 2, 5] if masked else [0, 2, 3, 5]
    part = None if where is None else where[regular]
    alone, alone_grad = value_and_gradient(name, x[regular], g[regular], "stock", where=part)
    assert_same_bits(y[regular], alone)
    assert_same_bits(grad[regular], alone_grad)
    assert not alone.isnan().any() and not alone_grad.isnan().any()
    eps = reference.default_eps(dtype)
    want = reference.value(name, widen(x), -1, policy, where, eps)
    assert reference.value_errors(name, torch.as_tensor(wide_tensor(name, y)), want).max() <= 1
    want_grad = reference.gradient(name, widen(x), wide(name, g), -1, policy, where)
    got = widen(grad)
    empty = [1, 4] + ([3] if masked else [])
    assert np.array_equal(np.isnan(got), np.isnan(want_grad))
    assert np.array_equal(np.nan_to_num(got[empty]), np.nan_to_num(want_grad[empty]))
    assert counts(name) == (len(empty), len(empty))


def wide_tensor(name: str, y: torch.Tensor) -> torch.Tensor:
    return y if name != "logsumexp" else y.unsqueeze(-1)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_minus_infinity_beside_a_finite_element_is_regular(
    name: str, dtype: torch.dtype, policy: str
) -> None:
    x = torch.tensor([-INF, 3.0, -INF], dtype=dtype)
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, policy)
    want = {"softmax": [0, 1, 0], "log_softmax": [-INF, 0, -INF], "logsumexp": 3}[name]
    assert y.tolist() == want
    zero, total = torch.zeros((), dtype=dtype), g.double().sum()
    if name == "softmax":
        assert grad.tolist() == [0, 0, 0]
    elif name == "logsumexp":
        assert grad.tolist() == [0, g.item(), 0]
    else:
        rest = (g[1].double() - total).to(dtype)
        torch.testing.assert_close(grad, torch.stack([g[0], rest + zero, g[2]]))
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_nan_fills_its_row_and_is_noticed_and_no_hit(
    name: str, dtype: torch.dtype, policy: str
) -> None:
    x = torch.tensor([[NAN, -INF, 1], [-INF, -INF, NAN], [1, 2, 3]], dtype=dtype)
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, policy)
    assert y[:2].isnan().all() and not y[2].isnan().any()
    assert grad[:2].isnan().all() and not grad[2].isnan().any()
    assert count("nonfinite_input", "forward", name) == 2
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_plus_infinity_has_stocks_answer_under_every_policy(
    name: str, dtype: torch.dtype, policy: str
) -> None:
    x = torch.tensor([[INF, 2, -1], [INF, -INF, INF], [3, 4, 0]], dtype=dtype)
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, policy)
    leaf = x.clone().requires_grad_()
    expected = stock(name, leaf)
    (expected_grad,) = torch.autograd.grad(expected, leaf, g)
    assert_equal(y[:2], expected[:2].detach())
    assert_equal(grad[:2], expected_grad[:2])
    want = reference.value(name, widen(x[2:]), -1, policy)
    assert reference.value_errors(name, wide_tensor(name, y[2:]), want).max() <= 1
    assert count("nonfinite_input", "forward", name) == 2
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_the_lowest_finite_value_is_uniform_and_noticed(
    name: str, dtype: torch.dtype, policy: str
) -> None:
    lowest = torch.finfo(dtype).min
    x = torch.tensor([[lowest] * 4, [lowest, -INF, -INF, lowest], [lowest, 0, 0, 0]], dtype=dtype)
    y, grad = value_and_gradient(name, x, incoming(name, x), policy)
    want = reference.value(name, widen(x), -1, policy)
    assert reference.value_errors(name, wide_tensor(name, y), want).max() <= 1
    assert grad.isfinite().all()
    assert count("finite_min_row", "forward", name) == 2
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_lowest_value_is_that_of_the_dtype_that_comes_in(name: str) -> None:
    # -65504 is nothing special among float32.
    call(name, torch.full((2, 3), -65504.0), policy="zero")
    assert count("finite_min_row", "forward", name) == 0
    call(name, torch.full((2, 3), -65504.0, dtype=torch.float16), policy="zero")
    assert count("finite_min_row", "forward", name) == 2


@pytest.mark.parametrize("name", LOGITS)
def test_half_converted_on_load_still_sees_its_own_lowest_value(name: str) -> None:
    x = torch.full((2, 3), -65504.0, dtype=torch.float16)
    call(name, x, dtype=torch.float32, policy="zero")
    assert count("finite_min_row", "forward", name) == 2


def backward(name: str, g: list[float], policy: str, where: torch.Tensor | None) -> torch.Tensor:
    """The fused backward kernel on an empty row, next to a regular one."""
    x = torch.tensor([[-INF, -INF, -INF], [1.0, 1.0, -INF]])
    if name == "logsumexp":
        lse = OPS._logsumexp_forward(x, [1], where, "zero")[1]
        grad = torch.tensor([[g[0]], [1.0]])
        safeops.diagnostics.reset()
        return OPS._logsumexp_backward(grad, x, lse, where, [1], policy)
    forward = getattr(OPS, f"_{name}_forward")
    out, peak = forward(x, 1, torch.float32, where, 1e-12, "zero")
    assert peak.dtype is torch.float64 and peak.tolist() == [[-INF], [1.0]]
    grad = torch.tensor([g, [1.0, 2.0, 3.0]])
    safeops.diagnostics.reset()
    return getattr(OPS, f"_{name}_backward")(grad, out, peak, where, 1, torch.float32, policy)


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_zero_gradient_at_an_empty_row(name: str, policy: str, masked: bool) -> None:
    where = torch.tensor([[True, True, False], [True, True, True]]) if masked else None
    grad = backward(name, [0.0, -0.0, 0.0], policy, where)
    slope = NAN if policy in ("stock", "nan") else 0.0
    assert_equal(grad[0, :2], filled(grad[0, :2], slope))
    assert_equal(grad[0, 2], filled(grad[0, 2], 0.0 if masked else slope))
    assert grad[1].isfinite().all()
    assert count("empty_row", "backward", name) == 1


@pytest.mark.parametrize("g", [[1.0, 0.0, 0.0], [NAN, 1.0, 0.0], [INF, 0.0, 0.0]])
@pytest.mark.parametrize("name", NAMES)
def test_backward_raises_where_the_gradient_at_an_empty_row_is_not_zero(
    name: str, g: list[float]
) -> None:
    with pytest.raises(ValueError, match=f"{name}.*policy 'raise' met 1 singular row of 2"):
        backward(name, g, "raise", None)


@pytest.mark.parametrize("name", LOGITS)
def test_backward_does_not_raise_for_a_gradient_that_takes_no_part(name: str) -> None:
    where = torch.tensor([[True, True, False], [True, True, True]])
    assert backward(name, [0.0, 0.0, 5.0], "raise", where)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("policy", ["zero", "epsilon"])
@pytest.mark.parametrize("g", [[1.0, -2.0, 3.0], [NAN, 1.0, 0.0], [INF, -INF, 0.0]])
@pytest.mark.parametrize("name", NAMES)
def test_zero_and_epsilon_give_zero_whatever_comes_in(
    name: str, g: list[float], policy: str
) -> None:
    assert (backward(name, g, policy, None)[0] == 0).all()


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_zero_never_gives_nan_for_input_without_nan_and_plus_infinity(
    name: str, dtype: torch.dtype
) -> None:
    lowest, largest = torch.finfo(dtype).min, torch.finfo(dtype).max
    values = torch.tensor([-INF, lowest, -1, 0, 1, largest], dtype=dtype)
    x = torch.cartesian_prod(values, values, values)
    y, grad = value_and_gradient(name, x, torch.ones_like(incoming(name, x)), "zero")
    assert not y.isnan().any() and not grad.isnan().any()
    assert count("empty_row", "forward", name) == 1


@pytest.mark.parametrize("eps", [1e-3, 0.5, 1e-300])
def test_epsilon_takes_the_logarithm_of_the_eps_that_is_given(eps: float) -> None:
    x = torch.full((2, 3), -INF, dtype=torch.float64)
    x[1, 1] = 0
    where = torch.tensor([True, False, True])
    y = safeops.log_softmax(x, -1, eps=eps, policy="epsilon", where=where)
    row = [math.log(eps), -INF, math.log(eps)]
    torch.testing.assert_close(y, torch.tensor([row, row], dtype=torch.float64))
    with safeops.policy("epsilon", eps=eps):
        assert_same_bits(safeops.log_softmax(x, -1, where=where), y)
    for policy in ("stock", "nan", "zero"):
        a = safeops.log_softmax(x, -1, eps=eps, policy=policy, where=where)
        b = safeops.log_softmax(x, -1, policy=policy, where=where)
        assert_equal(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_unchosen_stock_warns_once_per_line_and_says_what_the_gradient_is(name: str) -> None:
    x = torch.full((2, 3), -INF)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            call(name, x)
    ours = [w for w in caught if w.category is safeops.SingularityWarning]
    assert len(ours) == 1
    assert str(ours[0].message).startswith(
        f"safeops.{name}: 2 of 2 rows are singular (empty_row, first at row 0) in a float32 tensor "
        "of shape [2, 3], and nobody chose a policy: the value is PyTorch's and the gradient there "
        "is NaN; choose policy='zero'"
    )


@pytest.mark.parametrize(("dim", "rows"), [(0, 20), (1, 15), (2, 12), (-3, 20)])
@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_hits_and_row_numbers_for_any_dim(name: str, policy: str, dim: int, rows: int) -> None:
    x = torch.full((3, 4, 5), -INF)
    _, grad = value_and_gradient(name, x, incoming(name, x, dim), policy, dim)
    assert_equal(grad, filled(grad, EMPTY_SLOPE[policy]))
    assert counts(name) == (rows, rows)
    last = x.clone().movedim(dim, -1)
    last.reshape(-1, last.shape[-1])
    others = torch.zeros_like(last)
    others[-1, -1] = -INF
    with pytest.raises(safeops.SingularityError, match=f"first at row {rows - 1}\\)"):
        call(name, others.movedim(-1, dim), dim, policy="raise")


@pytest.mark.parametrize("dim", [(0, 1), (0, 2), (1, 2), (0, 1, 2), ()], ids=str)
@pytest.mark.parametrize("policy", NOT_RAISING)
def test_logsumexp_over_several_dims(policy: str, dim: tuple[int, ...]) -> None:
    x = torch.full((3, 4, 5), -INF)
    rows = math.prod(x.shape) // math.prod(x.shape[d] for d in dim or (0, 1, 2))
    y, grad = value_and_gradient("logsumexp", x, incoming("logsumexp", x, dim), policy, dim)
    assert y.numel() == rows and (y == -INF).all()
    assert_equal(grad, filled(grad, EMPTY_SLOPE[policy]))
    assert counts("logsumexp") == (rows, rows)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_rows_without_elements_are_no_hits(name: str, shape: tuple[int, int], policy: str) -> None:
    x = torch.empty(shape, requires_grad=True)
    y = call(name, x, policy=policy)
    expected = stock(name, x)
    assert_equal(y.detach(), expected.detach())
    y.sum().backward()
    assert x.grad.shape == shape
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_softmin_is_softmax_of_the_negative(policy: str) -> None:
    x = torch.tensor([[1.0, 2.0, INF], [INF, INF, INF]])
    where = torch.tensor([True, False, True])
    for mask in (None, where):
        y = safeops.softmin(x, -1, where=mask, policy=policy)
        assert counts("softmax") == (1, 0)
        assert_same_bits(y, safeops.softmax(-x, -1, where=mask, policy=policy))
        safeops.diagnostics.reset()
    y = safeops.softmin(x.half(), 0, torch.float32, policy=policy)
    assert y.dtype is torch.float32


def test_softmin_under_raise_names_softmax_and_the_line() -> None:
    with pytest.raises(safeops.SingularityError, match="safeops::softmax: policy 'raise' met"):
        safeops.softmin(torch.full((3,), INF), 0, policy="raise")
    (site,) = safeops.diagnostics.snapshot().sites
    assert (site.filename, site.operator, site.forward) == (__file__, "softmax", 1)
