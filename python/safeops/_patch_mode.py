"""The torch function mode of a patch, and which patches are in force.

The innermost patch in force that covers the operator of a call decides about it. What it runs then
reaches outer patches as a call that has been decided; each watcher is told of it once.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch._C import _get_tracing_state, _len_torch_function_stack
from torch._guards import TracingContext
from torch.autograd.graph import Node
from torch.compiler import is_dynamo_compiling
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

from safeops import _call_lines, _compiled_patches, _compiled_scope, _observe
from safeops._call_lines import CallLine
from safeops._library import hit_epoch
from safeops._stock_call import Call, StockCall
from safeops._stock_calls import DIRECT, FUNCTIONAL, TABLE
from safeops._stock_rows import frames_of_patches

if TYPE_CHECKING:
    from safeops._patch import watched

Stock = Callable[..., Any]
Calls = dict[Stock, tuple[Stock, StockCall]]


class Watcher(Protocol):
    """Is told of every covered call after it ran, patched, observed or direct; not while tracing.

    `rows` is how many rows the call saw, `line` its line if it hit, and `node` the node of ours if
    it hit and is to be differentiated. It is called in the frames of the call.
    """

    def saw(self, operator: str, rows: int, line: CallLine | None, node: Node | None) -> None: ...


class _Answering(threading.local):
    """The function that this thread runs because a patch has decided so."""

    function: Stock | None = None


_answering = _Answering()

# Innermost last. A context variable, as scopes are, so that tasks do not see each other's.
in_force: ContextVar[tuple[Mode, ...]] = ContextVar("safeops_patches", default=())


def in_force_here() -> tuple[Mode, ...]:
    """The patches that this task of this thread has entered and not left."""
    modes = in_force.get()
    if not modes:
        return modes
    here = threading.get_ident()
    return tuple(mode for mode in modes if mode.thread == here and not mode.left)


def covering(stock: Stock) -> Mode | None:
    """The innermost patch in force that covers a stock function."""
    for mode in reversed(in_force_here()):
        if stock in mode.calls:
            return mode
    return None


class Mode(TorchFunctionMode):
    """What one entry into a patch puts in force."""

    def __init__(self, entered: watched, calls: Calls, outer: tuple[Mode, ...]) -> None:
        super().__init__()
        self.entered = entered
        self.calls = calls
        self.operators = entered.operators
        self.observe = entered.observe
        self.thread = threading.get_ident()
        self.left = False
        self.inside_of_a_patch = not all(mode.observe for mode in outer)
        watchers = [watcher for mode in outer for watcher in mode.watchers]
        if entered.watcher is not None:
            watchers.append(entered.watcher)
        # Each once, however often its patch was entered.
        self.watchers: tuple[Watcher, ...] = tuple({id(w): w for w in watchers}.values())

    def __torch_function__(
        self, func: Stock, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = {} if kwargs is None else kwargs
        if is_dynamo_compiling():
            entry = None if self.left else _compiled_entry(func, self.calls)
            if entry is None:
                return func(*args, **kwargs)
            if self.observe and self.inside_of_a_patch:
                with torch._C.DisableTorchFunction():
                    return func(*args, **kwargs)
            return answer_compiled(*entry, self.operators, self.observe, args, kwargs)
        entry = self.calls.get(func)
        if entry is None:
            if self.watchers and func in DIRECT and self._decides(func):
                return self._see_direct_call(func, args, kwargs)
            return func(*args, **kwargs)
        # The body of F.softmax hands itself over by what the module holds under its name.
        stock, reading = entry
        if not self._decides(stock) or _compiles_a_backward_pass():
            return call_stock(stock, args, kwargs)
        if self.thread == threading.get_ident() or self.entered.scope is None:
            return self.answer(stock, reading, args, kwargs)
        with self.entered.scope:
            return self.answer(stock, reading, args, kwargs)

    def _decides(self, func: Stock) -> bool:
        if _answering.function is func or self.left:
            return False
        # On the stack it may be for the sake of another task; in a thread of the autograd engine,
        # which gets the stack but no context, it is for the sake of the backward pass.
        return self in in_force.get() or self.thread != threading.get_ident()

    def answer(
        self, stock: Stock, reading: StockCall, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answers a call of a stock function in eager code."""
        call = None if _get_tracing_state() is not None else _read(reading, args, kwargs)
        if call is None or call.operator not in self.operators:
            return call_stock(stock, args, kwargs)
        if self.observe:
            return self._observe(stock, call, args, kwargs)
        if not self.watchers:
            return call.run()
        return self._watch(call, call.function, call.run)

    def _observe(
        self, stock: Stock, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        shadow = _observe.look_at(call) if _observe.observable(call) else None
        rows = call.rows() if self.watchers and shadow is not None else 0
        decided, _answering.function = _answering.function, stock
        try:
            result = call_stock(stock, args, kwargs)
        finally:
            _answering.function = decided
        if shadow is not None:
            with torch._C.DisableTorchFunction():
                _observe.follow(shadow, result)
                node = _observe.node_of_ours(shadow.result)
            self._tell(call, rows, shadow.line, node)
        return result

    def _see_direct_call(self, func: Stock, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
            return func(*args, **kwargs)
        operator, functional = DIRECT[func]
        call = Call(operator, func, functional, args)
        return self._watch(call, func, lambda: func(*args, **kwargs))

    def _watch(self, call: Call, func: Stock, run: Callable[[], Any]) -> Any:
        rows, epoch = call.rows(), hit_epoch.value
        decided, _answering.function = _answering.function, func
        try:
            result = run()
        except Exception:
            line = _call_lines.line_since(epoch)
            if line is not None:
                self._tell(call, rows, line, None)
            raise
        finally:
            _answering.function = decided
        line = _call_lines.line_since(epoch)
        self._tell(call, rows, line, None if line is None else _observe.node_of_ours(result))
        return result

    def _tell(self, call: Call, rows: int, line: CallLine | None, node: Node | None) -> None:
        for watcher in self.watchers:
            watcher.saw(call.operator, rows, line, node)


def _compiles_a_backward_pass() -> bool:
    return TracingContext.try_get() is not None and not torch.compiler.is_exporting()


def _read(reading: StockCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    if not _len_torch_function_stack():
        return reading.call(args, kwargs)
    # Other modes need not see that shapes are asked for.
    with torch._C.DisableTorchFunction():
        return reading.call(args, kwargs)


_signatures = {stock: inspect.signature(stock) for stock in FUNCTIONAL.values()}


def call_stock(stock: Stock, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a stock function; other modes, and subclasses, receive it as itself."""
    if is_dynamo_compiling() or stock not in _signatures:
        return stock(*args, **kwargs)
    try:
        bound = _signatures[stock].bind(*args, **kwargs)
    except TypeError:
        return stock(*args, **kwargs)
    bound.apply_defaults()
    named = bound.arguments
    input = named.pop("input")
    tensors = (input, named.get("out"))
    if has_torch_function(tensors):
        return handle_torch_function(stock, tensors, input, **named)
    if named["dim"] is None and "_stacklevel" in named:
        # It warns of the line that called it, past our frames.
        named["_stacklevel"] += frames_of_patches(stock)
    return stock(input, **named)


# -- compiled code --------------------------------------------------------------------------------

# Dynamo does not find these in a dict, though it knows them.
_WRAPPED = tuple(stock for stock in TABLE if hasattr(stock, "__wrapped__"))


def _compiled_entry(func: Stock, calls: Calls) -> tuple[Stock, StockCall] | None:
    if func is F.multi_head_attention_forward:
        _depend_on_softmax()
    for stock in _WRAPPED:
        if func is stock:
            return calls.get(stock)
    return calls.get(func)


def _depend_on_softmax() -> bool:
    """Has Dynamo guard what decides about a softmax inside a function that it does not trace.

    Such a function stays whole in the graph, and its body is traced later, without guards.
    """
    return (
        _compiled_patches.softmax
        and _compiled_scope.softmax == "zero"
        and _compiled_scope.eps is None
    )


def answer_compiled(
    stock: Stock,
    reading: StockCall,
    operators: frozenset[str],
    observe: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Answers a call of a stock function that Dynamo traces."""
    call = None if observe else reading.call(args, kwargs)
    if call is None or call.operator not in operators:
        return stock(*args, **kwargs)
    return call.run()
