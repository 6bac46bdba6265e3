"""Public bug reports on softmax and its family, each with its right value under each policy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import safeops
import softmax_reference as reference
from reference import widen
from samples import NOT_RAISING, POLICIES, assert_same_bits, count, counts
from softmax_samples import (
    EMPTY_SLOPE,
    EMPTY_VALUE,
    INF,
    LOGITS,
    NAMES,
    call,
    incoming,
    kept,
    logits,
    value_and_gradient,
)

SAME = {"rtol": 0, "atol": 0, "equal_nan": True}


def assert_empty(name: str, x: torch.Tensor, policy: str, **rest: object) -> None:
    """Every row of x is empty."""
    rows = x.numel() // x.shape[-1]
    if policy == "raise":
        with pytest.raises(
            safeops.SingularityError, match=rf"{name}.*met {rows} singular rows? of {rows}"
        ):
            call(name, x, policy=policy, **rest)
        return
    y, grad = value_and_gradient(name, x, torch.ones_like(incoming(name, x)), policy, **rest)
    where = rest.get("where")
    value = EMPTY_VALUE[name][policy]
    if name == "log_softmax" and policy == "epsilon":
        assert torch.equal(y.isinf(), torch.zeros_like(x).bool() if where is None else ~where)
    else:
        torch.testing.assert_close(y, torch.full_like(y, value), **SAME)
    slope = torch.full_like(grad, EMPTY_SLOPE[policy])
    if where is not None:
        slope = slope.masked_fill(~where.expand(x.shape), 0)
    torch.testing.assert_close(grad, slope, **SAME)
    assert counts(name) == (rows, rows)


def assert_regular(name: str, x: torch.Tensor, policy: str, dim: int = -1) -> torch.Tensor:
    """Value and gradient are the true ones, and nothing is counted."""
    g = incoming(name, x, dim)
    y, grad = value_and_gradient(name, x, g, policy, dim)
    want = reference.value(name, widen(x), dim, policy)
    assert reference.value_errors(name, kept(name, y, dim), want).max() <= 1
    stored = None if name == "logsumexp" else widen(y)
    errors = reference.gradient_errors(
        name, grad, widen(x), widen(kept(name, g, dim)), dim, None, stored
    )
    assert errors.max() <= 1
    assert counts(name) == (0, 0)
    return y


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_br_102_pytorch_25110_a_row_of_minus_infinity(name: str, policy: str) -> None:
    assert_empty(name, torch.full((1, 3), -INF), policy)


def test_br_102_pytorch_25110_it_warns() -> None:
    with pytest.warns(safeops.SingularityWarning, match="1 of 1 rows are singular"):
        safeops.softmax(torch.full((3,), -INF), 0)


def test_br_103_pytorch_55056_softmax_with_an_eps() -> None:
    x = torch.tensor([[-INF, -INF], [0.0, 0.0]])
    y = safeops.softmax(x, -1, eps=1e-5, policy="epsilon")
    assert y.tolist() == [[0, 0], [0.5, 0.5]]


def test_br_104_pytorch_106545_the_uniform_limit_is_finite_minimum_not_minus_infinity() -> None:
    lowest = torch.finfo(torch.float32).min
    assert safeops.softmax(torch.tensor([lowest, lowest]), 0, policy="raise").tolist() == [0.5] * 2
    assert safeops.softmax(torch.tensor([-INF, -INF]), 0, policy="zero").tolist() == [0, 0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_br_106_pytorch_31829_gradient_at_minus_infinity(name: str, policy: str) -> None:
    assert_empty(name, torch.tensor([[-INF, -INF]]), policy)
    assert_regular(name, torch.tensor([[-INF, 0.0]]), policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_107_pytorch_49724_logaddexp_of_minus_infinities(policy: str) -> None:
    a, b = torch.full((1,), -INF), torch.full((1,), -INF)
    assert_empty("logsumexp", torch.stack([a, b], 1), policy)


@pytest.mark.parametrize("policy", ["zero", "epsilon"])
def test_br_108_jax_6811_dynamic_programming_over_minus_infinity(policy: str) -> None:
    # The forward algorithm: most states are out of reach in the first steps.
    moves = torch.tensor([[0.1, -0.7, -INF], [-INF, 0.2, -0.3], [-INF, -INF, 0.0]])
    moves.requires_grad_()
    state = torch.tensor([0.0, -INF, -INF])
    for _ in range(4):
        state = safeops.logsumexp(state[:, None] + moves, 0, policy=policy)
    state[2].backward()
    assert moves.grad.isfinite().all()
    # Three paths of four steps to the last state, from paths of 0 -> 1 -> 2.
    again = moves.detach().double().exp()
    again[again == 0] = 0
    power = torch.linalg.matrix_power(again, 4)
    torch.testing.assert_close(state[2].double(), power[0, 2].log())
    assert moves.grad[1, 0] == 0 and moves.grad[0, 1] > 0


def prefixes(x: torch.Tensor) -> torch.Tensor:
    """logcumsumexp, row by row of a lower triangle."""
    part = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    return safeops.logsumexp(x.expand(len(x), -1), -1, where=part, policy="zero")


def test_br_109_tinygrad_17853_a_prefix_that_is_masked() -> None:
    x = torch.tensor([-INF, -INF, 0.0], requires_grad=True)
    y = prefixes(x)
    assert y.tolist() == [-INF, -INF, 0]
    y[2].backward()
    assert x.grad.tolist() == [0, 0, 1]


@pytest.mark.parametrize("policy", POLICIES)
def test_br_111_jax_17070_entropy_of_a_masked_softmax(policy: str) -> None:
    x = torch.tensor([[0.5, 2.0, -1.0]], requires_grad=True)
    where = torch.tensor([[True, True, False]])
    p = safeops.softmax(x, -1, where=where, policy=policy)
    q = safeops.log_softmax(x, -1, where=where, policy=policy)
    entropy = -torch.where(where, p * q, torch.zeros_like(p)).sum()
    entropy.backward()
    assert x.grad.isfinite().all() and x.grad[0, 2] == 0 and (x.grad[0, :2] != 0).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_br_112_keras_21149_and_br_114_allennlp_890_a_mask_that_is_all_false(
    name: str, policy: str
) -> None:
    where = torch.zeros(1, 4, dtype=torch.bool)
    assert_empty(name, torch.tensor([[1.0, 2.0, 3.0, 4.0]]), policy, where=where)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", LOGITS)
def test_br_113_tensorflow_11756_minus_infinity_by_selection(name: str, policy: str) -> None:
    x = torch.tensor([1.5, 2.0], requires_grad=True)
    y = call(name, x, 0, where=torch.tensor([True, False]), policy=policy)
    y[0].backward()
    assert x.grad.tolist() == [0, 0]


@pytest.mark.parametrize("name", LOGITS)
def test_br_116_pytorch_71502_a_real_nan_is_not_hidden_with_the_empty_rows(name: str) -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, math.nan], [1.0, 2.0]])
    where = torch.tensor([[False, False], [True, True], [True, True]])
    _, grad = value_and_gradient(name, x, torch.ones(3, 2), "zero", where=where)
    assert (grad[0] == 0).all() and grad[1].isnan().all() and grad[2].isfinite().all()
    assert count("nonfinite_input", "forward", name) == 1
    assert counts(name) == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_117_pytorch_111416_masked_log_softmax_in_half(policy: str) -> None:
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float16)
    where = torch.zeros(1, 3, dtype=torch.bool)
    assert_empty("log_softmax", x, policy, where=where)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_118_pytorch_96602_equal_halves_in_a_long_row(policy: str) -> None:
    y = assert_regular("softmax", torch.full((2, 12416), 0.06, dtype=torch.float16), policy)
    assert (y == y[0, 0]).all() and y.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_br_119_pytorch_147284_every_width_from_513_to_1023(dtype: torch.dtype) -> None:
    for width in range(513, 1024):
        zeros = torch.zeros(2, width, dtype=dtype)
        y = safeops.softmax(zeros, -1, policy="raise")
        assert (y == torch.tensor(1 / width, dtype=dtype)).all()
        y = safeops.softmax(logits(dtype, (2, width)), -1, policy="raise")
        assert abs(widen(y).sum(1) - 1).max() <= width * torch.finfo(dtype).eps


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", LOGITS)
def test_br_121_pytorch_30572_half_to_single_over_a_dim_that_is_not_last(
    name: str, policy: str
) -> None:
    x = logits(torch.float16, (2, 3, 4)).requires_grad_()
    y = call(name, x, 1, dtype=torch.float32, policy=policy)
    g = logits(torch.float32, (2, 3, 4), seed=2)
    (grad,) = torch.autograd.grad(y, x, g)
    assert y.dtype is torch.float32 and grad.dtype is torch.float16
    want = reference.gradient(name, widen(x), widen(g), 1)
    np.testing.assert_allclose(widen(grad), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_br_122_pytorch_17262_rows_without_elements(name: str, policy: str) -> None:
    x = torch.randn(10, 0, requires_grad=True)
    y = call(name, x, policy=policy)
    assert y.tolist() == ([-INF] * 10 if name == "logsumexp" else [[]] * 10)
    y.sum().backward()
    assert x.grad.shape == (10, 0) and counts(name) == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_br_123_apex_1568_a_transposed_input(name: str, policy: str) -> None:
    x = logits(torch.float32, (37, 53))
    y = assert_regular(name, x.t(), policy)
    torch.testing.assert_close(y, call(name, x.t().contiguous()))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scale", [1e14, 1e30, -1e14])
@pytest.mark.parametrize("name", NAMES)
def test_br_124_pytorch_163932_logits_times_a_huge_scale(
    name: str, scale: float, policy: str
) -> None:
    # Compiled and eager: test_softmax_compile.py.
    y = assert_regular(name, logits(torch.float32, (4, 7)) * scale, policy)
    if name == "softmax":
        assert torch.equal(y.sum(-1), torch.ones(4)) and ((y == 0) | (y == 1)).all()


def test_br_126_pytorch_22586_gumbel_noise_of_infinity() -> None:
    noise = torch.tensor([[INF, 0.3], [0.1, 0.2]])
    y = safeops.softmax(noise, -1, policy="zero")
    assert y[0].isnan().all() and y[1].isfinite().all()
    assert count("nonfinite_input", "forward", "softmax") == 1


def test_br_127_pytorch_184031_a_temperature_of_zero() -> None:
    x = torch.tensor([[1.0, 0.0, -2.0]])
    y = safeops.softmax(x / 0.0, -1, policy="zero")
    assert y.isnan().all() and count("nonfinite_input", "forward", "softmax") == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_br_128_optax_1762_the_tangent_of_a_label_with_a_neighbour_of_minus_infinity(
    policy: str,
) -> None:
    x = torch.tensor([-INF, 0.0, 0.0])
    tangent = torch.tensor([1.0, 1.0, 0.0])

    def loss(t: torch.Tensor) -> torch.Tensor:
        return -safeops.log_softmax(t, 0, policy=policy)[1]

    value, slope = torch.func.jvp(loss, (x,), (tangent,))
    torch.testing.assert_close(value, torch.tensor(math.log(2)))
    torch.testing.assert_close(slope, torch.tensor(-0.5))


@pytest.mark.parametrize("name", LOGITS)
def test_br_129_pytorch_geometric_2274_groups_do_not_see_each_other(name: str) -> None:
    x = torch.tensor([1.0, -1.0, -INF, 50.0])
    groups = torch.tensor([[True, True, False, False], [False, False, True, True]])
    y = call(name, x.expand(2, -1), where=groups, policy="zero")
    alone = torch.stack([call(name, x[:2]), call(name, x[2:])])
    assert_same_bits(y[groups].view(2, 2), alone)


# Attention with rows that are fully masked


def attention(
    scores: torch.Tensor, value: torch.Tensor, where: torch.Tensor, policy: str
) -> torch.Tensor:
    return safeops.softmax(scores, -1, where=where, policy=policy) @ value


@pytest.mark.parametrize("policy", ["zero", "epsilon"])
def test_br_131_pytorch_40932_and_others_a_sample_of_padding_alone(policy: str) -> None:
    # The same in BR-132 to BR-134, BR-138, BR-139, BR-141 to BR-144, BR-149 and BR-151.
    scores = logits(torch.float32, (2, 3, 4)).requires_grad_()
    value = logits(torch.float32, (2, 4, 5), seed=2).requires_grad_()
    where = torch.tensor([[True, True, True, False], [False] * 4])[:, None, :]
    y = attention(scores, value, where, policy)
    y.sum().backward()
    assert (y[1] == 0).all() and (scores.grad[1] == 0).all() and (value.grad[1] == 0).all()
    assert y[0].isfinite().all() and (scores.grad[0, :, :3] != 0).all()
    assert (scores.grad[0, :, 3] == 0).all()
    assert counts("softmax") == (3, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_br_134_pytorch_103963_boolean_and_additive_masks_agree(policy: str) -> None:
    x = logits(torch.float32, (6, 9))
    where = torch.arange(54).view(6, 9) % 4 != 1
    additive = torch.zeros(6, 9).masked_fill(~where, -INF)
    assert_same_bits(
        safeops.softmax(x, -1, where=where, policy=policy),
        safeops.softmax(x + additive, -1, policy=policy),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("policy", POLICIES)
def test_br_136_pytorch_109517_a_row_of_finite_minima_is_uniform(
    policy: str, dtype: torch.dtype
) -> None:
    x = torch.full((1, 8), torch.finfo(dtype).min, dtype=dtype)
    y, grad = value_and_gradient("softmax", x, logits(dtype, (1, 8)), policy)
    assert (y == 0.125).all() and grad.isfinite().all()
    assert count("finite_min_row", "forward", "softmax") == 1
    assert counts("softmax") == (0, 0)


@pytest.mark.parametrize("name", LOGITS)
def test_br_137_pytorch_101967_nan_in_masked_scores_does_not_leak(name: str) -> None:
    x = torch.tensor([[1.0, math.nan, 2.0]])
    where = torch.tensor([True, False, True])
    y, grad = value_and_gradient(
        name, x, torch.tensor([[1.0, math.nan, -2.0]]), "zero", where=where
    )
    assert y[0, where].isfinite().all() and grad.isfinite().all() and grad[0, 1] == 0
    assert count("nonfinite_input", "forward", name) == 0


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_br_138_pytorch_156707_plus_infinity_is_not_taken_for_minus_infinity(
    name: str, policy: str
) -> None:
    x = torch.tensor([[0.0, INF], [INF, INF], [-INF, -INF]])
    y = call(name, x, policy=policy)
    want = INF if name == "logsumexp" else math.nan
    torch.testing.assert_close(y[:2], torch.full_like(y[:2], want), **SAME)
    assert counts(name) == (1, 0)


@pytest.mark.parametrize("name", LOGITS)
def test_br_146_openvino_36016_emptiness_is_told_by_the_input(name: str) -> None:
    x = torch.tensor([[math.nan, -INF], [-INF, -INF]])
    y = call(name, x, policy="zero")
    assert y[0].isnan().all() and not y[1].isnan().any()


@pytest.mark.parametrize("policy", ["zero", "epsilon"])
def test_br_147_brevitas_1591_gradients_through_an_empty_row(policy: str) -> None:
    x = torch.full((1, 4), -INF, requires_grad=True)
    y = safeops.softmax(x, -1, policy=policy)
    (y * torch.tensor([[math.nan, INF, 1.0, 0.0]])).nan_to_num().sum().backward()
    assert x.grad.tolist() == [[0] * 4]


def test_br_148_cubecl_1070_a_nan_on_one_side_is_an_error_of_the_oracle() -> None:
    y = torch.tensor([[0.25, 0.25, 0.25, 0.25]])
    want = widen(torch.tensor([[math.nan, 0.25, 0.25, 0.25]]))
    assert reference.value_errors("softmax", y, want).max() == INF


@pytest.mark.parametrize("policy", POLICIES)
def test_the_logarithm_of_softmax_belongs_into_log_softmax(policy: str) -> None:
    x = torch.tensor([[0.0, -200.0]], requires_grad=True)
    y = safeops.log_softmax(x, -1, policy=policy)
    y[0, 1].backward()
    assert y.tolist() == [[0, -200]] and x.grad.tolist() == [[-1, 1]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_an_infinity_beside_a_zero(name: str, policy: str) -> None:
    y, grad = value_and_gradient(
        name, torch.tensor([0.0, INF]), incoming(name, torch.zeros(2)), policy
    )
    if name == "logsumexp":
        assert y == INF and grad[0] == 0 and grad[1].isnan()
    else:
        assert y.isnan().all() and grad.isnan().all()
    assert counts(name) == (0, 0)
