"""`where=`: what takes no part is not read, gets no gradient, and is not copied."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import safeops
import softmax_reference as reference
from reference import widen
from samples import LAYOUTS, NOT_RAISING, POLICIES, REAL, assert_same_bits, counts, identifier
from softmax_samples import (
    INF,
    LOGITS,
    NAMES,
    call,
    incoming,
    kept,
    logits,
    some_mask,
    stock,
    value_and_gradient,
    wide,
)

SHAPE = (2, 3, 2, 4)


def mask_shapes() -> list[tuple[int, ...]]:
    """Every shape that broadcasts to a part of SHAPE, with as many dims or fewer."""
    shapes = []
    for first in range(len(SHAPE) + 1):
        shapes += itertools.product(*[(1, size) for size in SHAPE[first:]])
    return shapes


def expected_value(
    name: str, x: torch.Tensor, mask: torch.Tensor, dim: int, policy: str
) -> torch.Tensor:
    """PyTorch's answer to the input with -inf in the place of what takes no part."""
    y = stock(name, x.masked_fill(~mask, -INF), dim)
    if policy == "zero" and name != "logsumexp":
        masked = 0.0 if name == "softmax" else -INF
        empty = (x.masked_fill(~mask, -INF) == -INF).all(dim, keepdim=True)
        y = y.masked_fill(empty, masked)
    return y


@pytest.mark.parametrize("dim", [3, 1, 0])
@pytest.mark.parametrize("name", NAMES)
def test_every_broadcast_shape(name: str, dim: int) -> None:
    x = logits(torch.float64, SHAPE)
    g = incoming(name, x, dim)
    cases = 0
    for shape in mask_shapes():
        where = torch.rand(shape, generator=torch.Generator().manual_seed(cases)) < 0.6
        mask = where.expand(SHAPE)
        for policy in ("stock", "zero"):
            y, grad = value_and_gradient(name, x, g, policy, dim, where=where)
            want = expected_value(name, x, mask, dim, policy)
            torch.testing.assert_close(y, want, rtol=1e-13, atol=1e-13, equal_nan=True)
            want_grad = reference.gradient(
                name, widen(x), wide(name, g, dim), dim, policy, mask, None
            )
            np.testing.assert_allclose(widen(grad), want_grad, rtol=1e-12, atol=1e-13)
            assert (grad[~mask] == 0).all()
        cases += 1
    assert cases == 31


def test_shapes_of_fewer_dims() -> None:
    cases = 0
    for rank in range(4):
        shape = SHAPE[:rank]
        x = logits(torch.float32, shape)
        for sizes in itertools.product(*[(1, size) for size in shape]):
            where = some_mask(sizes)
            for name in NAMES:
                y = call(name, x, 0, where=where, policy="zero")
                want = expected_value(name, x, where.expand(shape), 0, "zero")
                torch.testing.assert_close(y, want)
            cases += 1
    assert cases == 15


GARBAGE = {
    "NaN": math.nan,
    "inf": INF,
    "-inf": -INF,
    "largest": None,
    "ordinary": 3.0,
}


def with_garbage(x: torch.Tensor, where: torch.Tensor, garbage: str) -> torch.Tensor:
    number = GARBAGE[garbage]
    if number is None:
        number = torch.finfo(x.dtype).max
    return torch.where(where, x, torch.full_like(x, number))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("columns", [3, 17, 300])
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_what_takes_no_part_is_not_read(
    name: str, dtype: torch.dtype, columns: int, policy: str
) -> None:
    x, where = logits(dtype, (6, columns)), some_mask((6, columns))
    if policy != "raise":
        where[2] = False
        x[4] = -INF
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, policy, where=where)
    for garbage in GARBAGE:
        other_g = with_garbage(g, where, garbage) if name != "logsumexp" else g
        other_y, other_grad = value_and_gradient(
            name, with_garbage(x, where, garbage), other_g, policy, where=where
        )
        assert_same_bits(other_y, y)
        assert_same_bits(other_grad, grad)
    assert (grad[~where] == 0).all()
    safeops.diagnostics.reset()
    call(name, with_garbage(x, where, "NaN"), where=where, policy="zero")
    snapshot = safeops.diagnostics.snapshot()
    assert snapshot.total(name, "nonfinite_input") == 0
    assert snapshot.total(name) == (0 if policy == "raise" else 2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("spoil", [math.nan, INF])
@pytest.mark.parametrize("name", LOGITS)
def test_a_row_that_is_not_finite_keeps_what_is_masked(
    name: str, spoil: float, policy: str
) -> None:
    x = torch.tensor([[spoil, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
    where = torch.tensor([True, True, False, True])
    y, grad = value_and_gradient(name, x, torch.ones(2, 4), policy, where=where)
    assert y[0, where].isnan().all()
    assert y[0, 2] == (0 if name == "softmax" else -INF)
    assert grad[0, where].isnan().all() and grad[0, 2] == 0
    assert not y[1].isnan().any()
    assert counts(name) == (0, 0)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", LOGITS)
def test_masked_elements_of_an_empty_row(name: str, policy: str) -> None:
    x = torch.tensor([[-INF, 5.0, -INF], [1.0, 2.0, 3.0]])
    where = torch.tensor([[True, False, True], [False, False, False]])
    y, grad = value_and_gradient(name, x, torch.ones(2, 3), policy, where=where)
    if policy in ("stock", "nan"):
        assert y.isnan().all()
        assert grad[0].isnan().tolist() == [True, False, True]
    else:
        neutral = 0.0 if name == "softmax" else -INF
        floor = math.log(1e-12) if (name, policy) == ("log_softmax", "epsilon") else neutral
        want = torch.tensor([[floor, neutral, floor], [neutral] * 3])
        torch.testing.assert_close(y, want)
        assert (grad == 0).all()
    assert (grad[~where] == 0).all()
    assert counts(name) == (2, 2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_a_mask_that_is_all_true_changes_no_bit(name: str, dtype: torch.dtype, policy: str) -> None:
    # Masked rows are staged and others are walked where they lie: both must be the same sum.
    for shape, dim in (((40, 3), 1), ((20, 70), 1), ((5, 700), 1), ((7, 5, 6), 1), ((2, 9000), 1)):
        x = logits(dtype, shape)
        g = incoming(name, x, dim)
        y, grad = value_and_gradient(name, x, g, policy, dim)
        where = torch.ones(shape, dtype=torch.bool)
        other_y, other_grad = value_and_gradient(name, x, g, policy, dim, where=where)
        assert_same_bits(other_y, y)
        assert_same_bits(other_grad, grad)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_any_layout_of_input_and_mask(name: str, layout: str) -> None:
    x, where = logits(torch.float32, (12, 10)), some_mask((12, 10))
    strided_mask = torch.zeros(10, 24, dtype=torch.bool)[:, ::2].t()
    strided_mask.copy_(where)
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, "zero", where=where)
    for mask in (where, strided_mask, where.t().contiguous().t()):
        other_y, other_grad = value_and_gradient(name, LAYOUTS[layout](x), g, "zero", where=mask)
        torch.testing.assert_close(other_y, y)
        torch.testing.assert_close(other_grad, grad)


@pytest.mark.parametrize("name", NAMES)
def test_a_causal_mask_over_attention_scores(name: str) -> None:
    x = logits(torch.float32, (2, 3, 33, 33))
    causal = torch.ones(33, 33, dtype=torch.bool).tril()
    g = incoming(name, x)
    y, grad = value_and_gradient(name, x, g, "raise", where=causal)
    for row in (0, 1, 16, 32):
        part = slice(0, row + 1)
        short, short_grad = value_and_gradient(
            name, x[:, :, row, part].contiguous(), slice_of(name, g, row, part), "raise"
        )
        got = y[:, :, row] if name == "logsumexp" else y[:, :, row, part]
        torch.testing.assert_close(got, short)
        torch.testing.assert_close(grad[:, :, row, part], short_grad)
        assert (grad[:, :, row, row + 1 :] == 0).all()


def slice_of(name: str, g: torch.Tensor, row: int, part: slice) -> torch.Tensor:
    return g[:, :, row] if name == "logsumexp" else g[:, :, row, part].contiguous()


@pytest.mark.parametrize("dim", [(0, 2), (1, 3), (0, 1, 2, 3), ()], ids=str)
def test_logsumexp_over_several_dims(dim: tuple[int, ...]) -> None:
    x, where = logits(torch.float64, SHAPE), some_mask((3, 1, 4))
    g = incoming("logsumexp", x, dim)
    dims = dim or (0, 1, 2, 3)
    y, grad = value_and_gradient("logsumexp", x, g, "zero", dim, where=where)
    leaf = x.clone().requires_grad_()
    want = torch.logsumexp(leaf.masked_fill(~where, -INF), dims)
    (want_grad,) = torch.autograd.grad(want, leaf, g)
    torch.testing.assert_close(y, want.detach())
    torch.testing.assert_close(grad, want_grad)
    assert kept("logsumexp", y, dims).dim() == 4


@pytest.mark.parametrize("name", LOGITS)
def test_out_and_dtype_with_a_mask(name: str) -> None:
    x, where = logits(torch.float16, (5, 9)), some_mask((5, 9))
    where[3] = False
    y = call(name, x, dtype=torch.float32, where=where, policy="zero")
    out = torch.full((5, 9), 7.0)
    assert call(name, x, dtype=torch.float32, where=where, policy="zero", out=out) is out
    assert_same_bits(out, y)
    torch.testing.assert_close(y, call(name, x.float(), where=where, policy="zero"))


@pytest.mark.parametrize("name", NAMES)
def test_the_mask_is_not_expanded(name: str) -> None:
    # An expanded copy of the mask would be a boolean of the shape of the input.
    x = logits(torch.float32, (64, 1, 128)).expand(64, 32, 128).contiguous().requires_grad_()
    where = some_mask((64, 1, 128))
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        call(name, x, where=where, policy="zero").sum().backward()
    masks = [tensor for tensor in saved if tensor.dtype is torch.bool]
    assert masks and all(tensor.untyped_storage().nbytes() == 64 * 128 for tensor in masks)
    assert all(tensor.data_ptr() == where.data_ptr() for tensor in masks)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int64, torch.float32, torch.float16], ids=identifier
)
@pytest.mark.parametrize("name", NAMES)
def test_a_mask_of_another_dtype_is_refused(name: str, dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match=f"{name}.*where must be .*bool") as caught:
        call(name, torch.ones(2, 3), where=torch.ones(2, 3, dtype=dtype))
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize("shape", [(2,), (3, 3), (2, 2), (1, 2, 3), (5, 2, 3), (0,)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_mask_that_does_not_broadcast_to_the_input_is_refused(
    name: str, shape: tuple[int, ...]
) -> None:
    where = torch.ones(shape, dtype=torch.bool)
    with pytest.raises(RuntimeError, match=rf"{name}.*where"):
        call(name, torch.ones(2, 3), where=where)


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_that_is_no_tensor_or_elsewhere_is_refused(name: str) -> None:
    for where in ([True, False], True, np.ones(3, dtype=bool)):
        with pytest.raises((TypeError, RuntimeError), match="where"):
            call(name, torch.ones(2, 2), where=where)
    with pytest.raises(RuntimeError):
        call(name, torch.ones(2, 2), where=torch.ones(2, 2, dtype=torch.bool, device="meta"))
