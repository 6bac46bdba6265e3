"""torch.func transforms and their compositions against the same maths in plain operations."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import func
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import safeops
from samples import assert_same_bits

Function = Callable[[torch.Tensor], torch.Tensor]

X = torch.tensor([[0.9, -1.3, 2.1], [0.4, 1.1, -0.2]], dtype=torch.float64)
T = torch.tensor([[1.0, 0.5, -0.3], [-2.0, 0.1, 0.7]], dtype=torch.float64)
WEIGHT = torch.tensor([[0.3, -0.9, 1.7], [2.0, -0.4, 0.8]], dtype=torch.float64)


def ours(x: torch.Tensor) -> torch.Tensor:
    return safeops.normalize(x, dim=-1, policy="zero")


def plain(x: torch.Tensor) -> torch.Tensor:
    # F.normalize itself raises an in-place error in grad(jvp(grad(...))).
    return x / (x * x).sum(-1, keepdim=True).sqrt()


def scalar(normalized: Function) -> Function:
    return lambda x: ((y := normalized(x)) * y * y * WEIGHT + y * WEIGHT.flip(0)).sum()


def times(function: Function, order: int) -> Function:
    """The gradient of the gradient ... contracted with T in between."""
    for _ in range(order - 1):
        inner = function
        function = lambda x, f=inner: (grad(f)(x) * T).sum()  # noqa: E731
    return grad(function)


def jvp_of(function: Function) -> Function:
    return lambda x: jvp(function, (x,), (T,))[1]


def vjp_of(function: Function) -> Function:
    return lambda x: vjp(function, x)[1](T)[0]


VECTOR_VALUED: dict[str, Callable[[Function], Function]] = {
    "vmap": vmap,
    "vmap in_dims": lambda f: lambda x: vmap(f, in_dims=1, out_dims=1)(x.unsqueeze(1)).squeeze(1),
    "vmap twice": lambda f: lambda x: vmap(vmap(f))(torch.stack([x, 2 * x, x + 1])),
    "jvp": jvp_of,
    "jvp twice": lambda f: jvp_of(jvp_of(f)),
    "vjp": vjp_of,
    "vmap of vjp": lambda f: lambda x: vmap(lambda t: vjp(f, x)[1](t)[0])(torch.stack([T, 2 * T])),
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
    "vmap of jacrev": lambda f: lambda x: vmap(jacrev(f))(x),
    "vmap of jacfwd": lambda f: lambda x: vmap(jacfwd(f))(x),
}

SCALAR_VALUED: dict[str, Callable[[Function], Function]] = {
    "grad": grad,
    "grad^2": lambda f: times(f, 2),
    "grad^3": lambda f: times(f, 3),
    "grad^4": lambda f: times(f, 4),
    "hessian": hessian,
    "jacrev of grad": lambda f: jacrev(grad(f)),
    "jacfwd of grad": lambda f: jacfwd(grad(f)),
    "grad of jvp": lambda f: grad(jvp_of(f)),
    "jvp of grad": lambda f: jvp_of(grad(f)),
    "jvp of grad of jvp": lambda f: jvp_of(grad(jvp_of(f))),
    "grad of jvp of grad": lambda f: grad(lambda x: (jvp_of(grad(f))(x) * T).sum()),
    "jacfwd of jacrev of grad": lambda f: jacfwd(jacrev(grad(f))),
    "jvp of jacrev of grad": lambda f: jvp_of(jacrev(grad(f))),
    "jacrev^3": lambda f: jacrev(jacrev(jacrev(f))),
}


@pytest.mark.parametrize("name", VECTOR_VALUED)
def test_transforms_of_a_vector_function(name: str) -> None:
    transform = VECTOR_VALUED[name]
    torch.testing.assert_close(transform(ours)(X), transform(plain)(X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SCALAR_VALUED)
def test_transforms_of_a_scalar_function(name: str) -> None:
    transform = SCALAR_VALUED[name]
    actual, expected = transform(scalar(ours))(X), transform(scalar(plain))(X)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


def row_loss(normalized: Function) -> Function:
    return lambda row: (normalized(row) ** 3 * WEIGHT[0]).sum()


ROW_VALUED: dict[str, Callable[[Function], Function]] = {
    "vmap of grad": lambda f: vmap(grad(f)),
    "grad of vmap": lambda f: grad(lambda x: vmap(f)(x).sum()),
    "vmap of hessian": lambda f: vmap(hessian(f)),
    "vmap of grad^2": lambda f: vmap(grad(lambda row: (grad(f)(row) * T[0]).sum())),
    "vmap of jacrev of grad": lambda f: vmap(jacrev(grad(f))),
    "vmap twice of grad": lambda f: lambda x: vmap(vmap(grad(f)))(torch.stack([x, 2 * x])),
}


@pytest.mark.parametrize("name", ROW_VALUED)
def test_transforms_of_a_function_of_one_row(name: str) -> None:
    transform = ROW_VALUED[name]
    actual, expected = transform(row_loss(ours))(X), transform(row_loss(plain))(X)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("p", [1.0, 3.0, 0.5, float("inf")])
@pytest.mark.parametrize("name", ["grad", "grad^2", "hessian", "jvp of grad", "grad of jvp"])
def test_transforms_for_other_orders(name: str, p: float) -> None:
    transform = SCALAR_VALUED[name]
    actual = transform(scalar(lambda x: safeops.normalize(x, p=p, dim=-1, policy="zero")))(X)

    def power_norm(x: torch.Tensor) -> torch.Tensor:
        size = x.abs()
        if p == float("inf"):
            return x / size.amax(-1, keepdim=True)
        return x / (size**p).sum(-1, keepdim=True) ** (1 / p)

    expected = transform(scalar(power_norm))(X)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("in_dim", [0, 1, 2])
@pytest.mark.parametrize("dim", [0, 1, -1, (0, 1), (-2,)], ids=str)
def test_vmap_counts_dims_without_the_batch(dim: int | tuple[int, ...], in_dim: int) -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    mapped = vmap(lambda t: safeops.normalize(t, dim=dim, policy="zero"), in_dims=in_dim)(x)
    expected = torch.stack([F.normalize(t, dim=dim) for t in x.unbind(in_dim)])
    torch.testing.assert_close(mapped, expected)


def test_vmap_over_scalars_and_over_batches_with_singular_rows() -> None:
    x = torch.tensor([-2.0, 0.0, 3.0])
    assert vmap(lambda t: safeops.normalize(t, dim=0, policy="zero"))(x).tolist() == [-1, 0, 1]
    batch = torch.stack([X, torch.zeros_like(X), 2 * X])
    assert_same_bits(vmap(ours)(batch), ours(batch))


def test_vmap_has_a_rule() -> None:
    # torch's fallback warns, and walks the slices one by one.
    batch = torch.randn(4, 2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vmap(ours)(batch)
        vmap(grad(lambda x: ours(x).square().sum()))(batch)
        jacrev(ours)(batch[0])


def test_vmap_of_the_inner_backward_with_unbatched_operands() -> None:
    def backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.safeops._normalize_backward(g, x, norm, 2.0, [1], 0.0, "zero")

    _, norm = torch.ops.safeops._normalize_forward(X, 2.0, [1], 0.0, "zero")
    grads = torch.stack([T, 2 * T, T + 1])
    expected = torch.stack([backward(g, X) for g in grads])
    torch.testing.assert_close(vmap(lambda g: backward(g, X))(grads), expected)
    inputs = torch.stack([X, X.flip(0)])
    expected = torch.stack([backward(T, x) for x in inputs])
    torch.testing.assert_close(vmap(lambda x: backward(T, x))(inputs), expected)


def test_batched_gradients_of_autograd() -> None:
    x = X.clone().requires_grad_()
    basis = torch.eye(6, dtype=torch.float64).view(6, 2, 3)
    (rows,) = torch.autograd.grad(ours(x), x, basis, is_grads_batched=True)
    torch.testing.assert_close(rows, jacrev(plain)(X).view(6, 2, 3))


def test_a_dual_hessian_product_without_a_graph_keeps_its_tangent() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X.clone().requires_grad_(), T)
        (first,) = torch.autograd.grad(scalar(ours)(x), x, create_graph=False)
        tangent = forward_ad.unpack_dual(first).tangent
    assert tangent is not None
    torch.testing.assert_close(tangent, jvp_of(grad(scalar(plain)))(X))


def test_reverse_over_a_dual_hessian_product_at_the_same_level() -> None:
    with forward_ad.dual_level():
        leaf = X.clone().requires_grad_()
        x = forward_ad.make_dual(leaf, T)
        (first,) = torch.autograd.grad(scalar(ours)(x), x, create_graph=True)
        product = forward_ad.unpack_dual(first).tangent
        (third,) = torch.autograd.grad((product * T).sum(), leaf)
    expected = grad(lambda z: (jvp_of(grad(scalar(plain)))(z) * T).sum())(X)
    torch.testing.assert_close(third, expected, rtol=1e-9, atol=1e-10)


def test_a_dual_number_through_double_backward() -> None:
    with forward_ad.dual_level():
        leaf = X.clone().requires_grad_()
        x = forward_ad.make_dual(leaf, T)
        (first,) = torch.autograd.grad(scalar(ours)(x), x, create_graph=True)
        (second,) = torch.autograd.grad((first * T).sum(), x)
        tangent = forward_ad.unpack_dual(second).tangent
    expected = jvp_of(times(scalar(plain), 2))(X)
    torch.testing.assert_close(tangent, expected, rtol=1e-9, atol=1e-10)


def test_functional_hessian_and_vmap_inside_a_module() -> None:
    torch.testing.assert_close(
        torch.autograd.functional.hessian(scalar(ours), X), hessian(scalar(plain))(X)
    )
    linear = torch.nn.Linear(3, 3, dtype=torch.float64)

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, f: Function) -> torch.Tensor:
        return (f(func.functional_call(linear, parameters, (x,))) ** 3).sum()

    parameters = {k: v.detach() for k, v in linear.named_parameters()}
    per_sample = vmap(grad(loss), in_dims=(None, 0, None))
    for name, value in per_sample(parameters, X, ours).items():
        torch.testing.assert_close(value, per_sample(parameters, X, plain)[name])
