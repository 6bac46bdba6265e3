"""Edges that a review found: each failed before it was mended."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import safeops

OPS = torch.ops.safeops


def gradient(x: torch.Tensor, g: torch.Tensor, **arguments: object) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    safeops.normalize(leaf, **arguments).backward(g)
    return leaf.grad


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradient_of_a_row_far_smaller_than_its_gradient(p: float, dtype: torch.dtype) -> None:
    x = torch.tensor([1e-300, 0, 0], dtype=dtype)
    g = torch.tensor([1e9, 0, 0], dtype=dtype)
    assert gradient(x, g, p=p, dim=0, policy="zero").tolist() == [0, 0, 0]


def test_more_dimensions_than_torch_reduces_over() -> None:
    with pytest.raises(RuntimeError, match="safeops::normalize: input must have at most 64 dim"):
        safeops.normalize(torch.rand([1] * 64 + [4]), dim=0)
    x = torch.rand([1] * 63 + [4])
    torch.testing.assert_close(safeops.normalize(x, dim=-1), F.normalize(x, dim=-1))


def test_the_norm_of_nothing_is_zero() -> None:
    torch.full((1000,), 7.0, dtype=torch.float64)  # freed: memory that is not zero
    _, norm = OPS._normalize_forward(torch.empty(1000, 0), 2.0, [1], 1e-12, "")
    assert norm.eq(0).all()


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_gradient_of_a_zero_row_under_a_huge_eps(p: float) -> None:
    g = torch.full((3,), 1e10, dtype=torch.float64)
    grad = gradient(torch.zeros(3, dtype=torch.float64), g, p=p, dim=0, eps=1e290, policy="stock")
    torch.testing.assert_close(grad, g / 1e290, rtol=1e-15, atol=0)


def test_forward_and_reverse_agree_at_a_zero_row_without_a_floor() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, dim=0, eps=0.0, policy="stock")

    x, t = torch.zeros(3), torch.tensor([1.0, -1.0, 0.0])
    expected = [math.inf, -math.inf, math.nan]
    for got in (gradient(x, t, dim=0, eps=0.0, policy="stock"), torch.func.jvp(run, (x,), (t,))[1]):
        torch.testing.assert_close(got, torch.tensor(expected), equal_nan=True)


@pytest.mark.parametrize("dim", [7, (0, 0)])
def test_meta_out_checks_dims(dim: int | tuple[int, int]) -> None:
    x = torch.empty(2, 3, device="meta")
    with pytest.raises((IndexError, RuntimeError), match="safeops::normalize: dim must"):
        safeops.normalize(x, dim=dim, out=torch.empty(2, 3, device="meta"))


def test_no_dim_means_all_as_in_torch() -> None:
    x = torch.randn(2, 3)
    torch.testing.assert_close(safeops.normalize(x, dim=None), F.normalize(x, dim=None))


def test_refusals_name_the_argument() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(NotImplementedError, match="safeops::normalize: out must be a dense tensor"):
        safeops.normalize(x, out=torch.empty(2, 3).to_sparse())
    with pytest.raises(
        NotImplementedError, match="safeops::normalize: self must be a dense tensor"
    ):
        safeops.normalize(x.to_sparse().requires_grad_())
    jagged = torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged)
    with pytest.raises(
        NotImplementedError, match="safeops.normalize: input must be a dense tensor"
    ):
        safeops.normalize(jagged)


def test_a_norm_too_small_for_float64_is_not_zero() -> None:
    x = torch.ones(1, 20000, dtype=torch.float64)
    safeops.normalize(x, p=-0.01, policy="zero")
    assert safeops.diagnostics.snapshot().total(condition="zero_norm") == 0


@pytest.mark.parametrize("level", [True, 4, -1, 1.0])
def test_levels_are_integers(level: object) -> None:
    with pytest.raises(ValueError, match="level must be 0, 1, 2 or 3"):
        safeops.diagnostics.set_level(level)


def test_strides_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(3)
    for _ in range(300):
        rank = int(torch.randint(1, 5, (), generator=generator))
        shape = torch.randint(1, 4, (rank,), generator=generator).tolist()
        permutation = torch.randperm(rank, generator=generator).tolist()
        x = torch.ones([shape[i] for i in permutation]).permute(
            [permutation.index(i) for i in range(rank)]
        )
        if torch.rand((), generator=generator) < 0.3:
            x = x[..., :1].expand(shape)
        dim = int(torch.randint(rank, (), generator=generator))
        # torch's own CPU and Meta kernels differ from each other in dims of size 1.
        for like in (x, x.to("meta").as_strided(x.shape, x.stride())):
            assert safeops.normalize(like, dim=dim).stride() == F.normalize(like, dim=dim).stride()
