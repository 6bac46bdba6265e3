"""Which policy a call runs under: call argument, scope, default, environment.

Eager code keeps the scope in a context variable, so that threads and tasks do not see each other;
compiled code reads its mirror in `_compiled_scope`.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from torch.compiler import is_dynamo_compiling

from safeops import _compiled_scope
from safeops._library import OPERATORS

POLICIES = ("stock", "nan", "epsilon", "zero", "raise")

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Scope:
    policies: Mapping[str, str]  # of every operator; "" where neither this nor an outer scope says
    eps: float | None
    outer: _Scope | None


_nobody_chose: dict[str, str] = dict.fromkeys(OPERATORS, "")
_outermost = _Scope(_nobody_chose, None, None)
_scope: ContextVar[_Scope] = ContextVar("safeops_scope", default=_outermost)


def resolve(operator: str) -> tuple[str, float | None]:
    """Policy and eps of an eager call that names none; "" means that nobody chose a policy."""
    scope = _scope.get()
    return scope.policies[operator] or _defaults[operator], scope.eps


def current_scope() -> _Scope:
    """The scope of this thread and task, as `in_scope` takes it."""
    return _scope.get()


@contextmanager
def in_scope(scope: _Scope) -> Iterator[None]:
    """Puts a scope in force again that may have been left."""
    outer = _scope.get()
    _scope.set(scope)
    _mirror_for_compiled_code()
    try:
        yield
    finally:
        _scope.set(outer)
        _mirror_for_compiled_code()


def check_policy(policy: object, place: str) -> None:
    """Refuses what is not the name of a policy."""
    if policy not in POLICIES:
        choices = ", ".join(f"'{name}'" for name in POLICIES)
        raise ValueError(f"{place} must be one of {choices}, got {policy!r}")


def _stated(default: str | None, per_operator: Mapping[str, str], place: str) -> dict[str, str]:
    stated: dict[str, str] = {}
    if default is not None:
        check_policy(default, f"{place}: the default policy")
        stated = dict.fromkeys(OPERATORS, default)
    for operator, policy in per_operator.items():
        if operator not in OPERATORS:
            raise ValueError(
                f"{place}: expected the name of an operator ({', '.join(OPERATORS)}), "
                f"got {operator!r}; a policy for all operators is given without a name"
            )
        check_policy(policy, f"{place}: the policy of {operator}")
        stated[operator] = policy
    return stated


def _checked_eps(eps: float | None) -> float | None:
    if eps is None:
        return None
    if isinstance(eps, (str, bool)) or not (math.isfinite(eps) and eps >= 0):
        raise ValueError(
            f"safeops.policy: eps must be a finite number that is not negative, got {eps!r}; "
            f"leave it out to use the eps of each policy"
        )
    return float(eps)


def _from_environment() -> dict[str, str]:
    """Parses SAFEOPS_POLICY: a default and `operator=policy` entries, separated by commas."""
    text = os.environ.get("SAFEOPS_POLICY", "")
    place = f"SAFEOPS_POLICY={text!r}"
    default: str | None = None
    per_operator: dict[str, str] = {}
    for entry in text.split(",") if text.strip() else ():
        operator, equals, policy = (part.strip() for part in entry.partition("="))
        if not equals:
            check_policy(operator, f"{place}: the default policy")
        if operator in per_operator or (not equals and default is not None):
            raise ValueError(
                f"{place}: expected one default policy and one entry per operator, as in "
                f"'zero,normalize=nan', got {entry.strip()!r} as a second one"
            )
        if equals:
            per_operator[operator] = policy
        else:
            default = operator
    return _stated(default, per_operator, place)


_environment = _nobody_chose | _from_environment()
_defaults = _environment


def _mirror_for_compiled_code() -> None:
    for operator in OPERATORS:
        policy, _compiled_scope.eps = resolve(operator)
        setattr(_compiled_scope, operator, policy)


def set_default_policy(default: str | None = None, **per_operator: str) -> None:
    """Sets the policy of calls that name none and run in no scope, for the whole process.

    Args:
        default: policy of all operators, ``"stock"``, ``"nan"``, ``"epsilon"``, ``"zero"`` or
            ``"raise"``.
        **per_operator: policy of single operators, ``softmax="nan"``. What is not named here
            keeps the default it had.

    Without arguments the defaults go back to what ``SAFEOPS_POLICY`` says.

    Raises:
        ValueError: for an unknown policy or operator; nothing is changed.

    Example:
        >>> safeops.set_default_policy("zero")
    """
    global _defaults
    stated = _stated(default, per_operator, "safeops.set_default_policy")
    _defaults = _defaults | stated if stated else _environment
    _mirror_for_compiled_code()


def refuse_to_decorate(function: Callable[..., Any], scope: str) -> None:
    """Refuses what runs after its call has returned."""
    runs_later = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if runs_later or inspect.isclass(function):
        raise TypeError(
            f"{scope}: expected a function or a coroutine function to decorate, got {function!r}, "
            f"whose calls would run outside the scope; use a with block around the calls of the "
            f"operators"
        )


class policy:
    """Chooses the policy of the calls inside a ``with`` block or a decorated function.

    A default given here overrides every entry of the scopes around it; single operators
    alone leave the rest as it was. A call's own ``policy=`` and ``eps=`` come first. Eager code
    keeps the scope per thread and per asyncio task. Code under ``torch.compile`` is recompiled when
    the policy changes, and sees one scope for the whole process: different scopes at the same time
    in several threads are not supported there. Backward passes run under the policy of their
    forward call, whatever the scope is by then.

    Args:
        default: policy of all operators: ``"stock"`` (what PyTorch does), ``"nan"``, ``"epsilon"``,
            ``"zero"`` or ``"raise"``.
        eps: threshold of the calls that give none; ``None`` inherits that of the scope around.
        **per_operator: policy of single operators, ``normalize="nan"``.

    Raises:
        ValueError: for an unknown policy, an unknown operator, a negative or non-finite eps.
        TypeError: when a generator function or a class is decorated.

    One object may be entered again, nested, and by several threads.

    Example:
        >>> with safeops.policy("zero", eps=1e-6):
        ...     y = safeops.normalize(x, dim=-1)
        >>> @safeops.policy(normalize="raise")
        ... def train_step(batch): ...
    """

    def __init__(
        self, default: str | None = None, *, eps: float | None = None, **per_operator: str
    ) -> None:
        self._stated = _stated(default, per_operator, "safeops.policy")
        self._eps = _checked_eps(eps)
        self._outer_compiled: list[dict[str, Any]] = []

    def __enter__(self) -> policy:
        if is_dynamo_compiling():
            self._enter_compiled()
            return self
        outer = _scope.get()
        eps = outer.eps if self._eps is None else self._eps
        _scope.set(_Scope({**outer.policies, **self._stated}, eps, outer))
        _mirror_for_compiled_code()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if is_dynamo_compiling():
            self._exit_compiled()
            return
        # No token: the scope itself knows the outer one, so an instance has no state that
        # threads, tasks or nested entries could mix up.
        _scope.set(_scope.get().outer or _outermost)
        _mirror_for_compiled_code()

    def _enter_compiled(self) -> None:
        # Only what changes is read: compiled code depends on nothing else.
        inner: dict[str, Any] = dict(self._stated)
        if self._eps is not None:
            inner["eps"] = self._eps
        self._outer_compiled.append({name: getattr(_compiled_scope, name) for name in inner})
        for name, value in inner.items():
            setattr(_compiled_scope, name, value)

    def _exit_compiled(self) -> None:
        for name, value in self._outer_compiled.pop().items():
            setattr(_compiled_scope, name, value)

    def __call__(self, function: _F) -> _F:
        refuse_to_decorate(function, "safeops.policy")
        stated, eps = self._stated, self._eps

        # A scope made inside the function: torch 2.11 compiles no other.
        @functools.wraps(function)
        def in_scope(*args: Any, **kwargs: Any) -> Any:
            with policy(eps=eps, **stated):
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def in_scope_async(*args: Any, **kwargs: Any) -> Any:
            with policy(eps=eps, **stated):
                return await function(*args, **kwargs)

        if inspect.iscoroutinefunction(function):
            return in_scope_async  # type: ignore[return-value]
        return in_scope  # type: ignore[return-value]

    def __repr__(self) -> str:
        entries = [f"{operator}={name!r}" for operator, name in self._stated.items()]
        return f"safeops.policy({', '.join([*entries, f'eps={self._eps}'])})"


_mirror_for_compiled_code()
