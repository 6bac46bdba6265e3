"""Observed calls: what is seen, and that nothing else is."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import safeops
from patch_samples import counted
from safeops import _observe
from samples import assert_same_bits


def observed() -> safeops.patch:
    return safeops.patch(observe=True)


def zeros() -> torch.Tensor:
    return torch.zeros(2, 3, requires_grad=True)


def backward_hits() -> int:
    found = counted()
    return sum(count for (_, _, direction), count in found.items() if direction == "backward")


def test_every_backward_pass_counts() -> None:
    x = zeros()
    with observed():
        y = F.normalize(x)
    for _ in range(3):
        y.sum().backward(retain_graph=True)
    assert backward_hits() == 3 * 2
    torch.autograd.grad(y.sum(), y)  # no backward pass of the operator
    assert backward_hits() == 0
    torch.autograd.grad(y.sum(), x)
    assert backward_hits() == 2


def test_backward_hits_find_the_line() -> None:
    x = zeros()
    with observed():
        y = x.sqrt()
    y.sum().backward()
    (site,) = safeops.diagnostics.snapshot().sites
    assert (site.filename, site.forward, site.backward) == (__file__, 0, 6)


def test_the_argument_may_be_changed_before_the_backward_pass() -> None:
    x = zeros()
    with observed():
        moved = x * 1
        y = moved.sqrt()
        moved.add_(1)
        y.sum().backward()
    assert x.grad.isinf().all() and backward_hits() == 6


@pytest.mark.parametrize("view", ["row", "column", "diagonal"])
def test_views_changed_in_place(view: str) -> None:
    def run(divide: Any) -> None:
        leaf = torch.ones(3, 3, requires_grad=True)
        base = leaf * 1
        part = {"row": base[1], "column": base[:, 1], "diagonal": base.diagonal()}[view]
        divide(part, torch.zeros(3, requires_grad=True))
        base.nan_to_num(0).sum().backward()

    run(lambda part, zero: safeops.div_(part, zero, policy="stock"))
    expected = counted()
    with observed():
        run(lambda part, zero: part.div_(zero))
    assert counted() == expected and len(expected) == 2


def test_no_hit_no_hook() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    with observed():
        y = x.rsqrt()
    assert y._backward_hooks is None and not _observe._Kept._waiting


def test_nothing_is_seen_of_it() -> None:
    seen: list[str] = []

    class Names(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = zeros()
    packed: list[torch.Tensor] = []
    with (
        warnings.catch_warnings(),
        Names(),
        observed(),
        torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t),
    ):
        warnings.simplefilter("error")
        y = x.rsqrt()
    assert seen == ["rsqrt"] and len(packed) == 1
    assert y._backward_hooks is None


def test_second_order_passes() -> None:
    # torch saves the result of rsqrt, so a second pass runs its node again.
    hits = {}
    for name in ("rsqrt", "softmax", "normalize"):
        x = torch.full((1, 2), -torch.inf if name == "softmax" else 0.0, requires_grad=True)
        with observed():
            y = {
                "rsqrt": lambda x: x.rsqrt(),
                "softmax": lambda x: x.softmax(1),
                "normalize": lambda x: F.normalize(x),
            }[name](x)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        first.sum().backward()
        hits[name] = backward_hits()
    assert hits == {"rsqrt": 2 * 2, "softmax": 2, "normalize": 1}


def test_anomaly_detection_reports_stock() -> None:
    x = zeros()
    with observed():
        y = x.rsqrt() * 0
    assert y.isnan().all()
    with pytest.raises(RuntimeError, match="RsqrtBackward0") as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            y.sum().backward()
    assert "Safeops" not in str(caught.value)
    assert backward_hits() == 6


@pytest.mark.parametrize("name", ["div", "power", "normalize", "logsumexp", "softmax"])
def test_anomaly_detection_warns_of_stock_alone(name: str) -> None:
    call = {
        "div": lambda x: torch.ones(4, 1, 1) / x,
        "power": lambda x: x**-2,
        "normalize": lambda x: F.normalize(x, dim=1),
        "logsumexp": lambda x: torch.logsumexp(x - torch.inf, (0, 1)),
        "softmax": lambda x: F.softmax(x.half() - torch.inf, 1, dtype=torch.float32),
    }[name]

    def run() -> None:
        x = zeros()
        with observed():
            y = call(x)
        with contextlib.suppress(RuntimeError):
            y.sum().backward()

    run()
    expected = counted()
    assert any(direction == "backward" for _, _, direction in expected)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly():
            run()
    assert counted() == expected
    assert not [w for w in caught if "Safeops" in str(w.message)]


def test_transforms() -> None:
    x = torch.zeros(3)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return x.rsqrt().sum()

    with observed():
        transformed = torch.func.grad(loss)(x)
        batched = torch.func.vmap(torch.rsqrt)(x)
        _, tangent = torch.func.jvp(torch.rsqrt, (x + 1,), (x + 1,))
    assert_same_bits(transformed, torch.func.grad(loss)(x))
    assert_same_bits(batched, x.rsqrt())
    assert_same_bits(tangent, torch.full((3,), -0.5))
    assert counted()["rsqrt", "zero_argument", "forward"] == 6


def test_what_is_not_observed() -> None:
    class Operators(TorchDispatchMode):
        names: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    with observed(), Operators() as operators:
        torch.zeros(3).rsqrt()
    assert operators.names == ["aten.zeros.default", "aten.rsqrt.default"]
    with observed(), torch.device("meta"):
        torch.zeros(3).rsqrt()
    with observed(), pytest.raises(RuntimeError):
        torch.zeros(3) / torch.zeros(4)
    assert counted() == {}
    safeops.diagnostics.set_level(0)
    with observed():
        torch.zeros(3).rsqrt()
    assert counted() == {}


def test_shadows_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_observe, "_KEPT_BYTES", 3 * 48)  # an input and a result each
    x = zeros()
    with observed():
        results = [x.rsqrt() for _ in range(5)]
    assert len(_observe._Kept._waiting) == 3 and _observe._Kept._bytes == 3 * 48
    for y in results:
        y.sum().backward()
    assert backward_hits() == 3 * 6  # the oldest two have lost theirs
    del results, y
    assert not _observe._Kept._waiting and _observe._Kept._bytes == 0
