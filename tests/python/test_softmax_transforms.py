"""torch.func transforms and their compositions against the same maths in plain operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import safeops
from samples import counts
from softmax_samples import INF, NAMES, call

Function = Callable[[torch.Tensor], torch.Tensor]

X = torch.tensor([[0.9, -1.3, 2.1], [0.4, 1.1, -0.2]], dtype=torch.float64)
T = torch.tensor([[1.0, 0.5, -0.3], [-2.0, 0.1, 0.7]], dtype=torch.float64)
WEIGHT = torch.tensor([[0.3, -0.9, 1.7], [2.0, -0.4, 0.8]], dtype=torch.float64)
MASK = torch.tensor([[True, False, True], [True, True, False]])
MASKS = {"all": None, "where": MASK}


def ours(name: str, where: torch.Tensor | None) -> Function:
    """Two-dimensional in and out, and finite everywhere."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = call(name, x, policy="zero", where=where)
        return finite(name, y, where)

    return function


def plain(name: str, where: torch.Tensor | None) -> Function:
    part = torch.ones_like(MASK) if where is None else where

    def function(x: torch.Tensor) -> torch.Tensor:
        terms = torch.where(part, x.exp(), torch.zeros_like(x))
        total = terms.sum(-1, keepdim=True)
        if name == "softmax":
            y = terms / total
        elif name == "log_softmax":
            y = x - total.log()
        else:
            y = total.log().squeeze(-1)
        return finite(name, y, where)

    return function


def finite(name: str, y: torch.Tensor, where: torch.Tensor | None) -> torch.Tensor:
    if name == "logsumexp":
        return y.unsqueeze(-1)
    return y if where is None else torch.where(where, y, torch.zeros_like(y))


def scalar(function: Function) -> Function:
    return lambda x: ((y := function(x)) * y * y * WEIGHT + y * WEIGHT.flip(0)).sum()


def times(function: Function, order: int) -> Function:
    """The gradient of the gradient ... contracted with T in between."""
    for _ in range(order - 1):
        inner = function
        function = lambda x, f=inner: (grad(f)(x) * T).sum()  # noqa: E731
    return grad(function)


def jvp_of(function: Function) -> Function:
    return lambda x: jvp(function, (x,), (T,))[1]


def vjp_of(function: Function) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        y, pull = vjp(function, x)
        return pull(T[:, : y.shape[1]])[0]

    return run


VECTOR_VALUED: dict[str, Callable[[Function], Function]] = {
    "jvp": jvp_of,
    "jvp twice": lambda f: jvp_of(jvp_of(f)),
    "vjp": vjp_of,
    "vmap of jvp": lambda f: (
        lambda x: vmap(lambda t: jvp(f, (x,), (t,))[1])(torch.stack([T, 2 * T]))
    ),
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(f)),
    "jacfwd of jacrev": lambda f: jacfwd(jacrev(f)),
    "jacrev of jacrev": lambda f: jacrev(jacrev(f)),
    "jacfwd of jacfwd": lambda f: jacfwd(jacfwd(f)),
    "jvp of vjp": lambda f: jvp_of(vjp_of(f)),
    "vjp of jvp": lambda f: vjp_of(jvp_of(f)),
    "vmap over inputs": lambda f: lambda x: vmap(f)(torch.stack([x, 2 * x, x + 1])),
    "vmap twice": lambda f: lambda x: vmap(vmap(f))(torch.stack([x, 2 * x]).expand(3, 2, 2, 3)),
    "vmap of jacrev": lambda f: lambda x: vmap(jacrev(f))(torch.stack([x, -x])),
}

SCALAR_VALUED: dict[str, Callable[[Function], Function]] = {
    "grad": grad,
    "grad^2": lambda f: times(f, 2),
    "grad^3": lambda f: times(f, 3),
    "hessian": hessian,
    "jacrev of grad": lambda f: jacrev(grad(f)),
    "jacfwd of grad": lambda f: jacfwd(grad(f)),
    "grad of jvp": lambda f: grad(jvp_of(f)),
    "jvp of grad": lambda f: jvp_of(grad(f)),
    "jvp of grad of jvp": lambda f: jvp_of(grad(jvp_of(f))),
    "grad of jvp of grad": lambda f: grad(lambda x: (jvp_of(grad(f))(x) * T).sum()),
    "jacfwd of jacrev of grad": lambda f: jacfwd(jacrev(grad(f))),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(torch.stack([x, 2 * x, x + 1])),
    "grad of vmap": lambda f: grad(lambda x: vmap(f)(torch.stack([x, 2 * x])).sum()),
    "vmap of hessian": lambda f: lambda x: vmap(hessian(f))(torch.stack([x, 2 * x])),
}


@pytest.mark.parametrize("transform", VECTOR_VALUED)
@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("name", NAMES)
def test_transforms_of_a_vector_function(name: str, masked: str, transform: str) -> None:
    where, run = MASKS[masked], VECTOR_VALUED[transform]
    actual, expected = run(ours(name, where))(X), run(plain(name, where))(X)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("transform", SCALAR_VALUED)
@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("name", NAMES)
def test_transforms_of_a_scalar_function(name: str, masked: str, transform: str) -> None:
    where, run = MASKS[masked], SCALAR_VALUED[transform]
    actual, expected = run(scalar(ours(name, where)))(X), run(scalar(plain(name, where)))(X)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("name", NAMES)
def test_a_dual_hessian_product_without_a_graph_keeps_its_tangent(name: str, masked: str) -> None:
    function, expected = (scalar(f(name, MASKS[masked])) for f in (ours, plain))
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X.clone().requires_grad_(), T)
        (first,) = torch.autograd.grad(function(x), x, create_graph=False)
        tangent = forward_ad.unpack_dual(first).tangent
    assert tangent is not None
    torch.testing.assert_close(tangent, jvp_of(grad(expected))(X))


@pytest.mark.parametrize("name", NAMES)
def test_reverse_over_a_dual_hessian_product_at_the_same_level(name: str) -> None:
    function, reference = scalar(ours(name, MASK)), scalar(plain(name, MASK))
    with forward_ad.dual_level():
        leaf = X.clone().requires_grad_()
        x = forward_ad.make_dual(leaf, T)
        (first,) = torch.autograd.grad(function(x), x, create_graph=True)
        product = forward_ad.unpack_dual(first).tangent
        (third,) = torch.autograd.grad((product * T).sum(), leaf)
    expected = grad(lambda z: (jvp_of(grad(reference))(z) * T).sum())(X)
    torch.testing.assert_close(third, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_batched_gradients_of_autograd(name: str) -> None:
    x = X.clone().requires_grad_()
    y = ours(name, MASK)(x)
    basis = torch.eye(y.numel(), dtype=torch.float64).view(-1, *y.shape)
    (rows,) = torch.autograd.grad(y, x, basis, is_grads_batched=True)
    torch.testing.assert_close(rows, jacrev(plain(name, MASK))(X).reshape(rows.shape))


# At empty rows: what the table says, whatever comes in.


@pytest.mark.parametrize("policy", ["stock", "nan", "zero", "epsilon"])
@pytest.mark.parametrize("name", NAMES)
def test_jacobians_of_an_empty_row(name: str, policy: str) -> None:
    x = torch.tensor([[-INF, -INF, 3.0], [0.5, -1.0, 2.0]], dtype=torch.float64)
    where = torch.tensor([True, True, False])

    def function(t: torch.Tensor) -> torch.Tensor:
        return call(name, t, policy=policy, where=where)

    forward, reverse = jacfwd(function)(x), jacrev(function)(x)
    own, own_reverse = forward[0, ..., 0, :], reverse[0, ..., 0, :]
    if policy in ("stock", "nan"):
        # The row is marked as a whole: in forward mode whatever the direction is.
        assert own.isnan().all() and own_reverse[..., :2].isnan().all()
        assert (own_reverse[..., 2] == 0).all()
    else:
        assert (own == 0).all() and (own_reverse == 0).all()
    torch.testing.assert_close(forward[1, ..., 1, :], reverse[1, ..., 1, :])
    assert (forward[1, ..., 1, 2] == 0).all()
    assert (forward[1, ..., 1, :2] != 0).any()


# Hits: one for every execution of a kernel that meets the row.

SINGULAR = torch.tensor([[1.0, 2, 3], [-INF, -INF, -INF], [3, -INF, 4]], dtype=torch.float64)
COTANGENT = torch.linspace(-1, 2, 9, dtype=torch.float64).view(3, 3)


def loss(name: str) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = call(name, x, policy="zero")
        y = torch.where(y == -INF, torch.zeros_like(y), y)
        return (y * y * (COTANGENT if name != "logsumexp" else COTANGENT[:, 0])).sum()

    return function


def passes(name: str, order: int) -> None:
    x = SINGULAR.clone().requires_grad_()
    total = loss(name)(x)
    for _ in range(order - 1):
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        total = (first * COTANGENT).sum()
    torch.autograd.grad(total, x)


MODES: dict[str, tuple[Callable[[str], object], int, int]] = {
    "forward": (lambda name: loss(name)(SINGULAR), 1, 0),
    "backward": (lambda name: passes(name, 1), 1, 1),
    "two passes": (lambda name: passes(name, 2), 1, 2),
    "three passes": (lambda name: passes(name, 3), 1, 3),
    "func.grad": (lambda name: grad(loss(name))(SINGULAR), 1, 1),
    "jvp": (lambda name: jvp(loss(name), (SINGULAR,), (COTANGENT,)), 1, 0),
    "jvp of grad": (lambda name: jvp(grad(loss(name)), (SINGULAR,), (COTANGENT,)), 1, 1),
    "hessian": (lambda name: hessian(loss(name))(SINGULAR), 1, 1),
    "vmap": (lambda name: vmap(lambda row: call(name, row, policy="zero"))(SINGULAR), 1, 0),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_hits(name: str, mode: str) -> None:
    run, forward, backward = MODES[mode]
    run(name)
    assert counts(name) == (forward, backward)


def test_tracing_counts_nothing() -> None:
    for name in NAMES:
        call(name, SINGULAR.to("meta"))
        with torch._subclasses.FakeTensorMode() as mode:
            call(name, mode.from_tensor(SINGULAR))
        assert counts(name) == (0, 0)
    assert safeops.diagnostics.snapshot().records == ()


@pytest.mark.parametrize(
    ("size", "dtype"), [(700.0, torch.float64), (1e16, torch.float64), (1e30, torch.float32)]
)
def test_derivatives_of_logsumexp_do_not_come_from_its_rounded_result(
    size: float, dtype: torch.dtype
) -> None:
    x = torch.full((2,), size, dtype=dtype)

    def f(t: torch.Tensor) -> torch.Tensor:
        return safeops.logsumexp(t, 0)

    assert jvp(f, (x,), (torch.ones_like(x),))[1].item() == 1
    expected = torch.tensor([[0.25, -0.25], [-0.25, 0.25]], dtype=dtype)
    assert torch.equal(hessian(f)(x), expected)


def test_the_derivative_of_a_row_without_elements_is_nothing() -> None:
    x = torch.zeros(2, 0)
    value, tangent = jvp(lambda t: safeops.logsumexp(t, 1), (x,), (x,))
    assert value.tolist() == [-float("inf")] * 2 and tangent.tolist() == [0, 0]
