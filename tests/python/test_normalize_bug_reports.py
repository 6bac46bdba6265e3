"""Public bug reports on normalising by a norm, each with its right value under each policy."""

from __future__ import annotations

import math

import pytest
import torch

import safeops
from reference import forward_bound, gradient, normalize, ulps, widen
from samples import NOT_RAISING, assert_same_bits, count, counts, value_and_gradient

UNGUARDED = ("nan", "zero", "raise")


def singular_values(policy: str, eps: float | None = None) -> tuple[float, float]:
    """Every element of a zero row and of its gradient, for an incoming gradient of ones."""
    return {"nan": (math.nan, math.nan), "zero": (0, 0)}.get(policy, (0, 1 / (eps or 1e-12)))


def assert_zero_row(
    x: torch.Tensor, row: int, policy: str, eps: float | None = None, **arguments: object
) -> None:
    """Row `row` is zero: policy decides it, and every other row is what it is alone."""
    g = torch.ones_like(x)
    if policy == "raise":
        with pytest.raises(
            safeops.SingularityError, match=rf"met 1 singular row of {len(x)} .*first at row {row}"
        ):
            safeops.normalize(x, eps=eps, policy=policy, **arguments)
        return
    y, grad = value_and_gradient(x, g, policy, eps=eps, **arguments)
    value, slope = singular_values(policy, eps)
    same = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(y[row], torch.full_like(y[row], value), **same)
    torch.testing.assert_close(grad[row], torch.full_like(grad[row], slope), **same)
    assert counts() == (1, 1)
    others = [i for i in range(len(x)) if i != row]
    if others:
        alone, alone_grad = value_and_gradient(x[others], g[others], policy, eps=eps, **arguments)
        assert_same_bits(y[others], alone)
        assert_same_bits(grad[others], alone_grad)


def assert_regular(
    x: torch.Tensor, policy: str, p: float = 2.0, dim: int | tuple[int, ...] = -1
) -> None:
    """Value and gradient are the true ones, and nothing is counted."""
    g = torch.linspace(-1, 2, x.numel(), dtype=torch.float64).view(x.shape).to(x.dtype)
    y, grad = value_and_gradient(x, g, policy, p=p, dim=dim)
    length = x.numel() if isinstance(dim, tuple) else x.shape[dim]
    want_y = normalize(widen(x), p, dim, 0.0, policy)
    want_grad = gradient(widen(x), widen(g), p, dim, 0.0, policy)
    assert ulps(y, want_y).max() <= forward_bound(x.dtype, p, length)
    # A rounding of y counts p - 1 times in the slope y**(p - 1).
    assert ulps(grad, want_grad, abs(want_grad).max()).max() <= 8 + p
    assert counts() == (0, 0)


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero", "raise"])
def test_br_001_pytorch_184575_zero_row(policy: str) -> None:
    assert_zero_row(torch.zeros(1, 3), 0, policy)


@pytest.mark.parametrize("policy", ["nan", "epsilon", "zero", "raise"])
def test_br_002_pytorch_32137_half_default_eps_is_not_zero(policy: str) -> None:
    eps = 2.0**-14 if policy == "epsilon" else None
    assert_zero_row(torch.zeros(1, 4, dtype=torch.float16), 0, policy, eps)


def test_br_002_pytorch_32137_half_stock_value_is_zero() -> None:
    assert (
        safeops.normalize(torch.zeros(4, dtype=torch.float16), dim=0, policy="stock").tolist()
        == [0] * 4
    )


def test_br_003_pytorch_33596_half_eps_whose_reciprocal_overflows_is_refused() -> None:
    x = torch.zeros(1, dtype=torch.float16)
    with pytest.raises(ValueError, match="normalize.*eps.*1e-05"):
        safeops.normalize(x, dim=0, eps=1e-5, policy="epsilon")
    _, grad = value_and_gradient(x, torch.ones_like(x), "epsilon", dim=0, eps=1e-4)
    assert grad.item() == torch.tensor(1e4, dtype=torch.float16).item()


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero", "raise"])
def test_br_004_pytorch_3264_zero_elements_of_a_nonzero_row_with_p_1(policy: str) -> None:
    x = torch.tensor([[0, 0, 0.2]])
    y, grad = value_and_gradient(x, torch.tensor([[1.0, 2, 3]]), policy, p=1.0)
    assert y.tolist() == [[0, 0, 1]]
    torch.testing.assert_close(grad, torch.tensor([[5.0, 10, 0]]))
    assert counts() == (0, 0)


@pytest.mark.parametrize("policy", UNGUARDED)
def test_br_006_kornia_3952_tiny_quaternion_is_unit(policy: str) -> None:
    assert safeops.normalize(torch.tensor([1e-13, 0, 0, 0]), dim=-1, policy=policy).tolist() == [
        1,
        0,
        0,
        0,
    ]
    assert count() == 0


@pytest.mark.parametrize("policy", ["stock", "epsilon"])
def test_br_006_kornia_3952_tiny_quaternion_below_eps_is_reported(policy: str) -> None:
    y = safeops.normalize(torch.tensor([1e-13, 0, 0, 0]), dim=-1, policy=policy)
    torch.testing.assert_close(y, torch.tensor([0.1, 0, 0, 0]))
    assert count("below_eps") == 1


@pytest.mark.parametrize("policy", ["nan", "epsilon", "zero", "raise"])
def test_br_007_kornia_4021_half_zero_quaternion(policy: str) -> None:
    x = torch.tensor([[0, 0, 0, 0], [0, 3, 0, 4]], dtype=torch.float16)
    assert_zero_row(x, 0, policy, 2.0**-14 if policy == "epsilon" else None)


def test_br_007_kornia_4021_explicit_eps_of_zero_is_no_guard() -> None:
    x = torch.zeros(4, dtype=torch.float16)
    assert safeops.normalize(x, dim=0, eps=0.0, policy="stock").isnan().all()
    assert safeops.normalize(x, dim=0, eps=0.0, policy="zero").tolist() == [0] * 4


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero", "raise"])
def test_br_008_kornia_3966_half_identity_quaternion_is_healthy(policy: str) -> None:
    assert_regular(torch.tensor([1, 0, 0, 0], dtype=torch.float16), policy)


@pytest.mark.parametrize(
    ("policy", "value"), [("stock", 0), ("nan", math.nan), ("epsilon", 0), ("zero", 0)]
)
def test_br_009_diffusers_13316_half_zero_channel_slice(policy: str, value: float) -> None:
    x = torch.tensor([[[0, 1], [0, -2]]], dtype=torch.float16)
    y = safeops.normalize(x, dim=1, policy=policy)
    torch.testing.assert_close(y[0, :, 0], torch.full_like(y[0, :, 0], value), equal_nan=True)
    torch.testing.assert_close(y[0, :, 1], torch.tensor([1, -2]).to(y) / 5**0.5)
    assert count("zero_norm") == 1


@pytest.mark.parametrize("policy", UNGUARDED)
def test_br_011_emerging_optimizers_230_small_matrix_keeps_scale_invariance(policy: str) -> None:
    x = torch.tensor([[1.0, 2], [3, -4]])
    assert_regular(x * 1e-10, policy, dim=(-2, -1))
    y = safeops.normalize(x * 1e-10, dim=(-2, -1), policy=policy)
    torch.testing.assert_close(y, safeops.normalize(x, dim=(-2, -1), policy=policy))


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_br_011_emerging_optimizers_230_clamped_matrix_is_reported(policy: str) -> None:
    x = torch.tensor([[1.0, 2], [3, -4]]) * 1e-10
    y = safeops.normalize(x, dim=(-2, -1), eps=1e-7, policy=policy)
    expected = {"nan": torch.full_like(x, math.nan), "zero": torch.zeros_like(x)}.get(
        policy, x / 1e-7
    )
    torch.testing.assert_close(y, expected, equal_nan=True)
    assert count("below_eps") == 1


@pytest.mark.parametrize("policy", UNGUARDED)
def test_br_012_emerging_optimizers_238_squares_below_range(policy: str) -> None:
    assert_regular(torch.full((16,), 1e-25), policy)


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero", "raise"])
def test_br_013_pytorch_193006_squares_above_range(policy: str) -> None:
    x = torch.tensor([1e20, 1, 1])
    y = safeops.normalize(x, dim=0, policy=policy)
    torch.testing.assert_close(y, torch.tensor([1, 1e-20, 1e-20]), rtol=1e-7, atol=0)
    assert_regular(x, policy)


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero", "raise"])
def test_br_014_keras_23075_guard_reaches_the_gradient(policy: str) -> None:
    assert_zero_row(torch.tensor([[0.0, 0, 0], [1, 2, 2]]), 0, policy)


@pytest.mark.parametrize("policy", ["stock", "nan", "epsilon", "zero", "raise"])
def test_br_016_tensorflow_35257_zero_row_with_p_1(policy: str) -> None:
    assert_zero_row(torch.tensor([[1.0, -1, 2, 0], [0, 0, 0, 0]]), 1, policy, p=1.0)


@pytest.mark.parametrize(
    ("policy", "slope"), [("stock", 1e12), ("nan", math.nan), ("epsilon", 1e12), ("zero", 0)]
)
def test_br_017_chainer_4769_gradient_of_a_zero_row(policy: str, slope: float) -> None:
    _, grad = value_and_gradient(torch.zeros(2, 3), torch.tensor([[1.0, 1, 1], [0, -2, 0]]), policy)
    expected = torch.tensor([[1.0, 1, 1], [0, -2, 0]]) * slope
    torch.testing.assert_close(grad, expected, rtol=1e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("policy", ["stock", "epsilon"])
def test_br_018_chainer_4190_gradient_knows_eps(policy: str) -> None:
    x = torch.tensor([[1e-3, 0]], dtype=torch.float64)
    g = torch.tensor([[3.0, -5.0]], dtype=torch.float64)
    y, grad = value_and_gradient(x, g, policy, eps=1e-2)
    torch.testing.assert_close(y, x / 1e-2)
    torch.testing.assert_close(grad, g / 1e-2)
    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: safeops.normalize(t, eps=1e-2, policy=policy), leaf)


@pytest.mark.parametrize("p", [50.0, 100.0, 400.0])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_br_019_pytorch_135428_complex_with_large_p(dtype: torch.dtype, p: float) -> None:
    for scale in (1e-10, 1.0, 1e10):
        assert_regular(
            torch.tensor([3 + 4j, -1 + 2j, 5j, 4.9 - 0.1j]).to(dtype) * scale, "zero", p=p
        )


@pytest.mark.parametrize("policy", UNGUARDED)
def test_br_021_matrixone_29083_tiny_and_huge_rows(policy: str) -> None:
    assert_regular(torch.tensor([[3e38, 3e38]]), policy)
    assert_regular(torch.tensor([[1.0, -2, 3]]) * 1e-30, policy)


@pytest.mark.parametrize("policy", UNGUARDED)
def test_br_022_physicsnemo_1883_mesh_normals(policy: str) -> None:
    assert_regular(torch.tensor([[1.0, -2, 2]]) * 1e-25, policy)
    assert_zero_row(torch.tensor([[0.0, 0, 1], [0, 0, 0]]), 1, policy)


@pytest.mark.parametrize("policy", UNGUARDED)
def test_br_023_keras_6513_tiny_row_is_not_infinite(policy: str) -> None:
    assert_regular(torch.full((5,), 1e-23), policy)


def test_br_024_pytorch_181693_near_zero_rows_are_the_same_compiled() -> None:
    data = torch.randn(64, 4096)
    mean = (data - data.mean(1, keepdim=True)).mean(1).view(8, 8)
    mean[3] *= 1e-9
    run = torch.compile(
        lambda t: safeops.normalize(t, dim=1, policy="stock"), backend="aot_eager", fullgraph=True
    )
    eager = safeops.normalize(mean, dim=1, policy="stock")
    assert counts()[0] == 1
    assert_same_bits(run(mean), eager)
    assert counts()[0] == 1
