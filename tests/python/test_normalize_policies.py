"""Values, gradients, errors and warnings of `normalize` at singular points, policy by policy."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

import safeops
from samples import (
    DTYPES,
    NOT_RAISING,
    POLICIES,
    assert_same_bits,
    count,
    counts,
    identifier,
    skip_without_norm,
)

pytestmark = pytest.mark.usefixtures("every_device")

NAN = math.nan
normalize_backward = torch.ops.safeops._normalize_backward


def zero_row_case(policy: str | None, eps: float | None = None) -> tuple[list[float], list[float]]:
    """pytorch#184575: the value and gradient of normalize(zeros(3)).sum()."""
    z = torch.zeros(3, requires_grad=True)
    y = safeops.normalize(z, dim=0, eps=eps, policy=policy)
    y.sum().backward()
    return y.tolist(), z.grad.tolist()


def test_zero_row_under_stock_has_the_documented_value_and_slope() -> None:
    y, grad = zero_row_case("stock")
    assert y == [0, 0, 0]
    assert grad == [torch.tensor(1e12).item()] * 3


def test_zero_row_under_nan_is_marked_in_value_and_gradient() -> None:
    y, grad = zero_row_case("nan")
    assert all(map(math.isnan, y)) and all(map(math.isnan, grad))


def test_zero_row_under_epsilon_divides_by_eps() -> None:
    y, grad = zero_row_case("epsilon", eps=1e-3)
    assert y == [0, 0, 0]
    assert grad == [torch.tensor(1e3).item()] * 3


def test_zero_row_under_zero_is_zero_in_value_and_gradient() -> None:
    assert zero_row_case("zero") == ([0, 0, 0], [0, 0, 0])


def test_zero_row_under_raise_is_an_error() -> None:
    with pytest.raises(safeops.SingularityError):
        zero_row_case("raise")


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_zero_row_is_one_hit_in_each_direction(policy: str) -> None:
    zero_row_case(policy)
    assert count("zero_norm", "forward") == 1 and count("zero_norm", "backward") == 1
    assert count("below_eps", "forward") == 0 and count("below_eps", "backward") == 0


def test_unchosen_stock_warns_once_per_line_and_behaves_as_stock() -> None:
    z = torch.zeros(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            y = safeops.normalize(z, dim=0)
    y.sum().backward()
    assert y.tolist() == [0, 0, 0] and z.grad.tolist() == [torch.tensor(1e12).item()] * 3
    ours = [warning for warning in caught if warning.category is safeops.SingularityWarning]
    assert len(ours) == 1
    assert ours[0].filename == __file__
    message = str(ours[0].message)
    for word in (
        "normalize",
        "float32",
        "[3]",
        "gradient",
        "'zero'",
        "'epsilon'",
        "'nan'",
        "'raise'",
    ):
        assert word in message, message


def test_each_line_that_hits_warns() -> None:
    z = torch.zeros(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        safeops.normalize(z, dim=0)
        safeops.normalize(z, dim=0)
    lines = [w.lineno for w in caught if w.category is safeops.SingularityWarning]
    assert len(lines) == 2 and lines[1] == lines[0] + 1


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_a_chosen_policy_does_not_warn(policy: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safeops.normalize(torch.zeros(3), dim=0, policy=policy)
        with safeops.policy(policy):
            safeops.normalize(torch.zeros(3), dim=0)


def test_a_healthy_call_without_a_policy_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safeops.normalize(torch.tensor([1.0, 0.0, 0.0]), dim=0)


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf, 0.5, 0.0])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_a_row_with_zero_elements_is_healthy(dtype: torch.dtype, policy: str, p: float) -> None:
    skip_without_norm(p, dtype)
    x = torch.tensor([1, 0, 0], dtype=dtype, requires_grad=True)
    y = safeops.normalize(x, p=p, dim=0, policy=policy)
    y.backward(torch.tensor([5, 1, 2], dtype=dtype))
    assert y.tolist() == [1, 0, 0]
    # p = 0 counts elements, so its norm is constant; every other norm is abs(x[0]) here.
    assert x.grad.tolist() == [5 if p == 0 else 0, 1, 2]
    assert counts() == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_negative_order_is_singular_where_an_element_is_zero(policy: str) -> None:
    skip_without_norm(-1.0)
    x = torch.tensor([1.0, 0.0, 0.0])
    if policy == "raise":
        with pytest.raises(safeops.SingularityError):
            safeops.normalize(x, p=-1.0, dim=0, policy=policy)
    else:
        y = safeops.normalize(x, p=-1.0, dim=0, policy=policy)
        floored = [torch.tensor(1e12).item(), 0, 0]
        expected = {"nan": [NAN] * 3, "zero": [0, 0, 0]}.get(policy, floored)
        torch.testing.assert_close(
            y, torch.tensor(expected, dtype=x.dtype), rtol=0, atol=0, equal_nan=True
        )
    assert count("zero_norm") == 1


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_the_decision_is_taken_row_by_row(dtype: torch.dtype, policy: str) -> None:
    x = torch.tensor([[3, 4, 0], [0, 0, 0], [0, 1, 0], [-0.0, 0, -0.0]], dtype=dtype)
    y = safeops.normalize(x, policy=policy)
    alone = safeops.normalize(x[[0, 2]], policy="stock")
    assert_same_bits(y[[0, 2]], alone)
    assert y[[1, 3]].isnan().all() if policy == "nan" else (y[[1, 3]] == 0).all()
    assert count("zero_norm") == 2


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_a_subnormal_row_is_not_zero(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    tiny = info.smallest_normal * info.eps
    for policy in ("nan", "zero", "raise"):
        assert safeops.normalize(
            torch.tensor([tiny, 0], dtype=dtype), dim=0, policy=policy
        ).tolist() == [1, 0]
    assert count() == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_nan_fills_its_row_and_is_not_a_hit(dtype: torch.dtype, policy: str) -> None:
    x = torch.tensor([[NAN, 0, 0], [3, 4, 0]], dtype=dtype, requires_grad=True)
    y = safeops.normalize(x, policy=policy)
    y.backward(torch.ones_like(y))
    assert y[0].isnan().all() and not y[1].isnan().any()
    assert x.grad[0].isnan().all() and not x.grad[1].isnan().any()
    assert count() == 0 and count(direction="backward") == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf])
def test_infinity_has_stocks_value_under_every_policy(p: float, policy: str) -> None:
    skip_without_norm(p)
    x = torch.tensor([[math.inf, 2, -1], [1, -math.inf, math.inf], [3, 4, 0]])
    y = safeops.normalize(x, p=p, policy=policy)
    torch.testing.assert_close(y, F.normalize(x, p=p), equal_nan=True)
    assert count() == 0


@pytest.mark.parametrize("x", [[NAN, 0, 0], [math.inf, 1, 0]])
def test_nonfinite_input_is_noticed(x: list[float]) -> None:
    safeops.normalize(torch.tensor([x, [1.0, 0.0, 0.0]]), policy="zero")
    assert count("nonfinite_input") == 1 and count() == 0


@pytest.mark.parametrize(
    ("dtype", "row"),
    [
        (torch.float16, [6e4, 6e4]),
        (torch.float32, [1e-30, 0.0]),
        (torch.float32, [1e25, 1e25]),
        (torch.float64, [1e-200, 1e-200]),
        (torch.float64, [1.5e308, 1.5e308]),
    ],
)
def test_a_rescued_row_is_a_notice_not_a_hit(dtype: torch.dtype, row: list[float]) -> None:
    safeops.normalize(torch.tensor([row, [3.0, 4.0]], dtype=dtype), policy="zero")
    assert count("rescued") == 1 and count() == 0


def test_raise_says_what_it_met_and_what_to_do() -> None:
    x = torch.tensor([[1.0, 0, 0], [1e-13, 0, 0], [3, 4, 0], [0, 0, 0]])
    with pytest.raises(safeops.SingularityError) as caught:
        safeops.normalize(x, eps=1e-12, policy="raise")
    assert str(caught.value) == (
        "safeops::normalize: policy 'raise' met 2 singular rows of 4 "
        "(zero_norm 1, below_eps 1; first at row 1) "
        "in a float32 tensor of shape [4, 3]; use policy 'zero', 'epsilon' or 'nan' to continue"
    )
    assert isinstance(caught.value, FloatingPointError) and isinstance(caught.value, ValueError)


def test_the_error_carries_its_fields() -> None:
    x = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    with pytest.raises(safeops.SingularityError) as caught:
        safeops.normalize(x, policy="raise")
    error = caught.value
    assert (error.operator, error.condition, error.count, error.first_row) == (
        "normalize",
        "zero_norm",
        1,
        2,
    )
    assert tuple(error.shape) == (3, 2) and identifier(error.dtype) == "float64"


def test_a_call_through_torch_ops_raises_a_value_error_with_the_same_sentence() -> None:
    with pytest.raises(ValueError, match=r"policy 'raise' met 1 singular row.* first at row 0"):
        torch.ops.safeops.normalize(torch.zeros(1, 3), policy="raise")


def singular_backward(g: list[float], policy: str, eps: float = 0.0) -> torch.Tensor:
    """The fused backward kernel on a row of norm 0, next to a regular one."""
    grad = torch.tensor([g, [1.0, 2.0, 3.0]])
    x = torch.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    norm = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    return normalize_backward(grad, x, norm, 2.0, [1], eps, policy)


@pytest.mark.parametrize(
    ("policy", "eps", "at_zero"),
    [("stock", 1e-12, 0), ("epsilon", 1e-3, 0), ("zero", 0, 0), ("raise", 0, 0), ("nan", 0, NAN)],
)
def test_a_zero_gradient_stays_zero_at_a_singular_row(
    policy: str, eps: float, at_zero: float
) -> None:
    grad = singular_backward([0.0, -0.0, 0.0], policy, eps)
    expected = torch.tensor([[at_zero] * 3, [0.0, 1.0, 1.5]])
    torch.testing.assert_close(grad, expected, rtol=0, atol=0, equal_nan=True)
    assert count("zero_norm", "backward") == 1


@pytest.mark.parametrize("g", [[0.0, 1.0, 0.0], [0.0, NAN, 0.0], [math.inf, 0.0, 0.0]])
def test_backward_raises_where_the_gradient_at_a_singular_row_is_not_zero(g: list[float]) -> None:
    with pytest.raises(ValueError, match="normalize.*policy 'raise' met"):
        singular_backward(g, "raise")


@pytest.mark.parametrize("g", [[1.0, -2.0, 3.0], [NAN, 1.0, 0.0], [math.inf, -math.inf, 0.0]])
def test_zero_gives_zero_whatever_comes_in(g: list[float]) -> None:
    assert (singular_backward(g, "zero")[0] == 0).all()


@pytest.mark.parametrize(
    ("p", "dim"), [(2.0, 0), (2.0, (0, 2)), (1.0, 1), (3.0, (1, 2)), (math.inf, 2)]
)
@pytest.mark.parametrize("policy", NOT_RAISING)
def test_row_numbers_and_hits_for_any_dim(
    policy: str, p: float, dim: int | tuple[int, ...]
) -> None:
    skip_without_norm(p)
    x = torch.zeros(3, 4, 5, requires_grad=True)
    y = safeops.normalize(x, p=p, dim=dim, policy=policy)
    y.sum().backward()
    dims = (dim,) if isinstance(dim, int) else dim
    rows = 60 // math.prod(x.shape[d] for d in dims)
    assert counts() == (rows, rows)
    value = NAN if policy == "nan" else 0.0
    slope = {"nan": NAN, "zero": 0.0}.get(policy, 1e12)
    torch.testing.assert_close(
        y.detach(), torch.full_like(x, value), rtol=0, atol=0, equal_nan=True
    )
    torch.testing.assert_close(x.grad, torch.full_like(x, slope), rtol=0, atol=0, equal_nan=True)
