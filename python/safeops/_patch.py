"""``safeops.patch``: calls of PyTorch's own functions reach ours while a block runs."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch.compiler import is_dynamo_compiling
from torch.overrides import _get_current_function_mode_stack, _push_mode

from safeops import _patch_backward, _patch_doors, _policy
from safeops._library import OPERATORS
from safeops._patch_functional import CALLS, mirror_for_compiled_code
from safeops._patch_mode import Calls, Mode, Watcher, in_force, in_force_here
from safeops._unreachable import ENTRIES, Unreachable

_F = TypeVar("_F", bound=Callable[..., Any])


# Reentrant: a destructor that leaves a patch may run while it is held.
_leaving = threading.RLock()


def _renew_lock() -> None:
    global _leaving
    _leaving = threading.RLock()


# A thread that the child does not have may have held it.
os.register_at_fork(after_in_child=_renew_lock)


def _take_what_was_left_off_the_stack() -> None:
    """Pops modes of this thread; they may lie deeper, and some have been left elsewhere."""
    stack = _get_current_function_mode_stack()
    kept = [mode for mode in stack if not (type(mode) is Mode and mode.left)]
    if len(kept) < len(stack):
        _patch_backward.replace_stack(kept)


class watched:
    """A patch whose covered calls a watcher is told of; observes if no policy is given."""

    def __init__(
        self, operators: Iterable[str] | str | None, policy: str | None, watcher: Watcher
    ) -> None:
        self._set_up(operators, policy, policy is None, watcher, "safeops.audit")

    def _set_up(
        self,
        operators: Iterable[str] | str | None,
        policy: str | None,
        observe: bool,
        watcher: Watcher | None,
        place: str,
    ) -> None:
        names = _checked_operators(operators, place)
        if policy is not None:
            _policy.check_policy(policy, f"{place}: policy")
            if observe:
                raise ValueError(
                    f"{place}: policy must be None where observe=True, got {policy!r}; an observed "
                    f"call is PyTorch's own, so leave out one of the two"
                )
        self.operators = frozenset(names)
        self.policy = policy
        self.observe = bool(observe)
        self.watcher = watcher
        self._calls: Calls = {
            stock: entry
            for stock, entry in CALLS.items()
            if not self.operators.isdisjoint(entry[1].operators)
        }
        # Those not left yet, of every thread.
        self._entered: list[Mode] = []
        self.scope = _policy.policy(**dict.fromkeys(names, policy)) if policy else None

    def __enter__(self) -> watched:
        if is_dynamo_compiling():
            torch._dynamo.graph_break(msg=_NOT_IN_COMPILED_CODE)
        _outside_of_dynamo(self._put_in_force)()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _outside_of_dynamo(self._take_out_of_force)()

    def _put_in_force(self) -> None:
        if self.scope is not None:
            self.scope.__enter__()
        # A copied context brings those of the thread that it was copied in.
        mode = Mode(self, self._calls, in_force_here())
        in_force.set((*in_force.get(), mode))
        _take_what_was_left_off_the_stack()
        _push_mode(mode)
        self._entered.append(mode)
        _patch_doors.open_doors()
        mirror_for_compiled_code()

    def _take_out_of_force(self) -> None:
        with _leaving:
            mode = self._last_entered()
            if mode is None:
                raise RuntimeError(
                    f"safeops.patch: {self!r} was left more often than entered; leave it once "
                    f"per entry, in the thread and task that entered it"
                )
            mode.left = True
            self._entered.remove(mode)
        modes = in_force.get()
        in_force.set(tuple(other for other in modes if not other.left))
        _take_what_was_left_off_the_stack()
        _patch_doors.close_doors()
        mirror_for_compiled_code()
        # Elsewhere it is another scope that is in force.
        if self.scope is not None and mode in modes:
            self.scope.__exit__(None, None, None)

    def _last_entered(self) -> Mode | None:
        """The entry to leave: of this task, of this thread, of another."""
        for modes in (in_force_here(), _get_current_function_mode_stack(), self._entered):
            for mode in reversed(modes):
                if mode in self._entered:
                    return mode
        return None


_NOT_IN_COMPILED_CODE = (
    "safeops.patch cannot be entered in compiled code; enter it around the call of the compiled "
    "function"
)


def _outside_of_dynamo(step: Callable[[], None]) -> Callable[[], None]:
    """Lets nothing of the step be compiled, where a compiled function enters a patch."""
    dynamo = sys.modules.get("torch._dynamo")
    return step if dynamo is None else dynamo.disable(step, reason=_NOT_IN_COMPILED_CODE)


def _checked_operators(operators: Iterable[str] | str | None, place: str) -> tuple[str, ...]:
    if operators is None:
        return OPERATORS
    names = (operators,) if isinstance(operators, str) else tuple(operators)
    for name in names:
        if name not in OPERATORS:
            raise ValueError(
                f"{place}: operators must be among {', '.join(OPERATORS)}, got {name!r}; leave "
                f"them out to patch all"
            )
    return names


class patch(watched):
    """Lets PyTorch's own functions reach ours, inside a ``with`` block or a decorated function.

    Reached are ``F.normalize``; ``softmax``, ``log_softmax``, ``softmin`` and ``logsumexp`` of
    ``torch``, ``torch.special``, ``torch.nn.functional`` and ``torch.Tensor``; ``div``, ``divide``,
    ``true_divide`` and ``floor_divide``, ``reciprocal``, ``rsqrt``, ``sqrt`` and ``log`` as
    functions, methods and in place; the operators ``/``, ``//``, ``/=`` and ``//=``; ``pow`` and
    ``**`` with the numbers -1, -2, 0.5 and -0.5, which are the reciprocal, its square, ``sqrt`` and
    ``rsqrt``. So are the modules and functions that call them, whatever name they were imported
    under. :meth:`unreachable` lists what is not.

    A patched call is the direct call of safeops, argument for argument, so it has its values and
    its deviations from PyTorch: ``reciprocal``, ``rsqrt`` and ``sqrt`` save their argument, which
    must not be changed in place before the backward pass; ``logsumexp`` rounds to the dtype of its
    input even for an ``out=`` of a wider one. An eps of 1e-12 of ``F.normalize`` counts as not
    given.

    A patch is in force in the thread and asyncio task that entered it. Patches nest: the innermost
    that covers an operator decides. A backward pass runs as its forward pass did; checkpoints of
    ``torch.utils.checkpoint`` recompute under the patches and policies of theirs. Code under
    ``torch.compile`` is recompiled when a patch comes or goes, and sees the patches of its thread,
    whatever the task; enter them outside of the compiled function. A patch that is left in another
    thread or task ends there as well, but its policy stays that of direct calls where it was
    entered.

    Some things change for as long as the block runs:

    - Any torch function mode makes ``nn.TransformerEncoder``, its layers and
      ``nn.MultiheadAttention`` leave their fused path in eval mode, observed as well: results
      differ in rounding, and at padded positions, which the fused path returns as 0.
    - In all threads, four functions of ``torch.nn.functional`` are others, so that pickle, and
      ``torch.save`` of whole objects, refuse references to them: save state dicts, or outside the
      block.

    Args:
        operators: name or names of the operators to patch, as in counters: ``"softmax"`` covers
            ``softmin``, ``"div"`` all divisions, ``"reciprocal"`` the powers -1 and -2. None: all.
        policy: what a singular row becomes, for the operators patched, as by a
            ``safeops.policy`` around the block. None leaves what is in force; where nobody chose
            anything a hit warns, once per line.
        observe: call PyTorch's own function, so that no bit changes, forward or backward, and count
            what ours would have hit. For dense tensors in eager code. A shadow of each call runs
            beside it, whose inputs and result wait for the backward pass where it hit, up to 1 GiB
            in all. Hits of second-order backward passes may count once more than those of a direct
            call.

    Raises:
        ValueError: for an unknown operator or policy, or for a policy where ``observe`` is set.
        TypeError: when a generator function or a class is decorated.

    One object may be entered again, nested, and by several threads.

    Example:
        >>> with safeops.patch(policy="zero"):
        ...     loss = model(batch)
        >>> with safeops.patch(observe=True):
        ...     loss = model(batch)
        >>> safeops.diagnostics.snapshot().sites
    """

    def __init__(
        self,
        operators: Iterable[str] | str | None = None,
        policy: str | None = None,
        observe: bool = False,
    ) -> None:
        self._set_up(operators, policy, observe, None, "safeops.patch")

    @staticmethod
    def unreachable() -> tuple[Unreachable, ...]:
        """What a patch cannot reach, and what to do there.

        Returns:
            Entries with the fields ``function``, ``why`` and ``instead``.

        Example:
            >>> print(*safeops.patch.unreachable(), sep="\\n")
        """
        return ENTRIES

    def __call__(self, function: _F) -> _F:
        _policy.refuse_to_decorate(function, "safeops.patch")

        @functools.wraps(function)
        def in_patch(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def in_patch_async(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await function(*args, **kwargs)

        if inspect.iscoroutinefunction(function):
            return in_patch_async  # type: ignore[return-value]
        return in_patch  # type: ignore[return-value]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(sorted(self.operators)), self.policy, self.observe)

    def __repr__(self) -> str:
        operators = None if len(self.operators) == len(OPERATORS) else sorted(self.operators)
        return f"safeops.patch({operators!r}, policy={self.policy!r}, observe={self.observe})"
