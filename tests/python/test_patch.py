"""Which calls a patch reaches, for whom, and for how long."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.functional import softmax as imported_softmax
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import safeops
from patch_samples import EMPTY, ZERO, counted, hits
from safeops._patch_functional import CALLS
from safeops._stock_calls import FUNCTIONAL, TABLE

HALF_EMPTY = torch.tensor([[0.0, 1.0, 2.0], [-torch.inf] * 3])


def test_attention_inside_a_torch_function() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    x, padded = torch.randn(2, 3, 4), torch.tensor([[False] * 3, [True] * 3])

    def weights() -> torch.Tensor:
        return attention(x, x, x, key_padding_mask=padded, need_weights=True)[1]

    assert weights()[1].isnan().all()
    with safeops.patch(policy="zero"):
        assert torch.equal(weights()[1], torch.zeros(3, 3))
        assert hits() == {"softmax": 2 * 3}  # heads, queries
        with safeops.patch("div", policy="nan"):  # does not cover it: the outer one does
            assert torch.equal(weights()[1], torch.zeros(3, 3))
        with safeops.patch("softmax", policy="nan"):
            assert weights()[1].isnan().all()
    assert hits() == {"softmax": 2 * 6}
    assert weights()[1].isnan().all()
    assert hits() == {}


def test_what_is_imported_inside_goes_on_working_outside() -> None:
    with safeops.patch(policy="zero"):
        from torch.nn.functional import log_softmax, softmax

        assert torch.equal(softmax(EMPTY, 1), ZERO)
    assert softmax(EMPTY, 1).isnan().all() and log_softmax(EMPTY, dim=1).isnan().all()
    with safeops.patch("softmax", policy="zero"):
        assert torch.equal(softmax(EMPTY, 1), ZERO)
    with pytest.raises(TypeError):
        softmax()


def test_attributes_are_put_back() -> None:
    before = {name: getattr(F, name) for name in FUNCTIONAL}
    with safeops.patch(), safeops.patch(observe=True):
        assert all(getattr(F, name) is not before[name] for name in before)
        assert {F.softmax.__name__, F.softmax.__module__} == {"softmax", "torch.nn.functional"}
    assert {name: getattr(F, name) for name in FUNCTIONAL} == before


def test_an_attribute_that_somebody_else_replaced_stays_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = lambda *args, **kwargs: "theirs"  # noqa: E731
    with safeops.patch(policy="zero"):
        monkeypatch.setattr(F, "softmax", theirs)
    assert F.softmax is theirs
    with safeops.patch(policy="zero"):
        assert F.softmax is theirs
        assert torch.equal(EMPTY.softmax(1), ZERO)
    assert F.softmax is theirs


def test_a_patched_normalize_takes_the_default_eps_as_not_given() -> None:
    x = torch.tensor([[1e-20, 0.0]])
    with safeops.patch(policy="zero"):
        assert torch.equal(F.normalize(x), torch.tensor([[1.0, 0.0]]))
        assert torch.equal(F.normalize(x, eps=1e-12), torch.tensor([[1.0, 0.0]]))
        assert torch.equal(F.normalize(x, eps=1e-10), torch.zeros(1, 2))


def test_without_a_policy_what_is_in_force_counts() -> None:
    with safeops.policy("nan"), safeops.patch():
        assert F.softmax(EMPTY, 1).isnan().all() and (1 / ZERO).isnan().all()
        with safeops.policy(div="zero"):
            assert torch.equal(1 / ZERO, ZERO)
    with safeops.patch(policy="zero"), safeops.policy(div="nan"):
        assert (1 / ZERO).isnan().all() and torch.equal(F.softmax(EMPTY, 1), ZERO)
        assert torch.equal(safeops.div(1, ZERO, policy="zero"), ZERO)


def test_without_a_choice_a_hit_warns_once_per_line() -> None:
    with safeops.patch(), pytest.warns(safeops.SingularityWarning) as caught:
        for _ in range(3):
            y = 1 / ZERO
    assert y.isinf().all()
    assert [warning.filename for warning in caught] == [__file__]
    with safeops.patch(observe=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (2 / ZERO).isinf().all()


def test_the_line_is_the_callers() -> None:
    with safeops.patch(policy="zero"):
        F.normalize(ZERO)
        nn.Softmax(1)(EMPTY)
    with safeops.patch(observe=True):
        nn.Softmax(1)(EMPTY)
    sites = safeops.diagnostics.snapshot().sites
    assert [site.filename for site in sites] == [__file__] * 3
    assert {site.function for site in sites} == {"test_the_line_is_the_callers"}


def test_raise_leaves_the_patch_behind() -> None:
    x = ZERO.clone()
    patch = safeops.patch(policy="raise")
    with pytest.raises(safeops.SingularityError) as caught, patch:
        x /= 0
    assert caught.value.operator == "div" and torch.equal(x, ZERO)
    assert _get_current_function_mode_stack() == [] and F.softmax is FUNCTIONAL["softmax"]
    with patch, pytest.raises(safeops.SingularityError):
        x**-2
    assert (1 / ZERO).isinf().all()


def test_nested_patches() -> None:
    with safeops.patch(policy="zero"):
        with safeops.patch("div", policy="nan"):
            assert (ZERO / 0).isnan().all()
            assert torch.equal(F.softmax(EMPTY, 1), ZERO)
        with safeops.patch(observe=True):
            counted()
            assert (1 / ZERO).isinf().all() and F.softmax(EMPTY, 1).isnan().all()
            assert hits() == {"div": 6, "softmax": 2}
        with safeops.patch("softmax", observe=True):
            assert torch.equal(1 / ZERO, ZERO) and F.softmax(EMPTY, 1).isnan().all()
            assert hits() == {"div": 6, "softmax": 2}
    with safeops.patch(observe=True), safeops.patch(policy="zero"):
        assert torch.equal(1 / ZERO, ZERO)
        assert hits() == {"div": 6}


def test_one_object_is_entered_again_and_by_threads() -> None:
    patch = safeops.patch(policy="zero")
    found: list[bool] = []

    def work() -> None:
        for _ in range(50):
            with patch, patch:
                found.append(torch.equal(1 / ZERO, ZERO))
            found.append(bool((1 / ZERO).isinf().all()))

    with patch:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.equal(F.softmax(EMPTY, 1), ZERO)
    assert len(found) == 400 and all(found)
    assert F.softmax is FUNCTIONAL["softmax"]


def test_other_threads_see_stock() -> None:
    answers: dict[str, torch.Tensor] = {}

    def other() -> None:
        answers["operator"], answers["functional"] = 1 / ZERO, F.softmax(EMPTY, 1)

    async def copied_context() -> None:
        await asyncio.to_thread(other)

    with safeops.patch(policy="zero"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert answers["operator"].isinf().all() and answers["functional"].isnan().all()
        asyncio.run(copied_context())
        assert answers["functional"].isnan().all()
    assert hits() == {}


def test_tasks_do_not_see_each_others_patches() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @safeops.patch(policy="zero")
    async def first() -> None:
        entered.set()
        await leave.wait()
        assert torch.equal(1 / ZERO, ZERO)

    async def second() -> None:
        await entered.wait()
        assert (1 / ZERO).isinf().all() and F.softmax(EMPTY, 1).isnan().all()
        assert hits() == {}  # not ours, under stock
        with safeops.patch(policy="nan"):
            leave.set()
            await asyncio.sleep(0)  # the first task leaves meanwhile
            await asyncio.sleep(0)
            assert (1 / ZERO).isnan().all() and F.softmax(EMPTY, 1).isnan().all()
        assert (1 / ZERO).isinf().all()

    async def both() -> None:
        await asyncio.gather(first(), second())

    asyncio.run(both())
    assert _get_current_function_mode_stack() == []
    assert F.softmax is FUNCTIONAL["softmax"]


def test_other_modes_keep_their_place_and_see_stock_functions() -> None:
    class Names(TorchFunctionMode):
        seen: list[Any]

        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func.__name__ != "__get__":  # is_nested, which ours asks for
                self.seen.append(func)
            return func(*args, **(kwargs or {}))

    names = Names()
    for keywords in ({"observe": True}, {"policy": "zero"}, {"operators": "div"}):
        for order in ("inside", "outside"):
            names.seen = []
            with ExitStack() as stack:
                managers = [safeops.patch(**keywords), names]
                for manager in managers if order == "inside" else reversed(managers):
                    stack.enter_context(manager)
                F.softmax(HALF_EMPTY, dim=1)
            expected = FUNCTIONAL["softmax"]
            if keywords.get("policy") and order == "outside":
                expected = safeops.softmax
            assert names.seen == [expected], (keywords, order)


def test_subclasses_answer_for_themselves() -> None:
    class Table(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            known = (torch.Tensor.rsqrt, FUNCTIONAL["softmax"])
            return "mine" if func in known else NotImplemented

    class Plain(torch.Tensor):
        pass

    mine = torch.ones(3).as_subclass(Table)
    for patch in (safeops.patch(policy="zero"), safeops.patch(observe=True)):
        with patch:
            assert mine.rsqrt() == "mine" and F.softmax(mine, 0) == "mine"
            with pytest.raises(TypeError):
                mine.log()
    with safeops.patch(policy="zero"):
        y = 1 / ZERO.as_subclass(Plain)
    assert type(y) is Plain and torch.equal(y.as_subclass(torch.Tensor), ZERO)
    # Observed is a dense tensor alone.
    counted()
    with safeops.patch(observe=True):
        assert type(1 / ZERO.as_subclass(Plain)) is Plain
    assert hits() == {}


def test_what_ours_does_not_take_stays_stocks() -> None:
    sparse = torch.eye(2).to_sparse()
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    with safeops.patch(policy="raise"):
        assert (sparse / 2).to_dense()[0, 0] == 0.5
        assert (nested / 2).is_nested
        assert torch.equal(2 ** torch.ones(2), torch.full((2,), 2.0))
        assert (ZERO**-3).isinf().all() and (ZERO ** torch.tensor(-1.0)).isinf().all()
        with pytest.raises(RuntimeError, match="negative integer powers"):
            torch.zeros(2, dtype=torch.int64) ** -1
        with pytest.raises(TypeError):
            ZERO / "2"
        with pytest.raises(TypeError):
            torch.softmax(ZERO)
        with pytest.raises(TypeError):
            torch.softmax(ZERO, 1, axis=1)
        with pytest.raises(TypeError):
            ZERO.softmax(1, out=ZERO)
        with pytest.raises(AttributeError):
            torch.Tensor.__rdiv__(2, 3)


def test_the_warning_of_an_implicit_dim_names_the_same_line() -> None:
    def warned(function: Callable[[], Any]) -> list[tuple[str, str, int]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
        return [(str(w.message), w.filename, w.lineno) for w in caught]

    for function in (
        lambda: F.softmax(HALF_EMPTY.abs()),
        lambda: imported_softmax(HALF_EMPTY[:1]),
        lambda: nn.LogSoftmax()(HALF_EMPTY[:1]),
        lambda: F.softmin(HALF_EMPTY[:1]),
    ):
        expected = warned(function)
        assert len(expected) == 1
        for patch in (safeops.patch(policy="zero"), safeops.patch(observe=True)):
            with patch:
                assert warned(function) == expected
                with patch:
                    assert warned(function) == expected


def test_decorators() -> None:
    @safeops.patch(policy="zero")
    def function(x: torch.Tensor) -> torch.Tensor:
        """Divides."""
        return 1 / x

    @safeops.patch(policy="zero")
    async def coroutine(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return 1 / x

    assert torch.equal(function(ZERO), ZERO) and function.__doc__ == "Divides."
    assert torch.equal(asyncio.run(coroutine(ZERO)), ZERO)
    assert (1 / ZERO).isinf().all()

    def generator():
        yield

    async def async_generator():
        yield

    for refused in (generator, async_generator, nn.Linear):
        with pytest.raises(TypeError, match="safeops.patch"):
            safeops.patch()(refused)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="softmaxx"):
        safeops.patch("softmaxx")
    with pytest.raises(ValueError, match="'soft'"):
        safeops.patch(["div", "soft"])
    with pytest.raises(ValueError, match="policy must be one of"):
        safeops.patch(policy="zeros")
    with pytest.raises(ValueError, match="observe=True"):
        safeops.patch(policy="zero", observe=True)
    assert "policy='zero'" in repr(safeops.patch("div", policy="zero"))


def test_the_doors_share_one_table() -> None:
    assert set(TABLE) <= set(CALLS)
    assert {CALLS[key][0] for key in CALLS} == set(TABLE)
