"""The nodes among the rest of autograd: what they save, versions, checkpoints, threads, views."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import safeops
from division_samples import EPS, INF, NAMES, UNARY, assert_equal, call, numbers, operands, stock
from samples import COMPLEX, REAL, assert_same_bits, counts, identifier

NODES = {
    "div": "SafeopsDivBackward",
    "reciprocal": "SafeopsReciprocalBackward",
    "rsqrt": "SafeopsRsqrtBackward",
    "sqrt": "SafeopsSqrtBackward",
    "log": "SafeopsLogBackward",
}


def leaves(name: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [tensor.requires_grad_() for tensor in operands(name, dtype)]


def run(name: str, *tensors: torch.Tensor) -> torch.Tensor:
    return call(name, *tensors, policy="zero")


def weighted(y: torch.Tensor) -> torch.Tensor:
    return (y * torch.arange(1.0, 1 + y.numel()).view(y.shape)).sum()


def plain_gradients(name: str) -> list[torch.Tensor]:
    tensors = leaves(name)
    weighted(run(name, *tensors)).backward()
    safeops.diagnostics.reset()
    assert all((tensor.grad != 0).any() for tensor in tensors)
    return [tensor.grad for tensor in tensors]


def assert_plain(name: str, tensors: list[torch.Tensor]) -> None:
    for tensor, want in zip(tensors, plain_gradients(name), strict=True):
        assert_same_bits(tensor.grad, want)


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
    tensors = leaves(name)
    y = run(name, *tensors)
    assert y.grad_fn.name() == NODES[name]
    (grad, *_) = torch.autograd.grad(weighted(y), tensors, create_graph=True)
    assert f"{NODES[name]}Backward" in names_of_nodes(grad)


# What is saved


def packed_by(function: object, *arguments: object) -> tuple[torch.Tensor, list[torch.Tensor]]:
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> int:
        packed.append(tensor)
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda i: packed[i].clone()):
        y = function(*arguments, policy="zero")  # type: ignore[operator]
    return y, packed


@pytest.mark.parametrize("name", NAMES)
def test_the_inputs_are_saved_and_hooks_may_replace_them(name: str) -> None:
    tensors = leaves(name)
    y, packed = packed_by(getattr(safeops, name), *tensors)
    assert sorted(t.data_ptr() for t in packed) == sorted(t.data_ptr() for t in tensors)
    weighted(y).backward()
    assert_plain(name, tensors)


@pytest.mark.parametrize("mode", [None, "trunc"])
def test_a_divisor_without_gradient_keeps_nothing_of_the_dividend(mode: str | None) -> None:
    x = numbers(torch.float32, (4, 6)).requires_grad_()
    c = torch.tensor([2.0, 0.0, 4.0, 1.0, 3.0, 5.0])

    def divided(x: torch.Tensor, c: object, policy: str) -> torch.Tensor:
        return safeops.div(x, c, rounding_mode=mode, policy=policy)

    for divisor in (c, 2.5):
        _, packed = packed_by(divided, x, divisor)
        assert x.data_ptr() not in [t.data_ptr() for t in packed]
        assert sum(t.numel() for t in packed) <= 6


def test_a_dividend_without_gradient() -> None:
    a, b = operands("div", torch.float32)
    y = safeops.div(a, b.requires_grad_(), policy="zero")
    weighted(y).backward()
    assert_same_bits(b.grad, plain_gradients("div")[1])
    assert a.grad is None


def test_a_nan_in_a_dividend_that_is_not_saved_does_not_exempt() -> None:
    a = torch.tensor([float("nan"), 1.0], requires_grad=True)
    b = torch.zeros(2)
    safeops.div(a, b, policy="zero").sum().backward()
    assert a.grad.tolist() == [0, 0]
    assert counts("div") == (1, 2)
    a.grad = None
    safeops.div(a, b.requires_grad_(), policy="zero").sum().backward()
    assert a.grad.tolist() == [INF, 0] and b.grad[0].isnan() and b.grad[1] == 0
    assert counts("div") == (1, 1)


@pytest.mark.parametrize("name", NAMES)
def test_changing_a_saved_input_in_place_is_an_error(name: str) -> None:
    for i in range(1 + (name == "div")):
        tensors = leaves(name)
        moved = [tensor * 1 for tensor in tensors]
        y = run(name, *moved)
        moved[i].zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("name", NAMES)
def test_the_result_may_be_changed_in_place(name: str) -> None:
    tensors = leaves(name)
    y = run(name, *tensors)
    y *= 2
    weighted(y).backward()
    for tensor, want in zip(tensors, plain_gradients(name), strict=True):
        assert_same_bits(tensor.grad, 2 * want)


def test_the_dividend_may_be_changed_in_place_where_it_is_not_saved() -> None:
    for function in (safeops.div, torch.div):
        leaf = torch.ones(3, requires_grad=True)
        x = leaf * 1
        y = function(x, torch.tensor([2.0, 4.0, 8.0]))
        x.zero_()
        y.sum().backward()
        assert leaf.grad.tolist() == [0.5, 0.25, 0.125]


# Graphs


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_is_freed_unless_it_is_retained(name: str) -> None:
    tensors = leaves(name)
    y = weighted(run(name, *tensors))
    first = torch.autograd.grad(y, tensors, retain_graph=True)
    second = torch.autograd.grad(y, tensors)
    for a, b in zip(first, second, strict=True):
        assert_same_bits(a, b)
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
    assert counts(name) == (int(name != "sqrt"), 2)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_checkpoint_runs_forward_twice_and_counts_it_twice(name: str, reentrant: bool) -> None:
    tensors = leaves(name)
    weighted(checkpoint(run, name, *tensors, use_reentrant=reentrant)).backward()
    assert counts(name) == (2 * (name != "sqrt"), 1)
    assert_plain(name, tensors)


@pytest.mark.parametrize("name", NAMES)
def test_backward_keeps_the_policy_of_forward(name: str) -> None:
    tensors = leaves(name)
    with safeops.policy("nan"):
        y = call(name, *tensors)
    with safeops.policy("zero"):
        y.sum().backward()
    assert all(tensor.grad[0, 0].isnan() for tensor in tensors)


@pytest.mark.parametrize("name", NAMES)
def test_no_graph_where_none_is_asked_for(name: str) -> None:
    tensors = leaves(name)
    with torch.no_grad():
        assert not run(name, *tensors).requires_grad
    assert not run(name, *(t.detach() for t in tensors)).requires_grad
    with torch.inference_mode():
        assert run(name, *operands(name, torch.float32)).is_inference()


# Gradients


@pytest.mark.parametrize("other", [torch.float16, torch.float32, torch.complex64], ids=identifier)
@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX], ids=identifier)
def test_gradients_have_dtype_and_shape_of_their_operand(
    dtype: torch.dtype, other: torch.dtype
) -> None:
    results = []
    for function in (safeops.div, torch.div):
        a = numbers(dtype, (3, 1)).requires_grad_()
        b = numbers(other, (4,), seed=1).requires_grad_()
        y = function(a, b)
        g = numbers(y.dtype, (3, 4), seed=2)
        results.append([y, *torch.autograd.grad(y, (a, b), g)])
        assert [grad.dtype for grad in results[-1][1:]] == [dtype, other]
    for actual, want in zip(*results, strict=True):
        assert actual.dtype is want.dtype and actual.shape == want.shape
        torch.testing.assert_close(actual, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "channels_last"])
@pytest.mark.parametrize("name", UNARY)
def test_strides_of_gradients_are_torchs(name: str, layout: str) -> None:
    x = numbers(torch.float32, (2, 3, 4, 5))
    if layout == "transposed":
        x = x.transpose(1, 3)
    elif layout == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last)
    x = x.detach().requires_grad_()
    grads = []
    for function in (call, stock):
        y = function(name, x)
        grads.append(torch.autograd.grad(y, x, torch.ones_like(y))[0])
    assert grads[0].stride() == grads[1].stride()
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("name", NAMES)
def test_strided_and_transposed_gradients(name: str) -> None:
    tensors = leaves(name, torch.float64)
    y = run(name, *tensors)
    g = numbers(torch.float64, (4, 6), seed=3)
    wanted = torch.autograd.grad(y, tensors, g, retain_graph=True)
    for other in (g.repeat_interleave(2, -1)[..., ::2], g.t().contiguous().t()):
        grads = torch.autograd.grad(y, tensors, other, retain_graph=True)
        for grad, want in zip(grads, wanted, strict=True):
            assert_same_bits(grad, want)


@pytest.mark.parametrize("name", NAMES)
def test_one_graph_from_many_threads(name: str) -> None:
    tensors = leaves(name)
    total = weighted(run(name, *tensors))
    results: list[tuple[torch.Tensor, ...]] = []

    def work() -> None:
        for _ in range(20):
            results.append(torch.autograd.grad(total, tensors, retain_graph=True))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(name) == (int(name != "sqrt"), 80)
    wanted = plain_gradients(name)
    assert len(results) == 80
    for grads in results:
        for grad, want in zip(grads, wanted, strict=True):
            assert_same_bits(grad, want)


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX], ids=identifier)
@pytest.mark.parametrize("name", NAMES)
def test_negative_and_conjugate_views_are_read_as_their_numbers(
    name: str, dtype: torch.dtype
) -> None:
    def views(x: torch.Tensor) -> list[torch.Tensor]:
        negative = torch._neg_view(-x)
        return [negative, x.conj(), negative.conj()] if dtype.is_complex else [negative]

    tensors = operands(name, dtype, zeros=0)
    for viewed in zip(*(views(t) for t in tensors), strict=True):
        plain = [t.resolve_conj().resolve_neg() for t in viewed]
        assert any(t.is_neg() or t.is_conj() for t in viewed)
        assert_same_bits(call(name, *viewed), call(name, *plain))
        out = torch.empty(4, 6, dtype=dtype)
        call(name, *viewed, out=torch._neg_view(out))
        assert_same_bits(-out, call(name, *plain))
    leaves_ = [t.requires_grad_() for t in tensors]
    y = call(name, *leaves_)
    for g in views(numbers(dtype, (4, 6), seed=2)):
        grads = torch.autograd.grad(y, leaves_, g, retain_graph=True)
        plain_g = g.resolve_conj().resolve_neg()
        wanted = torch.autograd.grad(y, leaves_, plain_g, retain_graph=True)
        for grad, want in zip(grads, wanted, strict=True):
            assert_same_bits(grad, want)


@pytest.mark.filterwarnings(
    "ignore:Anomaly Detection:UserWarning", "ignore:Error detected in:UserWarning"
)
@pytest.mark.parametrize("name", NAMES)
def test_anomaly_mode_names_the_node(name: str) -> None:
    tensors = leaves(name)
    with torch.autograd.detect_anomaly(check_nan=True):
        weighted(run(name, *tensors)).backward()
        y = call(name, *tensors, policy="nan")
        with pytest.raises(RuntimeError, match=f"{NODES[name]}.*nan"):
            y.nan_to_num().sum().backward()


class Tagged(torch.Tensor):
    pass


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_subclass_comes_back_as_itself(name: str) -> None:
    tensors = operands(name, torch.float32)
    tagged = [t.as_subclass(Tagged) for t in tensors]
    want = run(name, *tensors)
    for i in range(len(tensors)):
        mixed = [*tensors[:i], tagged[i], *tensors[i + 1 :]]
        assert type(run(name, *mixed)) is Tagged
    assert_equal(run(name, *tagged).as_subclass(torch.Tensor), want)
    change = getattr(safeops, f"{name}_")
    assert change(tagged[0], *tensors[1:], policy="zero") is tagged[0]
    assert_equal(tagged[0].as_subclass(torch.Tensor), want)
    assert (
        type(run(name, *(torch.nn.Parameter(t) for t in operands(name, REAL[2])))) is torch.Tensor
    )


def test_true_divide_and_a_subclass() -> None:
    a, b = operands("div", torch.float32)
    for function in (safeops.true_divide, safeops.divide, safeops.true_divide_, safeops.divide_):
        assert type(function(a.clone().as_subclass(Tagged), b, policy="zero")) is Tagged
        assert type(function(a.clone().as_subclass(Tagged), 2.0)) is Tagged


@pytest.mark.parametrize("name", NAMES)
def test_results_can_be_copied(name: str) -> None:
    y = run(name, *operands(name, torch.float32))
    assert_same_bits(copy.deepcopy(y), y)


def test_an_explicit_eps_is_kept_for_backward() -> None:
    a = torch.tensor([1.0, 1.0], requires_grad=True)
    b = torch.tensor([EPS / 2, EPS], requires_grad=True)
    safeops.div(a, b, eps=EPS, policy="epsilon").sum().backward()
    assert a.grad.tolist() == [1 / EPS, 1 / EPS]
    assert b.grad.tolist() == [0, -1 / EPS**2]
