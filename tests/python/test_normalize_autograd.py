"""The node among the rest of autograd: saved tensors, checkpoints, versions, threads, views."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import safeops
from samples import COMPLEX, DTYPES, assert_same_bits, counts, identifier, random_like

ROWS = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 2.0]])


def leaf() -> torch.Tensor:
    return ROWS.clone().requires_grad_()


def normalized(x: torch.Tensor) -> torch.Tensor:
    return safeops.normalize(x, dim=1, policy="zero")


def weighted(y: torch.Tensor) -> torch.Tensor:
    return (y * torch.arange(9.0).view(3, 3)).sum()


def plain_gradient() -> torch.Tensor:
    x = leaf()
    weighted(normalized(x)).backward()
    safeops.diagnostics.reset()
    return x.grad


def test_the_node_has_the_operators_name() -> None:
    assert normalized(leaf()).grad_fn.name() == "SafeopsNormalizeBackward"


def test_the_second_node_has_its_own_name() -> None:
    x = leaf()
    (grad,) = torch.autograd.grad(weighted(normalized(x)), x, create_graph=True)
    assert grad.grad_fn.name() == "SafeopsNormalizeBackwardBackward"


def test_saved_tensor_hooks_see_what_is_saved_and_may_replace_it() -> None:
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> int:
        packed.append(tensor.clone())
        return len(packed) - 1

    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(pack, packed.__getitem__):
        y = normalized(x)
    y.backward(torch.arange(9.0).view(3, 3))
    # The input and one norm a row, and nothing else.
    assert sorted(t.numel() for t in packed) == [3, 9]
    assert_same_bits(x.grad, plain_gradient())


def test_save_on_cpu() -> None:
    x = leaf()
    with torch.autograd.graph.save_on_cpu():
        y = normalized(x)
    weighted(y).backward()
    assert_same_bits(x.grad, plain_gradient())


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_runs_forward_twice_and_counts_it_twice(reentrant: bool) -> None:
    x = leaf()
    weighted(checkpoint(normalized, x, use_reentrant=reentrant)).backward()
    assert counts() == (2, 1)
    assert_same_bits(x.grad, plain_gradient())


def test_a_policy_scope_is_kept_by_the_node() -> None:
    x = leaf()
    with safeops.policy("nan"):
        y = safeops.normalize(x, dim=1)
    with safeops.policy("zero"):
        y.sum().backward()
    assert x.grad[1].isnan().all() and not x.grad[[0, 2]].isnan().any()


def test_checkpoint_keeps_an_explicit_policy() -> None:
    x = leaf()
    with safeops.policy("nan"):
        y = checkpoint(normalized, x, use_reentrant=False)
    weighted(y).backward()
    assert_same_bits(x.grad, plain_gradient())


def test_changing_the_input_in_place_is_an_error() -> None:
    x = leaf() * 1
    y = normalized(x)
    x[0].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_changing_the_output_in_place_is_allowed_as_in_torch() -> None:
    x = leaf()
    y = normalized(x)
    weight = torch.arange(9.0).view(3, 3)
    y.mul_(weight)
    y.sum().backward()
    assert_same_bits(x.grad, plain_gradient())


def test_a_second_backward_needs_the_graph_kept() -> None:
    x = leaf()
    loss = weighted(normalized(x))
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * plain_gradient(), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_double_backward_after_the_graph_is_freed_is_an_error() -> None:
    x = leaf()
    loss = weighted(normalized(x).square())
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    grad.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        grad.sum().backward()


def test_no_grad_and_inference_mode() -> None:
    x = leaf()
    with torch.no_grad():
        y = normalized(x)
    assert not y.requires_grad and y.grad_fn is None
    with torch.inference_mode():
        z = normalized(x)
    assert z.is_inference() and z.grad_fn is None
    assert_same_bits(y, normalized(x))
    assert_same_bits(z.clone(), y)


def test_an_input_without_gradient_builds_no_graph() -> None:
    assert normalized(ROWS).grad_fn is None


def test_a_gradient_through_the_norm_alone() -> None:
    x = leaf()
    out, norm = torch.ops.safeops._normalize_forward(x, 2.0, [1], 0.0, "zero")
    (grad,) = torch.autograd.grad(norm.sum(), x)
    # d n / d x = y on regular rows, and 0 on singular rows.
    torch.testing.assert_close(grad, out.detach())


def test_an_undefined_gradient_stays_undefined() -> None:
    class Cut(torch.autograd.Function):
        """A backward that passes nothing on."""

        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, g: torch.Tensor) -> None:
            return None

    x = leaf()
    Cut.apply(normalized(x)).sum().backward()
    assert x.grad is None
    assert counts() == (1, 0)


def test_the_inner_forward_saves_one_float64_norm_a_row() -> None:
    out, norm = torch.ops.safeops._normalize_forward(ROWS.t(), 2.0, [0], 0.0, "zero")
    assert out.shape == (3, 3) and norm.shape == (1, 3)
    assert norm.dtype is torch.float64 and norm.is_contiguous()
    assert norm.tolist() == [[5, 0, 3]]


def test_one_graph_from_many_threads() -> None:
    x = leaf()
    loss = weighted(normalized(x))
    grads: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(50):
            grads.extend(torch.autograd.grad(loss, x, retain_graph=True))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts() == (1, 200)
    expected = plain_gradient()
    assert len(grads) == 200
    for grad in grads:
        assert_same_bits(grad, expected)


def test_forward_and_backward_in_many_threads() -> None:
    grads: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(50):
            x = leaf()
            weighted(normalized(x)).backward()
            grads.append(x.grad)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts() == (200, 200)
    expected = plain_gradient()
    for grad in grads:
        assert_same_bits(grad, expected)


@pytest.mark.filterwarnings(
    "ignore:Anomaly Detection:UserWarning", "ignore:Error detected in:UserWarning"
)
def test_anomaly_mode_names_the_node() -> None:
    x = leaf()
    with torch.autograd.detect_anomaly(check_nan=True):
        weighted(normalized(x)).backward()
        y = safeops.normalize(x, dim=1, policy="nan")
        with pytest.raises(RuntimeError, match="SafeopsNormalizeBackward.*nan"):
            y.nan_to_num().sum().backward()


def test_an_error_of_raise_reaches_the_caller_of_backward() -> None:
    class Poison(torch.autograd.Function):
        """A backward that calls the fused kernel on a singular row."""

        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:
            norm = torch.zeros(3, 1, dtype=torch.float64)
            return torch.ops.safeops._normalize_backward(g, ROWS, norm, 2.0, [1], 0.0, "raise")

    x = leaf()
    with pytest.raises(ValueError, match="safeops::normalize.*policy 'raise' met 3 singular rows"):
        Poison.apply(x).sum().backward()
    assert x.grad is None


def test_modules_that_normalize_can_be_copied() -> None:
    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(ROWS.clone())

        def forward(self) -> torch.Tensor:
            return normalized(self.weight)

    head = Head()
    weighted(head()).backward()
    twin = copy.deepcopy(head)
    twin.weight.grad = None
    weighted(twin()).backward()
    assert_same_bits(twin.weight.grad, head.weight.grad)
    assert_same_bits(copy.deepcopy(head().detach()), head().detach())


class Tagged(torch.Tensor):
    pass


def test_a_tensor_subclass_comes_back_as_itself() -> None:
    tagged = ROWS.clone().as_subclass(Tagged)
    assert type(safeops.normalize(tagged, policy="zero")) is type(F.normalize(tagged)) is Tagged
    parameter = torch.nn.Parameter(ROWS.clone())
    assert type(normalized(parameter)) is torch.Tensor


@pytest.mark.parametrize("dtype", COMPLEX, ids=identifier)
def test_conjugate_views_are_read_as_their_numbers(dtype: torch.dtype) -> None:
    x, g = (random_like(torch.empty(4, 5, dtype=dtype), seed=s) for s in (1, 2))
    assert x.conj().is_conj()
    assert_same_bits(normalized(x.conj()), normalized(x.conj().resolve_conj()))
    out = torch.empty_like(x)
    safeops.normalize(x, out=out.conj())
    assert_same_bits(out.conj().resolve_conj(), normalized(x))
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    normalized(a).backward(g.conj())
    normalized(b).backward(g.conj().resolve_conj())
    assert_same_bits(a.grad, b.grad)


@pytest.mark.parametrize("dtype", DTYPES, ids=identifier)
def test_negative_views_are_read_as_their_numbers(dtype: torch.dtype) -> None:
    x = random_like(torch.empty(4, 5, dtype=dtype))
    negative = torch._neg_view(x)
    assert negative.is_neg()
    assert_same_bits(normalized(negative), normalized(negative.resolve_neg()))


def test_the_inner_backward_reads_conjugate_and_negative_views() -> None:
    grad, x = (random_like(torch.empty(2, 3, dtype=torch.complex128), seed=s) for s in (1, 2))
    norm = torch.tensor([[1.5], [2.0]], dtype=torch.float64)
    arguments = (norm, 2.0, [1], 0.0, "zero")
    backward = torch.ops.safeops._normalize_backward
    lazy = backward(grad.conj(), torch._neg_view(x).conj(), *arguments)
    plain = backward(grad.conj().resolve_conj(), -x.conj().resolve_conj(), *arguments)
    assert_same_bits(lazy, plain)


def test_hooks_on_the_tensor_and_on_the_node() -> None:
    seen: list[str] = []
    x = leaf()
    y = normalized(x)
    y.retain_grad()
    y.register_hook(lambda g: seen.append("tensor"))
    y.grad_fn.register_prehook(lambda grads: seen.append("before"))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append("after"))
    weighted(y).backward()
    assert sorted(seen) == ["after", "before", "tensor"]
    assert_same_bits(y.grad, torch.arange(9.0).view(3, 3))
    assert_same_bits(x.grad, plain_gradient())


def test_gradients_have_the_dtype_of_the_input() -> None:
    for dtype in DTYPES:
        x = random_like(torch.empty(2, 3, dtype=dtype)).requires_grad_()
        y = normalized(x)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert y.dtype is dtype and grad.dtype is dtype
