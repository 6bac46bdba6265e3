"""Patches that are left elsewhere than they were entered, in other processes, and pickled."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import _get_current_function_mode_stack
from torch.utils.data import DataLoader, Dataset

import safeops
from patch_samples import EMPTY, ZERO
from safeops import _patch_doors
from safeops._patch import watched
from safeops._stock_calls import FUNCTIONAL


def in_a_thread(function: Callable[[], Any]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def assert_stock() -> None:
    assert F.softmax is FUNCTIONAL["softmax"] and _patch_doors._open == 0
    assert (1 / ZERO).isinf().all() and F.softmax(EMPTY, 1).isnan().all()


def resumed_by_another_thread(patch: safeops.patch) -> None:
    def generator() -> Iterator[None]:
        with patch:
            yield

    generated = generator()
    next(generated)
    in_a_thread(lambda: next(generated, None))


def entered_in_a_context(patch: safeops.patch) -> None:
    contextvars.copy_context().run(patch.__enter__)
    patch.__exit__(None, None, None)


def entered_in_another_task(patch: safeops.patch) -> None:
    async def enter() -> None:
        patch.__enter__()

    async def run() -> None:
        await asyncio.create_task(enter())
        patch.__exit__(None, None, None)

    asyncio.run(run())


@pytest.mark.parametrize(
    "leave", [resumed_by_another_thread, entered_in_a_context, entered_in_another_task]
)
def test_a_patch_may_be_left_elsewhere(leave: Callable[[safeops.patch], None]) -> None:
    def all_of_it() -> None:
        patch = safeops.patch(policy="nan")
        leave(patch)
        assert_stock()
        # Where it was entered it still lies on the stack, to be taken off by the next.
        with patch:
            assert len(_get_current_function_mode_stack()) == 1
            assert (1 / ZERO).isnan().all()
        assert _get_current_function_mode_stack() == []
        assert_stock()

    contextvars.copy_context().run(all_of_it)


def test_leaving_elsewhere_takes_no_scope_of_others() -> None:
    patch = safeops.patch("div", policy="nan")

    def leave() -> None:
        with safeops.policy("zero"):
            patch.__exit__(None, None, None)
            assert torch.equal(safeops.div(1, ZERO), ZERO)

    def all_of_it() -> None:
        patch.__enter__()
        in_a_thread(leave)

    contextvars.copy_context().run(all_of_it)
    with safeops.patch():
        pass  # takes off the stack what was left in the other thread
    assert_stock()


def test_leaving_what_was_not_entered() -> None:
    patch = safeops.patch(policy="zero")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="more often than entered"):
            patch.__exit__(None, None, None)
    assert_stock()
    with patch:
        assert torch.equal(1 / ZERO, ZERO)


def test_compiled_code_after_a_patch_was_left_elsewhere() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: 1 / x, backend="aot_eager", fullgraph=True)

    def all_of_it() -> None:
        patch = safeops.patch(policy="zero")
        patch.__enter__()
        assert torch.equal(compiled(ZERO), ZERO)
        in_a_thread(lambda: patch.__exit__(None, None, None))
        assert compiled(ZERO).isinf().all()

    contextvars.copy_context().run(all_of_it)
    with safeops.patch():
        pass
    torch._dynamo.reset()


def test_a_copied_context_brings_no_watcher() -> None:
    class Watcher:
        calls = 0

        def saw(self, *told: object) -> None:
            self.calls += 1

    def other() -> None:
        with safeops.patch(policy="zero"):
            assert torch.equal(1 / ZERO, ZERO)

    async def in_a_copied_context() -> None:
        await asyncio.to_thread(other)

    watcher = Watcher()
    with watched(None, None, watcher):
        asyncio.run(in_a_copied_context())
    assert watcher.calls == 0


class Quotients(Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return 1 / torch.zeros(3)


def test_workers_forked_in_the_block_are_patched() -> None:
    def loaded() -> torch.Tensor:
        loader = DataLoader(Quotients(), num_workers=1, multiprocessing_context="fork")
        (found,) = list(loader)
        return found

    assert loaded().isinf().all()
    with safeops.patch(policy="zero"):
        assert torch.equal(loaded(), torch.zeros(1, 3))


def test_pickled() -> None:
    patch = safeops.patch("div", policy="zero")
    copy = pickle.loads(pickle.dumps(patch))
    assert repr(copy) == repr(patch)
    with copy:
        assert torch.equal(1 / ZERO, ZERO) and F.softmax(EMPTY, 1).isnan().all()
    assert repr(pickle.loads(pickle.dumps(safeops.patch(observe=True)))).endswith("observe=True)")
    # As the docstring of patch says.
    with patch, pytest.raises(pickle.PicklingError):
        pickle.dumps(FUNCTIONAL["softmax"])


def test_other_threads_go_on_with_subclasses_and_warnings() -> None:
    class Names(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

    def other() -> None:
        x = torch.ones(2, 3)
        for call in (F.softmax, F.log_softmax, F.normalize):
            stock = FUNCTIONAL[call.__name__]
            assert torch.equal(call(x, 1), stock(x, 1))
            assert torch.equal(call(input=x, dim=1), stock(x, dim=1))
            assert call(x.as_subclass(Names), dim=1) is stock
        with pytest.warns(UserWarning, match="Implicit dimension") as caught:
            F.softmax(x)
        assert caught[0].filename == __file__

    with safeops.patch(policy="zero"):
        in_a_thread(other)
