"""torch.func transforms and their compositions against PyTorch's own operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import safeops
from division_samples import NAMES, call, stock
from samples import counts

Function = Callable[[torch.Tensor], torch.Tensor]

# Its halves are the operands of a quotient.
X = torch.tensor([[0.9, 1.3, 2.1], [0.4, 1.1, 3.2]], dtype=torch.float64)
T = torch.tensor([[1.0, 0.5, -0.3], [-2.0, 0.1, 0.7]], dtype=torch.float64)
WEIGHT = torch.tensor([0.3, -0.9, 1.7], dtype=torch.float64)
FORMS = (*NAMES, "div a scalar", "div by a scalar", "div in place", "sqrt in place")


def through(function: Callable[..., torch.Tensor], form: str, **arguments: object) -> Function:
    """From a tensor of two halves to one of half the size."""

    def run(x: torch.Tensor) -> torch.Tensor:
        if form == "div a scalar":
            return function("div", x[0].sum(), x[1], **arguments)
        if form == "div by a scalar":
            return function("div", x[0], x[1].sum(), **arguments)
        operands = (x[0], x[1]) if form.startswith("div") else (x[0] + x[1],)
        return function(form.split()[0], *operands, **arguments)

    return run


def ours(form: str) -> Function:
    def function(name: str, *operands: torch.Tensor) -> torch.Tensor:
        if form.endswith("in place"):
            return getattr(safeops, f"{name}_")(operands[0].clone(), *operands[1:], policy="zero")
        return call(name, *operands, policy="zero")

    return through(function, form)


def plain(form: str) -> Function:
    return through(stock, form)


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
    return lambda x: vjp(function, x)[1](WEIGHT)[0]


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
    "vmap over inputs": lambda f: lambda x: vmap(f)(torch.stack([x, 2 * x, x + 1])),
    "vmap twice": lambda f: lambda x: vmap(vmap(f))(torch.stack([x, 2 * x]).expand(3, 2, 2, 3)),
    "vmap of jacrev": lambda f: lambda x: vmap(jacrev(f))(torch.stack([x, 3 * x])),
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
    "jacfwd of jacrev of grad": lambda f: jacfwd(jacrev(grad(f))),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(torch.stack([x, 2 * x, x + 1])),
    "grad of vmap": lambda f: grad(lambda x: vmap(f)(torch.stack([x, 2 * x])).sum()),
    "vmap of hessian": lambda f: lambda x: vmap(hessian(f))(torch.stack([x, 2 * x])),
}


@pytest.mark.parametrize("transform", VECTOR_VALUED)
@pytest.mark.parametrize("form", FORMS)
def test_transforms_of_a_vector_function(form: str, transform: str) -> None:
    run = VECTOR_VALUED[transform]
    torch.testing.assert_close(run(ours(form))(X), run(plain(form))(X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("transform", SCALAR_VALUED)
@pytest.mark.parametrize("form", FORMS)
def test_transforms_of_a_scalar_function(form: str, transform: str) -> None:
    run = SCALAR_VALUED[transform]
    actual, expected = run(scalar(ours(form)))(X), run(scalar(plain(form)))(X)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_a_dual_hessian_product_without_a_graph_keeps_its_tangent(form: str) -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X.clone().requires_grad_(), T)
        (first,) = torch.autograd.grad(scalar(ours(form))(x), x, create_graph=False)
        tangent = forward_ad.unpack_dual(first).tangent
    assert tangent is not None
    torch.testing.assert_close(tangent, jvp_of(grad(scalar(plain(form))))(X))


@pytest.mark.parametrize("form", FORMS)
def test_reverse_over_a_dual_hessian_product_at_the_same_level(form: str) -> None:
    with forward_ad.dual_level():
        leaf = X.clone().requires_grad_()
        x = forward_ad.make_dual(leaf, T)
        (first,) = torch.autograd.grad(scalar(ours(form))(x), x, create_graph=True)
        product = forward_ad.unpack_dual(first).tangent
        (third,) = torch.autograd.grad((product * T).sum(), leaf)
    reference = scalar(plain(form))
    expected = grad(lambda z: (jvp_of(grad(reference))(z) * T).sum())(X)
    torch.testing.assert_close(third, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("index", [0, 1])
def test_a_tangent_in_one_operand_only(index: int) -> None:
    operands = [X[0], X[1]]

    def with_tangent(function: Callable[..., torch.Tensor]) -> torch.Tensor:
        def of_one(t: torch.Tensor) -> torch.Tensor:
            return function(*operands[:index], t, *operands[index + 1 :])

        return jvp(of_one, (operands[index],), (T[0],))[1]

    torch.testing.assert_close(with_tangent(safeops.div), with_tangent(torch.div))


@pytest.mark.parametrize("form", FORMS)
def test_batched_gradients_of_autograd(form: str) -> None:
    x = X.clone().requires_grad_()
    y = ours(form)(x)
    basis = torch.eye(3, dtype=torch.float64)
    (rows,) = torch.autograd.grad(y, x, basis, is_grads_batched=True)
    torch.testing.assert_close(rows, jacrev(plain(form))(X))


@pytest.mark.parametrize("dtype", [torch.complex128], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_complex_numbers(name: str, dtype: torch.dtype) -> None:
    x = torch.complex(X, T)
    t = torch.complex(T, X)
    results = []
    for function in (call, stock):
        run = through(function, name)
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(run(leaf).abs().square().sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad((first * t).abs().sum(), leaf)
        results.append([first.detach(), second, jvp(run, (x,), (t,))[1]])
    for actual, want in zip(*results, strict=True):
        torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_quotients_have_no_slope(mode: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return safeops.div(x[0], x[1], rounding_mode=mode)

    for jacobian in (jacrev(function)(X), jacfwd(function)(X)):
        assert torch.equal(jacobian, torch.zeros(3, 2, 3, dtype=torch.float64))


# Hits: one for every execution of a kernel that meets the element.

SINGULAR = torch.tensor([[1.0, 2.0, 3.0], [2.0, 0.0, 0.5]], dtype=torch.float64)


def last_operand(name: str) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = call(name, *([x[0], x[1]] if name == "div" else [x[1]]), policy="zero")
        return (y * y * WEIGHT).sum()

    return function


def passes(name: str, order: int) -> None:
    x = SINGULAR.clone().requires_grad_()
    total = last_operand(name)(x)
    for _ in range(order - 1):
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        total = (first * T).sum()
    torch.autograd.grad(total, x)


MODES: dict[str, tuple[Callable[[str], object], int, int]] = {
    "forward": (lambda name: last_operand(name)(SINGULAR), 1, 0),
    "backward": (lambda name: passes(name, 1), 1, 1),
    "two passes": (lambda name: passes(name, 2), 1, 2),
    "three passes": (lambda name: passes(name, 3), 1, 3),
    "func.grad": (lambda name: grad(last_operand(name))(SINGULAR), 1, 1),
    "jvp": (lambda name: jvp(last_operand(name), (SINGULAR,), (T,)), 1, 0),
    "jvp of grad": (lambda name: jvp(grad(last_operand(name)), (SINGULAR,), (T,)), 1, 1),
    "hessian": (lambda name: hessian(last_operand(name))(SINGULAR), 1, 1),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_hits(name: str, mode: str) -> None:
    run, forward, backward = MODES[mode]
    run(name)
    assert counts(name) == (forward * (name != "sqrt"), backward)


def test_tracing_counts_nothing() -> None:
    for name in NAMES:
        tensors = (SINGULAR, SINGULAR) if name == "div" else (SINGULAR,)
        call(name, *(t.to("meta") for t in tensors))
        with torch._subclasses.FakeTensorMode() as mode:
            call(name, *(mode.from_tensor(t) for t in tensors))
        assert counts(name) == (0, 0)
    assert safeops.diagnostics.snapshot().records == ()
