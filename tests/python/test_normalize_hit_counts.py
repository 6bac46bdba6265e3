"""How often a singular row is counted: once per execution of a kernel that meets it."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import func
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import safeops
from samples import counts

pytestmark = pytest.mark.usefixtures("every_device")

S = 2
N = 12


def rows() -> torch.Tensor:
    """Two of four are singular."""
    return torch.tensor([[1.0, 2, 3], [0, 0, 0], [3, 0, 4], [0, 0, 0]], dtype=torch.float64)


def weights() -> torch.Tensor:
    return torch.linspace(-1, 2, N, dtype=torch.float64).view(4, 3)


def normalized(x: torch.Tensor) -> torch.Tensor:
    return safeops.normalize(x, dim=-1, policy="zero")


def loss(x: torch.Tensor) -> torch.Tensor:
    return (normalized(x) ** 3 * weights()).sum()


def row_loss(row: torch.Tensor) -> torch.Tensor:
    return (normalized(row) ** 3 * weights()[0]).sum()


def leaf() -> torch.Tensor:
    return rows().requires_grad_()


def passes(order: int) -> None:
    """`order` nested reverse passes over one forward."""
    x = leaf()
    value = loss(x)
    for _ in range(order - 1):
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        value = (first * weights()).sum()
    torch.autograd.grad(value, x)


def nested_grad(order: int) -> None:
    function = loss
    for _ in range(order - 1):
        function = lambda x, f=function: (grad(f)(x) * weights()).sum()  # noqa: E731
    grad(function)(rows())


def dual_hessian_product() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(leaf(), weights())
        torch.autograd.grad(loss(x), x)


def create_graph_once() -> None:
    x = leaf()
    torch.autograd.grad(loss(x), x, create_graph=True)


def batched_gradients() -> None:
    x = leaf()
    basis = torch.eye(N, dtype=torch.float64).view(N, 4, 3)
    torch.autograd.grad(normalized(x), x, basis, is_grads_batched=True)


MODES = {
    "forward": (lambda: normalized(rows()), S, 0),
    "backward": (lambda: passes(1), S, S),
    "create_graph": (create_graph_once, S, S),
    "two passes": (lambda: passes(2), S, 2 * S),
    "three passes": (lambda: passes(3), S, 3 * S),
    "four passes": (lambda: passes(4), S, 4 * S),
    "func.grad": (lambda: grad(loss)(rows()), S, S),
    "func.grad^2": (lambda: nested_grad(2), S, 2 * S),
    "func.grad^3": (lambda: nested_grad(3), S, 3 * S),
    "vmap": (lambda: vmap(normalized)(rows()), S, 0),
    "vmap of grad": (lambda: vmap(grad(row_loss))(rows()), S, S),
    "grad of vmap": (lambda: grad(lambda x: vmap(row_loss)(x).sum())(rows()), S, S),
    "jvp": (lambda: jvp(normalized, (rows(),), (weights(),)), S, 0),
    "jacfwd": (lambda: jacfwd(normalized)(rows()), S, 0),
    "jvp of jvp": (
        lambda: jvp(lambda x: jvp(normalized, (x,), (weights(),))[1], (rows(),), (weights(),)),
        S,
        0,
    ),
    "jvp of grad": (lambda: jvp(grad(loss), (rows(),), (weights(),)), S, S),
    "grad of jvp": (lambda: grad(lambda x: jvp(loss, (x,), (weights(),))[1])(rows()), S, S),
    "dual Hessian product": (dual_hessian_product, S, S),
    "hessian": (lambda: hessian(loss)(rows()), S, S),
    "vmap of hessian": (lambda: vmap(hessian(row_loss))(rows()), S, S),
    # One pass per element of the output, each over all rows.
    "jacrev": (lambda: jacrev(normalized)(rows()), S, N * S),
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
    normalized(rows().to("meta"))
    with torch._subclasses.FakeTensorMode() as mode:
        normalized(mode.from_tensor(rows()))
    assert counts() == (0, 0)


def test_counters_off_count_nothing_and_change_nothing() -> None:
    level = safeops.diagnostics.level()
    expected = normalized(rows())
    counts()
    try:
        safeops.diagnostics.set_level(0)
        x = leaf()
        y = normalized(x)
        y.sum().backward()
        assert counts() == (0, 0)
        assert torch.equal(y.detach(), expected)
        with pytest.raises(ValueError, match="policy 'raise' met 2 singular rows of 4"):
            safeops.normalize(rows(), policy="raise")
    finally:
        safeops.diagnostics.set_level(level)


def test_a_raise_is_counted_once() -> None:
    with pytest.raises(safeops.SingularityError):
        safeops.normalize(rows(), policy="raise")
    assert counts() == (S, 0)


def test_functional_call_counts_as_eager() -> None:
    linear = torch.nn.Linear(3, 3, bias=False, dtype=torch.float64)

    def run(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return normalized(func.functional_call(linear, weights, (rows(),))).sum()

    grad(run)({"weight": linear.weight.detach()})
    assert counts() == (S, S)
