"""Batching rules of the softmax family against a loop over the examples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.func import grad, jacrev, vmap

import safeops
from samples import NOT_RAISING, assert_same_bits
from softmax_samples import INF, LOGITS, NAMES, call, logits, some_mask

OPS = torch.ops.safeops
DIMS = {"softmax": (0, 1, -1, -2), "log_softmax": (0, 1, -1), "logsumexp": (0, -1, (0, 1), ())}


@pytest.fixture(autouse=True)
def without_fallback() -> Iterator[None]:
    """Torch's slow loop over examples would hide a missing rule."""
    enabled = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(enabled)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13, equal_nan=True)


def batch(*shape: int) -> torch.Tensor:
    """The first example holds an empty row along every dim, and is one itself."""
    x = logits(torch.float64, shape)
    x[0] = -INF
    return x


CASES = [(name, dim) for name in NAMES for dim in DIMS[name]]


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize(("name", "dim"), CASES, ids=str)
def test_dims_of_the_example(name: str, dim: object, policy: str) -> None:
    x = batch(3, 4, 5)
    close(
        vmap(lambda t: call(name, t, dim, policy=policy))(x),
        torch.stack([call(name, t, dim, policy=policy) for t in x]),
    )


@pytest.mark.parametrize("out_dim", [0, 1, -1])
@pytest.mark.parametrize("in_dim", [0, 1, 2, -1])
@pytest.mark.parametrize("name", NAMES)
def test_in_and_out_dims(name: str, in_dim: int, out_dim: int) -> None:
    x = batch(3, 4, 5)
    expected = torch.stack([call(name, t, policy="zero") for t in x.unbind(in_dim)], out_dim)
    close(vmap(lambda t: call(name, t, policy="zero"), in_dim, out_dim)(x), expected)


@pytest.mark.parametrize("shape", [(4, 5), (5,), (1, 5), (4, 1), (1, 1), (1,), ()], ids=str)
@pytest.mark.parametrize("in_dims", [(0, None), (0, 0), (None, 0), (1, -1)], ids=str)
@pytest.mark.parametrize(("name", "dim"), CASES, ids=str)
def test_masks(
    name: str, dim: object, in_dims: tuple[int | None, int | None], shape: tuple[int, ...]
) -> None:
    x_dim, where_dim = in_dims
    x = logits(torch.float64, (4, 5) if x_dim is None else (3, 4, 5))
    x = x if x_dim in (None, 0) else x.movedim(0, x_dim)
    where = some_mask(shape if where_dim is None else (3, *shape))
    where = where if where_dim in (None, 0) else where.movedim(0, where_dim)

    def function(t: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return call(name, t, dim, where=mask, policy="zero")

    def example(tensor: torch.Tensor, in_dim: int | None, i: int) -> torch.Tensor:
        return tensor if in_dim is None else tensor.select(in_dim, i)

    pairs = [(example(x, x_dim, i), example(where, where_dim, i)) for i in range(3)]
    close(vmap(function, in_dims)(x, where), torch.stack([function(t, mask) for t, mask in pairs]))

    def loss(t: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = function(t, mask)
        return torch.where(y == -INF, torch.zeros_like(y), y).square().sum()

    close(
        vmap(grad(loss), in_dims)(x, where), torch.stack([grad(loss)(t, mask) for t, mask in pairs])
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_with_more_dims_than_the_example_is_refused(name: str) -> None:
    x, where = logits(torch.float64, (3, 5)), torch.ones(3, 5, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="where"):
        vmap(lambda t: call(name, t, where=where))(x)


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", NAMES)
def test_scalars(name: str, dim: int) -> None:
    x = torch.tensor([2.0, -INF, -3.0], dtype=torch.float64)
    where = torch.tensor([True, True, False])

    def function(t: torch.Tensor) -> torch.Tensor:
        return call(name, t, dim, policy="zero")

    def masked(t: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return call(name, t, dim, policy="zero", where=mask)

    close(vmap(function)(x), torch.stack([function(t) for t in x]))
    close(vmap(grad(function))(x), torch.stack([grad(function)(t) for t in x]))
    pairs = list(zip(x, where, strict=True))
    close(vmap(masked)(x, where), torch.stack([masked(*pair) for pair in pairs]))
    close(vmap(grad(masked))(x, where), torch.stack([grad(masked)(*pair) for pair in pairs]))


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 4, 5)], ids=str)
def test_keepdim_of_logsumexp(shape: tuple[int, ...]) -> None:
    x = batch(*shape)

    def function(t: torch.Tensor) -> torch.Tensor:
        return safeops.logsumexp(t, -1, True, policy="zero")

    close(vmap(function)(x), torch.stack([function(t) for t in x]))


@pytest.mark.parametrize("name", NAMES)
def test_nested(name: str) -> None:
    x, where = batch(3, 2, 4, 5), some_mask((3, 4, 1))

    def function(t: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return call(name, t, 0, where=mask, policy="zero")

    expected = torch.stack(
        [
            torch.stack([function(t, mask) for t in part])
            for part, mask in zip(x, where, strict=True)
        ]
    )
    close(vmap(vmap(function, (0, None)))(x, where), expected)


@pytest.mark.parametrize("name", LOGITS)
def test_dtype(name: str) -> None:
    x = batch(3, 4, 5).half()
    y = vmap(lambda t: call(name, t, dtype=torch.float32, policy="zero"))(x)
    assert y.dtype is torch.float32
    assert_same_bits(y, call(name, x, dtype=torch.float32, policy="zero"))
    close(
        vmap(lambda t: call(name, t, dtype=torch.float64, policy="zero"))(x),
        call(name, x.double(), policy="zero"),
    )


def test_softmin() -> None:
    x = -batch(3, 4, 5)
    close(
        vmap(lambda t: safeops.softmin(t, 0, policy="zero"))(x),
        torch.stack([safeops.softmin(t, 0, policy="zero") for t in x]),
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_of_the_schema_reach_the_rule(name: str) -> None:
    x, operator = batch(3, 4, 5), getattr(OPS, name).default
    close(vmap(lambda t: operator(t, 0))(x), torch.stack([operator(t, 0) for t in x]))
    where = some_mask((4, 5))
    close(
        vmap(lambda t: operator(t, 0, where=where))(x),
        torch.stack([operator(t, 0, where=where) for t in x]),
    )


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
@pytest.mark.parametrize("name", LOGITS)
def test_inner_operators(name: str, masked: bool) -> None:
    x, weight = batch(3, 4, 5), logits(torch.float64, (3, 4, 5), seed=4)
    where = some_mask((4, 5)) if masked else None

    def forward(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        operator = getattr(OPS, f"_{name}_forward").default
        return operator(t, -1, torch.float64, where, 1e-12, "zero")

    def backward(g: torch.Tensor, out: torch.Tensor, peak: torch.Tensor) -> torch.Tensor:
        operator = getattr(OPS, f"_{name}_backward").default
        return operator(g, out, peak, where, -1, torch.float64, "zero")

    out, peak = vmap(forward)(x)
    assert peak.shape == (3, 4, 1)
    close(out, torch.stack([forward(t)[0] for t in x]))
    close(peak, torch.stack([forward(t)[1] for t in x]))
    expected = [backward(*example) for example in zip(weight, out, peak, strict=True)]
    close(vmap(backward)(weight, out, peak), torch.stack(expected))
    expected = [backward(g, out[1], peak[1]) for g in weight]
    close(vmap(backward, (0, None, None))(weight, out[1], peak[1]), torch.stack(expected))


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where"])
def test_inner_operators_of_logsumexp(masked: bool) -> None:
    x, weight = batch(3, 4, 5), logits(torch.float64, (3, 4, 1), seed=4)
    where = some_mask((4, 5)) if masked else None

    def forward(t: torch.Tensor) -> torch.Tensor:
        return OPS._logsumexp_forward.default(t, [-1], where, "zero")[1]

    def backward(g: torch.Tensor, t: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
        return OPS._logsumexp_backward.default(g, t, lse, where, [-1], "zero")

    lse = vmap(forward)(x)
    assert lse.shape == (3, 4, 1) and lse.dtype is torch.float64
    close(lse, torch.stack([forward(t) for t in x]))
    expected = [backward(*example) for example in zip(weight, x, lse, strict=True)]
    close(vmap(backward)(weight, x, lse), torch.stack(expected))
    expected = [backward(g, x[1], lse[1]) for g in weight]
    close(vmap(backward, (0, None, None))(weight, x[1], lse[1]), torch.stack(expected))


@pytest.mark.parametrize("name", NAMES)
def test_unbatched_outputs_with_batched_gradients(name: str) -> None:
    x, where = logits(torch.float64, (2, 3)), torch.tensor([[True, True, False], [True] * 3])

    def function(t: torch.Tensor) -> torch.Tensor:
        return call(name, t, where=where, policy="zero")

    close(jacrev(function)(x), torch.autograd.functional.jacobian(function, x))


@pytest.mark.parametrize("dim", [2, -3])
@pytest.mark.parametrize("name", NAMES)
def test_dim_out_of_range(name: str, dim: int) -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        vmap(lambda t: call(name, t, dim))(torch.ones(3, 4, 5))


@pytest.mark.parametrize("name", NAMES)
def test_raise_names_the_row_of_the_whole_batch(name: str) -> None:
    x = torch.ones(3, 4, 5)
    x[1, 2] = -INF
    with pytest.raises(safeops.SingularityError) as raised:
        vmap(lambda t: call(name, t, policy="raise"))(x)
    assert (raised.value.count, raised.value.first_row) == (1, 6)
