"""Calls that are observed: the stock function answers, ours looks at what it was given.

The *shadow* of a call is our operator under ``stock`` on detached copies of the inputs. It runs
before the stock function, which may change its argument, and its result is dropped. If it hit and
the stock result is to be differentiated, a hook on the node of the stock result keeps the shadow
and hands it the incoming gradient. The graph of the program gets no node more.
"""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.nn import Buffer, Parameter

from safeops import _call_lines, _deferred
from safeops._call_lines import CallLine
from safeops._library import hit_epoch
from safeops._normalize import STOCK_EPS
from safeops._stock_call import Call

# How much of the program's memory shadows may hold on to.
_KEPT_BYTES = 2**30

# A cast, a squeeze, the copy of a form in place, the slice of its base.
_NODES_ON_TOP = 6

_PLAIN = (Tensor, Parameter, Buffer)


class Shadow(NamedTuple):
    """What looking at a call found.

    Attributes:
        line: the line of the call if it hit, else None.
        result: the shadow of the stock result if it hit and is to be differentiated, else None.
        inputs: the copies that require grad.
    """

    line: CallLine | None
    result: Tensor | None = None
    inputs: tuple[Tensor, ...] = ()


def observable(call: Call) -> bool:
    """Whether a shadow may be run: on plain tensors, outside everything that traces."""
    if torch._C._len_torch_dispatch_stack() or torch.compiler.is_compiling():
        return False
    return all(type(tensor) in _PLAIN for tensor in call.tensors())


def look_at(call: Call) -> Shadow | None:
    """Runs the shadow of a call; None where ours refuses what stock may take."""
    # Transforms of torch.func know neither hooks of saved tensors nor nodes outside their own.
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    try:
        with torch._C.DisableTorchFunction():
            return _run(call, torch.is_grad_enabled() and not transformed)
    except Exception as error:
        if _deferred.is_of_earlier_call(error):
            raise
        return None


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def _run(call: Call, differentiate: bool) -> Shadow:
    copies: list[Any] = []
    inputs: list[Tensor] = []
    for value in call.arguments[:2]:
        if isinstance(value, Tensor):
            wanted = differentiate and value.requires_grad
            value = value.detach()
            if wanted:
                # Stock may let its argument be changed in place before the backward pass.
                value = value.clone().requires_grad_()
                inputs.append(value)
        copies.append(value)
    keywords = {**call.keywords, "policy": "stock"}
    # Spelled out, or that of a scope would count.
    if call.operator == "normalize":
        keywords["eps"] = STOCK_EPS if call.eps is None else call.eps
    elif call.operator != "logsumexp":
        keywords["eps"] = 0.0
    arguments = (*copies, *call.arguments[2:])
    if not inputs:
        with torch.no_grad():
            epoch = hit_epoch.value
            call.functional(*arguments, **keywords)
            return Shadow(_call_lines.line_since(epoch))
    # What the shadow saves is none of the program's: a checkpoint would count it.
    with torch.autograd.graph.saved_tensors_hooks(_itself, _itself):
        epoch = hit_epoch.value
        result = call.functional(*arguments, **keywords)
        line = _call_lines.line_since(epoch)
        if line is None or not result.requires_grad:
            return Shadow(line)
        if call.then is not None:
            result = torch.square(result)
    return Shadow(line, result, tuple(inputs))


def node_of_ours(result: object) -> Node | None:
    """The node of our operator, where a few nodes at most lie on top of it."""
    if not isinstance(result, Tensor) or result.grad_fn is None:
        return None
    nodes: list[Node] = [result.grad_fn]
    for _ in range(_NODES_ON_TOP):
        for node in nodes:
            if node.name().startswith("Safeops"):
                return node
        nodes = [node for on_top in nodes for node, _ in on_top.next_functions if node is not None]
    return None


def follow(shadow: Shadow, result: object) -> None:
    """Lets the backward pass of the stock result reach the shadow's."""
    if shadow.result is None or not isinstance(result, Tensor) or result.grad_fn is None:
        return
    node, part = result.grad_fn, _itself
    if result._is_view() and result._base is not None and result._base.grad_fn is not None:
        # A view that was changed in place: its gradient is a part of what its base gets.
        node, part = result._base.grad_fn, partial(_part_of_base, _geometry(result))
    kept = _Kept(shadow)

    def hand_over(gradients: tuple[Tensor | None, ...]) -> None:
        # Compiled autograd traces hooks.
        if gradients[0] is None or torch.compiler.is_compiling():
            return
        # Nothing of it may fail the program's backward pass.
        try:
            with torch._C.DisableTorchFunction():
                kept.run_backward(part(gradients[0].detach()))
        except Exception as error:
            if _deferred.is_of_earlier_call(error):
                raise

    # Of the node, not of the tensor: it runs when the operator's backward does, and last.
    node.register_prehook(hand_over)


class _Kept:
    """A shadow that waits for its backward pass; the oldest are let go past a number of bytes."""

    _waiting: ClassVar[dict[int, weakref.ref[_Kept]]] = {}
    _bytes: ClassVar[int] = 0
    # Reentrant: a destructor may run while the lock is held.
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, shadow: Shadow) -> None:
        self._shadow: Shadow | None = shadow
        kept = [*shadow.inputs] if shadow.result is None else [*shadow.inputs, shadow.result]
        self._size = sum(tensor.numel() * tensor.element_size() for tensor in kept)
        with _Kept._lock:
            _Kept._waiting[id(self)] = weakref.ref(self)
            _Kept._bytes += self._size
            while _Kept._bytes > _KEPT_BYTES:
                oldest = _Kept._waiting[next(iter(_Kept._waiting))]()
                if oldest is None or oldest is self:
                    break
                oldest._let_go()

    def _let_go(self) -> None:
        with _Kept._lock:
            if self._shadow is not None:
                self._shadow = None
                _Kept._waiting.pop(id(self), None)
                _Kept._bytes -= self._size

    __del__ = _let_go

    def run_backward(self, gradient: Tensor) -> None:
        shadow = self._shadow
        if shadow is None or shadow.result is None:
            return
        gradient = gradient.to(shadow.result.dtype)
        if torch.is_anomaly_enabled():
            _run_without_engine(shadow.result, gradient)
            return
        torch.autograd.grad(
            shadow.result, shadow.inputs, gradient, retain_graph=True, allow_unused=True
        )


def _renew_lock() -> None:
    _Kept._lock = threading.RLock()


# A thread that the child does not have may have held it.
os.register_at_fork(after_in_child=_renew_lock)


def _run_without_engine(result: Tensor, gradient: Tensor) -> None:
    """Runs the nodes down to that of ours; the engine would warn of the NaN that it returns."""
    node, output = result.grad_fn, result.output_nr
    found: Any = gradient
    with torch.no_grad():
        for _ in range(_NODES_ON_TOP):
            if node is None:
                break
            gradients = [None] * len(node._input_metadata)  # type: ignore[attr-defined]
            gradients[output] = found
            ours = node.name().startswith("Safeops")
            found = node(*gradients)  # type: ignore[operator]
            if ours:
                break
            found = found[0] if isinstance(found, tuple) else found
            node, output = node.next_functions[0]


class _Geometry(NamedTuple):
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    base_size: torch.Size
    base_stride: tuple[int, ...]


def _geometry(view: Tensor) -> _Geometry:
    base = view._base
    assert base is not None
    offset = view.storage_offset() - base.storage_offset()
    return _Geometry(view.size(), view.stride(), offset, base.size(), base.stride())


def _part_of_base(geometry: _Geometry, gradient: Tensor) -> Tensor:
    whole = torch.empty_strided(
        geometry.base_size, geometry.base_stride, dtype=gradient.dtype, device=gradient.device
    ).copy_(gradient)
    return whole.as_strided(geometry.size, geometry.stride, geometry.offset)
