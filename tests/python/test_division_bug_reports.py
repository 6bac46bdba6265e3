"""Public bug reports on quotients, roots and logarithms, with their right values per policy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import safeops
from division_numbers import assert_same_numbers
from division_samples import INF, NAN, values_and_gradients
from samples import NOT_RAISING, POLICIES, counts

Composition = Callable[[torch.Tensor, str], torch.Tensor]


def assert_masked(
    function: Composition,
    x: list[float],
    value: list[float],
    slope: list[float],
    policy: str,
    singular: tuple[int, ...] = (0,),
    raises: bool = True,
) -> None:
    """A mask after the operator: what it selects is `value`, and its derivative `slope`.

    The gradient that arrives at a masked element is 0. Times an infinite slope that is NaN, under
    stock and nan; the other policies pass the 0 on.
    """
    leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    if policy == "raise" and raises:
        with pytest.raises(safeops.SingularityError):
            function(leaf, policy)
        return
    y = function(leaf, policy)
    y.sum().backward()
    assert y.tolist() == pytest.approx(value)
    want = list(slope)
    if policy in ("stock", "nan"):
        for place in singular:
            want[place] = NAN
    torch.testing.assert_close(leaf.grad, torch.tensor(want, dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_041_tensorflow_5562_square_of_a_root(policy: str) -> None:
    # The gradient that arrives at sqrt is 2 * sqrt(0) = 0.
    def square(x: torch.Tensor, policy: str) -> torch.Tensor:
        return safeops.sqrt(x, policy=policy).square()

    if policy == "epsilon":
        x = torch.zeros(1, requires_grad=True)
        square(x, policy).backward()
        assert x.grad.item() == 0
        return
    assert_masked(square, [0.0, 4.0], [0, 4], [0, 1], policy, raises=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_047_keras_io_910_root_of_a_sum_of_squares(policy: str) -> None:
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    y = safeops.sqrt(x.square().sum(1), policy=policy)
    penalty = (y - 1).square().sum()
    if policy == "raise":
        with pytest.raises(ValueError, match="sqrt.*backward"):
            penalty.backward()
    else:
        penalty.backward()
        # x is 0, so what comes from the root is multiplied by 0.
        assert (x.grad == 0).all() if policy in ("zero", "epsilon") else x.grad.isnan().all()
    assert counts("sqrt") == (2 if policy == "epsilon" else 0, 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_049_pytorch_4132_a_mask_after_a_quotient(policy: str) -> None:
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    b = torch.tensor([0.0, 1.0], requires_grad=True)
    if policy == "raise":
        with pytest.raises(safeops.SingularityError, match="div.*1 singular element of 2.*first"):
            safeops.div(x, b, policy=policy)
        return
    y = safeops.div(x, b, policy=policy).clone()
    y[0] = 0
    y.sum().backward()
    first = NAN if policy in ("stock", "nan") else 0
    torch.testing.assert_close(x.grad, torch.tensor([first, 1.0]), equal_nan=True)
    torch.testing.assert_close(b.grad, torch.tensor([first, -1.0]), equal_nan=True)
    assert counts("div") == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_051_pytorch_36923_an_untaken_branch_with_a_quotient(policy: str) -> None:
    def relu(x: torch.Tensor, policy: str) -> torch.Tensor:
        t = torch.zeros_like(x)
        return torch.where(x >= t, x, t * safeops.div(x, t, policy=policy))

    assert_masked(relu, [1.0], [1.0], [1.0], policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_052_pytorch_52248_an_unused_path_has_gradient_zero(policy: str) -> None:
    def unused(a: torch.Tensor, policy: str) -> torch.Tensor:
        return torch.where(a > INF, safeops.div(a, 0.0, policy=policy), 1.0)

    assert_masked(unused, [3.0], [1.0], [0.0], policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_054_pytorch_108618_an_untaken_branch_with_a_logarithm(policy: str) -> None:
    def binary(x: torch.Tensor, policy: str) -> torch.Tensor:
        return torch.where(x > 2, safeops.log(x, policy=policy) / math.log(2), 2 * x)

    assert_masked(binary, [0.0, 8.0], [0.0, 3.0], [2.0, 1 / (8 * math.log(2))], policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_056_pytorch_187297_roots_of_negative_numbers(policy: str) -> None:
    def signed(x: torch.Tensor, policy: str) -> torch.Tensor:
        return torch.where(x > 0, safeops.sqrt(x, policy=policy), x)

    assert_masked(signed, [-1.0, 4.0], [-1.0, 2.0], [1.0, 0.25], policy)


@pytest.mark.parametrize("name", ["div", "reciprocal", "rsqrt", "sqrt", "log"])
def test_br_061_pytorch_128796_what_happens_at_zero_is_documented(name: str) -> None:
    text = getattr(safeops, name).__doc__
    assert all(policy in text for policy in POLICIES)


def test_br_062_keras_23063_gradients_of_divide_no_nan() -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])
    out, (dx, dy) = values_and_gradients("div", (x, y), torch.ones(2), "zero")
    assert (out.tolist(), dx.tolist(), dy.tolist()) == ([0, 1], [0, 0.5], [0, -0.5])


@pytest.mark.parametrize("policy", POLICIES)
def test_br_063_tensorflow_15706_a_mean_over_nothing(policy: str) -> None:
    losses = torch.tensor([3.0, 4.0], requires_grad=True)
    present = torch.tensor([0.0, 0.0])
    total = (losses * present).sum()
    if policy == "raise":
        with pytest.raises(safeops.SingularityError):
            safeops.div(total, present.sum(), policy=policy)
        return
    mean = safeops.div(total, present.sum(), policy=policy)
    mean.backward()
    lost = policy in ("stock", "nan")
    assert math.isnan(mean.item()) if lost else mean.item() == 0
    # Under epsilon 1 / eps arrives at the losses, times their weights of 0.
    assert losses.grad.isnan().all() if lost else losses.grad.tolist() == [0, 0]


def test_br_064_tensorflow_60715_a_hole_has_the_gradient_of_its_table() -> None:
    a = torch.tensor([10.0, 20.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)

    def quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return safeops.div(a, b, policy="zero")

    assert gradcheck(lambda a, b: quotient(a, b)[:1], (a, b))
    assert gradcheck(lambda b: safeops.reciprocal(b, policy="zero")[:1], (b,))
    assert [t.tolist() for t in torch.autograd.grad(quotient(a, b).sum(), (a, b))] == [
        [0.5, 0],
        [-2.5, 0],
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_br_066_tensorflow_38349_where_above_zero(policy: str) -> None:
    def root(y: torch.Tensor, policy: str) -> torch.Tensor:
        return torch.where(y > 0, safeops.sqrt(y, policy=policy), y)

    assert_masked(root, [0.0, 9.0], [0.0, 3.0], [1.0, 1 / 6], policy, raises=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_067_tensorflow_20355_both_branches_are_differentiated(policy: str) -> None:
    def either(x: torch.Tensor, policy: str) -> torch.Tensor:
        left = safeops.reciprocal(1 - x, policy=policy)
        return torch.where(x < 0, left, safeops.log(x + 1, policy=policy))

    assert_masked(either, [1.0, -1.0], [math.log(2), 0.5], [0.5, 0.25], policy, (0, 1))


@pytest.mark.parametrize("policy", POLICIES)
def test_br_068_tensorflow_118674_eager_and_compiled_agree(policy: str) -> None:
    def masked(x: torch.Tensor, policy: str) -> torch.Tensor:
        return torch.where(x > 0, safeops.sqrt(x, policy=policy), 0.0)

    compiled = torch.compile(masked, backend="aot_eager", fullgraph=True)
    for function in (masked, compiled):
        assert_masked(function, [0.0, 4.0], [0.0, 2.0], [0.0, 0.25], policy, raises=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_069_jax_347_a_threshold_on_a_root(policy: str) -> None:
    def threshold(x: torch.Tensor, policy: str) -> torch.Tensor:
        root = safeops.sqrt(x, policy=policy)
        return torch.where(root > 0.5, root, 1.0)

    assert_masked(threshold, [0.0, 1.0], [1.0, 1.0], [0.0, 0.5], policy, raises=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_071_tinygrad_12409_x_times_its_root(policy: str) -> None:
    def power(x: torch.Tensor, policy: str) -> torch.Tensor:
        return torch.where(x == 0, 0.0, x * safeops.sqrt(x, policy=policy))

    assert_masked(power, [0.0, 4.0], [0.0, 8.0], [0.0, 3.0], policy, raises=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_072_mlx_3692_a_masked_root_of_zero(policy: str) -> None:
    mask = torch.tensor([False, True])

    def masked(x: torch.Tensor, policy: str) -> torch.Tensor:
        return torch.where(mask, safeops.sqrt(x, policy=policy), 0.0)

    assert_masked(masked, [0.0, 4.0], [0.0, 2.0], [0.0, 0.25], policy, raises=False)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8])
def test_br_073_074_076_pytorch_22331_integers_over_zero(
    dtype: torch.dtype, policy: str, mode: str
) -> None:
    for a, b, want in (
        ([3, 4], [5, 0], [0, 0]),
        ([1, 2], [0, 0], [0, 0]),
        ([1] * 3, [0] * 3, [0] * 3),
    ):
        x, y = torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)
        if policy == "zero":
            assert safeops.div(x, y, rounding_mode=mode, policy=policy).tolist() == want
        else:
            error = {"raise": safeops.SingularityError, "epsilon": ValueError}
            with pytest.raises(error.get(policy, RuntimeError)):
                safeops.div(x, y, rounding_mode=mode, policy=policy)
        assert counts("div") == (b.count(0), 0)
        if policy in NOT_RAISING:
            # Without a rounding mode the quotient has infinities and NaN.
            got = safeops.div(x, y, policy=policy)
            assert_same_numbers(got, safeops.div(x.float(), y.float(), policy=policy))
            counts("div")


@pytest.mark.parametrize("policy", POLICIES)
def test_br_077_pytorch_92043_a_zero_over_a_tiny_complex_number(policy: str) -> None:
    a = torch.zeros(40, dtype=torch.complex64)
    b, g = torch.full_like(a, 1e-36), torch.ones_like(a)
    y, (da, db) = values_and_gradients("div", (a, b), g, policy, eps=1e-37)
    assert not y.any() and not db.any()
    torch.testing.assert_close(da, torch.full_like(a, 1e36))
    assert counts("div") == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_078_pytorch_52332_the_reciprocal_of_an_infinite_complex_number(policy: str) -> None:
    z = torch.tensor([complex(INF, 0), complex(0, -INF), 2j], dtype=torch.complex64)
    y, (grad,) = values_and_gradients("reciprocal", (z,), torch.ones_like(z), policy)
    assert y.tolist() == [0, 0, -0.5j]
    assert grad.tolist() == [0, 0, 0.25]
    assert counts("reciprocal") == (0, 0)


@pytest.mark.parametrize("policy", ["stock", "nan", "zero", "raise"])
def test_br_081_tensorflow_118644_rsqrt_of_a_subnormal(policy: str) -> None:
    x = torch.full((33,), 1e-40)
    y, (grad,) = values_and_gradients("rsqrt", (x,), torch.full_like(x, 1e-30), policy)
    exact = x.double()
    torch.testing.assert_close(y.double(), exact.rsqrt(), rtol=1e-7, atol=0)
    want = -0.5e-30 * exact.rsqrt() ** 3
    torch.testing.assert_close(grad.double(), want, rtol=1e-6, atol=0)
    assert y[0].item() == pytest.approx(1e20, rel=1e-4) and counts("rsqrt") == (0, 0)


def test_br_081_tensorflow_118644_rsqrt_of_a_subnormal_is_floored_by_epsilon() -> None:
    y = safeops.rsqrt(torch.tensor([1e-40]), policy="epsilon")
    assert y.item() == pytest.approx(1e6, rel=1e-6) and counts("rsqrt") == (1, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_082_pytorch_186618_a_number_divides_as_a_tensor_does(policy: str) -> None:
    numerators = np.arange(0.5, 4000, 0.5, dtype=np.float32)
    x = torch.from_numpy(numerators)
    for divisor in (50.0, 3.0, 49.0, 10.0):
        y, (dx,) = values_and_gradients("div", (x,), torch.ones_like(x), policy, other=divisor)
        assert y.numpy().tolist() == (numerators / np.float32(divisor)).tolist()
        assert dx.unique().tolist() == [float(np.float32(1) / np.float32(divisor))]
        assert_same_numbers(y, safeops.div(x, torch.full_like(x, divisor), policy=policy))
    # As its reciprocal's multiple it would be below.
    assert safeops.div(torch.tensor([49.5]), 50.0).item() == float(
        np.float32(49.5) / np.float32(50)
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_br_083_pytorch_6394_the_root_of_a_square(policy: str) -> None:
    x = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
    y = safeops.sqrt((x - 1).square(), policy=policy)
    if policy == "raise":
        with pytest.raises(ValueError, match="sqrt"):
            y.sum().backward()
        assert counts("sqrt") == (0, 1)
        return
    y.sum().backward()
    floor = math.sqrt(1e-12) if policy == "epsilon" else 0
    assert y.tolist() == [pytest.approx(floor), 2]
    first = NAN if policy in ("stock", "nan") else 0
    torch.testing.assert_close(
        x.grad, torch.tensor([first, 1.0], dtype=torch.float64), equal_nan=True
    )
    assert counts("sqrt") == (int(policy == "epsilon"), 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_084_tensorflow_4914_a_factor_of_zero_under_a_root(policy: str) -> None:
    x = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    y = safeops.sqrt(0.0 * x, policy=policy)
    if policy == "raise":
        with pytest.raises(ValueError, match="sqrt"):
            y.backward()
    else:
        y.backward()
        assert x.grad.isnan() if policy in ("stock", "nan") else x.grad == 0
    assert counts("sqrt")[1] == 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_br_098_pyro_2419_a_safe_logarithm(dtype: torch.dtype, policy: str) -> None:
    floor = torch.finfo(dtype).eps
    x = torch.tensor([0.0, floor, 1.0], dtype=dtype)
    if policy == "raise":
        with pytest.raises(safeops.SingularityError):
            safeops.log(x, eps=floor, policy=policy)
        return
    y, (grad,) = values_and_gradients("log", (x,), torch.ones_like(x), policy, eps=floor)
    value = {"stock": -INF, "nan": NAN, "epsilon": math.log(floor), "zero": 0.0}[policy]
    slope = {"stock": INF, "nan": NAN}.get(policy, 0.0)
    torch.testing.assert_close(
        y, torch.tensor([value, math.log(floor), 0], dtype=dtype), equal_nan=True
    )
    # A floor of finfo.eps keeps the slope in range even in float16.
    want = torch.tensor([slope, 1 / floor, 1], dtype=dtype)
    torch.testing.assert_close(grad, want, equal_nan=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_099_pytorch_1620_the_logarithm_of_softmax(policy: str) -> None:
    scores = torch.tensor([0.0, 50.0, -200.0], requires_grad=True)
    fused = safeops.log_softmax(scores, 0, policy=policy)
    fused[2].backward()
    torch.testing.assert_close(fused, torch.tensor([-50.0, 0.0, -250.0]))
    torch.testing.assert_close(scores.grad, torch.tensor([0.0, -1.0, 1.0]))
    weights = torch.softmax(scores, 0)
    assert weights[2] == 0
    if policy == "raise":
        with pytest.raises(safeops.SingularityError, match="log.*first"):
            safeops.log(weights, policy=policy)
        return
    (grad,) = torch.autograd.grad(safeops.log(weights, policy=policy).sum(), scores)
    # Finite, though not what the fused operator knows.
    assert grad.isnan().any() if policy in ("stock", "nan") else grad.isfinite().all()
