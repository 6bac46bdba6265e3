"""Patches in the backward pass: what the autograd engine calls back in Python.

``Tensor.backward`` and ``torch.autograd.grad`` are functions that a mode handles, so it is popped
while the engine runs. There backward functions and hooks in Python need it again; and a checkpoint
has to recompute under the patches and the policies of its forward pass, whatever is in force by
then: another operator would save other tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch.autograd
import torch.utils.checkpoint as checkpoint
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode

from safeops import _patch_doors, _policy
from safeops._patch_functional import mirror_for_compiled_code
from safeops._patch_mode import Mode, in_force, in_force_here


def replace_stack(modes: list[Any]) -> None:
    for _ in _get_current_function_mode_stack():
        _pop_mode()
    for mode in modes:
        _push_mode(mode)


@contextmanager
def _on_the_stack(modes: tuple[Mode, ...]) -> Iterator[None]:
    """Puts these patches on the stack of this thread, and takes all others off."""
    before = _get_current_function_mode_stack()
    replace_stack([mode for mode in before if type(mode) is not Mode] + list(modes))
    try:
        yield
    finally:
        replace_stack(before)


@contextmanager
def _only(modes: tuple[Mode, ...]) -> Iterator[None]:
    """Puts these patches in force again, and no others."""
    outer = in_force.get()
    fresh: tuple[Mode, ...] = ()
    for mode in modes:
        fresh = (*fresh, Mode(mode.entered, mode.calls, fresh))
    in_force.set(fresh)
    mirror_for_compiled_code()
    try:
        with _on_the_stack(fresh):
            yield
    finally:
        in_force.set(outer)
        mirror_for_compiled_code()


def _as_now(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under the patches and policies that are in force now, whenever it is called."""
    modes, scope = in_force_here(), _policy.current_scope()
    if not modes:
        return function

    @functools.wraps(function)
    def as_then(*args: Any, **kwargs: Any) -> Any:
        _patch_doors.open_doors()
        try:
            with _policy.in_scope(scope), _only(modes):
                return function(*args, **kwargs)
        finally:
            _patch_doors.close_doors()

    return as_then


def _run_engine_under_patches(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def run_engine(*args: Any, **kwargs: Any) -> Any:
        modes = in_force_here()
        with _on_the_stack(modes) if modes else nullcontext():
            return stock(*args, **kwargs)

    return run_engine


def _keep_patches_in_frame(stock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(stock)
    def make_frame(self: Any, recompute: Callable[..., Any], *rest: Any, **kwargs: Any) -> None:
        stock(self, _as_now(recompute), *rest, **kwargs)

    return make_frame


def _keep_patches_in_node(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def forward(context: Any, function: Callable[..., Any], *rest: Any) -> Any:
        context.safeops_had_patches = bool(in_force_here())
        return stock(context, _as_now(function), *rest)

    return forward


def _recompute_node_as_before(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def backward(context: Any, *gradients: Any) -> Any:
        had_patches = getattr(context, "safeops_had_patches", False)
        with nullcontext() if had_patches else _only(()):
            return stock(context, *gradients)

    return backward


if hasattr(torch.autograd, "_engine_run_backward"):
    _patch_doors.add(
        torch.autograd,
        "_engine_run_backward",
        _run_engine_under_patches(torch.autograd._engine_run_backward),
    )

_patch_doors.add(
    checkpoint.CheckpointFunction,
    "forward",
    staticmethod(_keep_patches_in_node(checkpoint.CheckpointFunction.forward)),
)

_patch_doors.add(
    checkpoint.CheckpointFunction,
    "backward",
    staticmethod(_recompute_node_as_before(checkpoint.CheckpointFunction.backward)),
)

if hasattr(checkpoint, "_CheckpointFrame") and hasattr(checkpoint, "_recomputation_hook"):

    class _RecomputationAsBefore(checkpoint._recomputation_hook):  # type: ignore[misc]
        """A forward pass without a patch is recomputed without, in the block of one."""

        def __enter__(self) -> Any:
            self._without = _only(())
            self._without.__enter__()
            return super().__enter__()

        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            self._without.__exit__(None, None, None)

    _patch_doors.add(
        checkpoint._CheckpointFrame,
        "__init__",
        _keep_patches_in_frame(checkpoint._CheckpointFrame.__init__),
    )
    _patch_doors.add(checkpoint, "_recomputation_hook", _RecomputationAsBefore)
