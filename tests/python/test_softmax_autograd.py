"""The nodes among the rest of autograd: saved tensors, versions, checkpoints, threads, views."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import safeops
from samples import REAL, assert_same_bits, counts, identifier
from softmax_samples import INF, LOGITS, NAMES, call, logits, stock

ROWS = torch.tensor([[3.0, 4.0, 0.0], [-INF, -INF, -INF], [1.0, 2.0, -INF]])
WHERE = torch.tensor([True, True, False])
NODES = {
    "softmax": "SafeopsSoftmaxBackward",
    "log_softmax": "SafeopsLogSoftmaxBackward",
    "logsumexp": "SafeopsLogSumExpBackward",
}


def leaf() -> torch.Tensor:
    return ROWS.clone().requires_grad_()


def run(name: str, x: torch.Tensor) -> torch.Tensor:
    return call(name, x, policy="zero", where=WHERE)


def weighted(y: torch.Tensor) -> torch.Tensor:
    y = torch.where(y == -INF, torch.zeros_like(y), y)
    return (y * torch.arange(1.0, 1 + y.numel()).view(y.shape)).sum()


def plain_gradient(name: str) -> torch.Tensor:
    x = leaf()
    weighted(run(name, x)).backward()
    safeops.diagnostics.reset()
    assert (x.grad != 0).any()
    return x.grad


def names_of_nodes(y: torch.Tensor) -> list[str]:
    found, waiting = [], [y.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None:
            found.append(node.name())
            waiting += [edge for edge, _ in node.next_functions]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_nodes_have_the_operators_names(name: str) -> None:
    x = leaf()
    y = run(name, x)
    assert NODES[name] in names_of_nodes(y)
    (grad,) = torch.autograd.grad(weighted(y), x, create_graph=True)
    assert f"{NODES[name]}Backward" in names_of_nodes(grad)


@pytest.mark.parametrize("name", NAMES)
def test_saved_tensor_hooks_see_what_is_saved_and_may_replace_it(name: str) -> None:
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> int:
        packed.append(tensor.clone())
        return len(packed) - 1

    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(pack, packed.__getitem__):
        y = run(name, x)
    assert sorted(t.numel() for t in packed if t.dtype is not torch.bool) == [3, 9]
    assert sum(t.dtype is torch.bool for t in packed) == 1
    weighted(y).backward()
    assert_same_bits(x.grad, plain_gradient(name))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_checkpoint_runs_forward_twice_and_counts_it_twice(name: str, reentrant: bool) -> None:
    x = leaf()
    weighted(checkpoint(run, name, x, use_reentrant=reentrant)).backward()
    assert counts(name) == (2, 1)
    assert_same_bits(x.grad, plain_gradient(name))


@pytest.mark.parametrize("name", NAMES)
def test_backward_keeps_the_policy_of_forward(name: str) -> None:
    x = leaf()
    with safeops.policy("nan"):
        y = call(name, x)
    with safeops.policy("zero"):
        y.sum().backward()
    assert x.grad[1].isnan().all() and not x.grad[0].isnan().any()


@pytest.mark.parametrize("name", LOGITS)
def test_changing_the_result_in_place_is_an_error_as_in_torch(name: str) -> None:
    for function in (run, stock):
        x = leaf()
        y = function(name, x * 1)
        y[0].zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("name", LOGITS)
def test_changing_the_input_in_place_is_fine_as_in_torch(name: str) -> None:
    for function in (run, stock):
        grads = []
        for change in (False, True):
            x = leaf()
            moved = x * 1
            y = function(name, moved)
            if change:
                moved.zero_()
            weighted(y[[0]]).backward()
            grads.append(x.grad[0])
        assert_same_bits(grads[1], grads[0])


def test_logsumexp_saves_its_input_as_in_torch() -> None:
    for function in (run, stock):
        x = leaf()
        moved = x * 1
        y = function("logsumexp", moved)
        moved.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_logsumexp_lets_its_result_be_changed_in_place() -> None:
    x = leaf()
    y = run("logsumexp", x)
    y *= 2
    weighted(y).backward()
    assert_same_bits(x.grad, 2 * plain_gradient("logsumexp"))


@pytest.mark.parametrize("name", NAMES)
def test_changing_the_mask_in_place_is_an_error(name: str) -> None:
    x, where = leaf(), WHERE.clone()
    y = call(name, x, policy="zero", where=where)
    where.fill_(True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_is_freed(name: str) -> None:
    x = leaf()
    y = weighted(run(name, x))
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()


@pytest.mark.parametrize("name", NAMES)
def test_no_graph_where_none_is_asked_for(name: str) -> None:
    x = leaf()
    with torch.no_grad():
        assert not run(name, x).requires_grad
    assert not run(name, x.detach()).requires_grad
    with torch.inference_mode():
        assert run(name, ROWS.clone()).is_inference()


@pytest.mark.parametrize("source", REAL, ids=identifier)
@pytest.mark.parametrize("target", [None, torch.float32, torch.float64], ids=identifier)
@pytest.mark.parametrize("name", LOGITS)
def test_gradients_have_the_dtype_of_the_input(
    name: str, source: torch.dtype, target: torch.dtype | None
) -> None:
    for layout in (lambda t: t, torch.Tensor.t):
        x = layout(logits(source, (4, 4))).requires_grad_()
        theirs = x.detach().clone().requires_grad_()
        y, want = call(name, x, 0, dtype=target), stock(name, theirs, 0, dtype=target)
        g = logits(y.dtype, (4, 4), 2.0, seed=2)
        (grad,) = torch.autograd.grad(y, x, g)
        (want_grad,) = torch.autograd.grad(want, theirs, g)
        assert y.dtype is want.dtype and grad.dtype is want_grad.dtype is source
        assert grad.stride() == want_grad.stride()
        torch.testing.assert_close(grad, want_grad, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", NAMES)
def test_strided_and_expanded_gradients(name: str) -> None:
    x = logits(torch.float64, (4, 6)).requires_grad_()
    y = call(name, x)
    g = logits(torch.float64, tuple(y.shape), seed=3)
    (want,) = torch.autograd.grad(y, x, g, retain_graph=True)
    strided = g.repeat_interleave(2, -1)[..., ::2]
    (grad,) = torch.autograd.grad(y, x, strided, retain_graph=True)
    assert_same_bits(grad, want)
    if name != "logsumexp":
        transposed = g.t().contiguous().t()
        (grad,) = torch.autograd.grad(y, x, transposed, retain_graph=True)
        torch.testing.assert_close(grad, want)
    (want,) = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
    (grad,) = torch.autograd.grad(y, x, torch.ones((), dtype=torch.float64).expand(y.shape))
    torch.testing.assert_close(grad, want)


@pytest.mark.parametrize("name", NAMES)
def test_one_graph_from_many_threads(name: str) -> None:
    x = leaf()
    total = weighted(run(name, x))
    grads: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(30):
            grads.extend(torch.autograd.grad(total, x, retain_graph=True))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(name) == (1, 120)
    expected = plain_gradient(name)
    assert len(grads) == 120
    for grad in grads:
        assert_same_bits(grad, expected)


@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_negative_views_are_read_as_their_numbers(name: str, dtype: torch.dtype) -> None:
    negative = torch._neg_view(logits(dtype, (4, 5)))
    assert negative.is_neg()
    assert_same_bits(call(name, negative), call(name, negative.resolve_neg()))
    if name != "logsumexp":
        out = torch.empty(4, 5, dtype=dtype)
        call(name, negative, out=torch._neg_view(out))
        assert_same_bits(-out, call(name, negative))
    x = logits(dtype, (4, 5)).requires_grad_()
    y = call(name, x)
    g = torch._neg_view(logits(dtype, tuple(y.shape), seed=2))
    (grad,) = torch.autograd.grad(y, x, g, retain_graph=True)
    (want,) = torch.autograd.grad(y, x, g.resolve_neg())
    assert_same_bits(grad, want)


@pytest.mark.filterwarnings(
    "ignore:Anomaly Detection:UserWarning", "ignore:Error detected in:UserWarning"
)
@pytest.mark.parametrize("name", NAMES)
def test_anomaly_mode_names_the_node(name: str) -> None:
    x = leaf()
    with torch.autograd.detect_anomaly(check_nan=True):
        weighted(run(name, x)).backward()
        y = call(name, x, policy="nan")
        with pytest.raises(RuntimeError, match=f"{NODES[name]}.*nan"):
            y.nan_to_num(neginf=0).sum().backward()


class Tagged(torch.Tensor):
    pass


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_subclass_comes_back_as_itself(name: str) -> None:
    tagged = ROWS.clone().as_subclass(Tagged)
    assert type(call(name, tagged, policy="zero")) is Tagged
    assert type(call(name, ROWS, policy="zero", where=WHERE.as_subclass(Tagged))) is Tagged
    assert type(safeops.softmin(tagged, 0, policy="zero")) is Tagged
    assert type(run(name, torch.nn.Parameter(ROWS.clone()))) is torch.Tensor


@pytest.mark.parametrize("name", NAMES)
def test_results_can_be_copied(name: str) -> None:
    y = run(name, ROWS)
    assert_same_bits(copy.deepcopy(y), y)
