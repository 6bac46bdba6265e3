"""How often a singular row is counted: once per execution of a kernel that meets it."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import func
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import safeops
from samples import counts

# Two of four rows are singular.
X = torch.tensor([[1.0, 2, 3], [0, 0, 0], [3, 0, 4], [0, 0, 0]], dtype=torch.float64)
T = torch.linspace(-1, 2, 12, dtype=torch.float64).view(4, 3)
S = 2
N = X.numel()


def normalized(x: torch.Tensor) -> torch.Tensor:
    return safeops.normalize(x, dim=-1, policy="zero")


def loss(x: torch.Tensor) -> torch.Tensor:
    return (normalized(x) ** 3 * T).sum()


def row_loss(row: torch.Tensor) -> torch.Tensor:
    return (normalized(row) ** 3 * T[0]).sum()


def leaf() -> torch.Tensor:
    return X.clone().requires_grad_()


def passes(order: int) -> None:
    """`order` nested reverse passes over one forward."""
    x = leaf()
    value = loss(x)
    for _ in range(order - 1):
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        value = (first * T).sum()
    torch.autograd.grad(value, x)


def nested_grad(order: int) -> None:
    function = loss
    for _ in range(order - 1):
        function = lambda x, f=function: (grad(f)(x) * T).sum()  # noqa: E731
    grad(function)(X)


def dual_hessian_product() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(leaf(), T)
        torch.autograd.grad(loss(x), x)


def create_graph_once() -> None:
    x = leaf()
    torch.autograd.grad(loss(x), x, create_graph=True)


def batched_gradients() -> None:
    x = leaf()
    basis = torch.eye(N, dtype=torch.float64).view(N, 4, 3)
    torch.autograd.grad(normalized(x), x, basis, is_grads_batched=True)


MODES = {
    "forward": (lambda: normalized(X), S, 0),
    "backward": (lambda: passes(1), S, S),
    "create_graph": (create_graph_once, S, S),
    "two passes": (lambda: passes(2), S, 2 * S),
    "three passes": (lambda: passes(3), S, 3 * S),
    "four passes": (lambda: passes(4), S, 4 * S),
    "func.grad": (lambda: grad(loss)(X), S, S),
    "func.grad^2": (lambda: nested_grad(2), S, 2 * S),
    "func.grad^3": (lambda: nested_grad(3), S, 3 * S),
    "vmap": (lambda: vmap(normalized)(X), S, 0),
    "vmap of grad": (lambda: vmap(grad(row_loss))(X), S, S),
    "grad of vmap": (lambda: grad(lambda x: vmap(row_loss)(x).sum())(X), S, S),
    "jvp": (lambda: jvp(normalized, (X,), (T,)), S, 0),
    "jacfwd": (lambda: jacfwd(normalized)(X), S, 0),
    "jvp of jvp": (lambda: jvp(lambda x: jvp(normalized, (x,), (T,))[1], (X,), (T,)), S, 0),
    "jvp of grad": (lambda: jvp(grad(loss), (X,), (T,)), S, S),
    "grad of jvp": (lambda: grad(lambda x: jvp(loss, (x,), (T,))[1])(X), S, S),
    "dual Hessian product": (dual_hessian_product, S, S),
    "hessian": (lambda: hessian(loss)(X), S, S),
    "vmap of hessian": (lambda: vmap(hessian(row_loss))(X), S, S),
    # One pass per element of the output, each over all rows.
    "jacrev": (lambda: jacrev(normalized)(X), S, N * S),
    "is_grads_batched": (batched_gradients, S, N * S),
}


@pytest.mark.parametrize("mode", MODES)
def test_hits(mode: str) -> None:
    run, forward, backward = MODES[mode]
    run()
    assert counts() == (forward, backward)


def test_a_backward_hit_is_counted_whatever_the_incoming_gradient_is() -> None:
    x = leaf()
    (normalized(x) * torch.zeros(4, 1, dtype=torch.float64)).sum().backward()
    assert counts() == (S, S)


def test_a_branch_that_is_not_differentiated_counts_forward_only() -> None:
    x = leaf()
    y = normalized(x).detach() + x
    y.sum().backward()
    assert counts() == (S, 0)


def test_tracing_counts_nothing() -> None:
    normalized(X.to("meta"))
    with torch._subclasses.FakeTensorMode() as mode:
        normalized(mode.from_tensor(X))
    assert counts() == (0, 0)


def test_counters_off_count_nothing_and_change_nothing() -> None:
    level = safeops.diagnostics.level()
    expected = normalized(X)
    counts()
    try:
        safeops.diagnostics.set_level(0)
        x = leaf()
        y = normalized(x)
        y.sum().backward()
        assert counts() == (0, 0)
        assert torch.equal(y.detach(), expected)
        with pytest.raises(ValueError, match="policy 'raise' met 2 singular rows of 4"):
            safeops.normalize(X, policy="raise")
    finally:
        safeops.diagnostics.set_level(level)


def test_a_raise_is_counted_once() -> None:
    with pytest.raises(safeops.SingularityError):
        safeops.normalize(X, policy="raise")
    assert counts() == (S, 0)


def test_functional_call_counts_as_eager() -> None:
    linear = torch.nn.Linear(3, 3, bias=False, dtype=torch.float64)

    def run(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return normalized(func.functional_call(linear, weights, (X,))).sum()

    grad(run)({"weight": linear.weight.detach()})
    assert counts() == (S, S)
