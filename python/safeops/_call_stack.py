"""Where a call came from: the line of the program, the module that made it, the stack."""

from __future__ import annotations

import contextlib
import os
import sys
from itertools import pairwise
from types import FrameType
from weakref import WeakKeyDictionary

import torch
from torch.nn import Module

from safeops._events import Frame

_OURS = os.path.dirname(__file__) + os.sep
_NOT_THE_CALLER = (_OURS, os.path.dirname(torch.__file__) + os.sep, contextlib.__file__)
# Not Module.__call__'s own file: a tracer may have put another function there.
_MODULE_FILE = os.path.join(os.path.dirname(torch.__file__), "nn", "modules", "module.py")
_MODULE_CALLS = {"_wrapped_call_impl", "_call_impl"}
_CHECKPOINT_FILE = os.path.join(os.path.dirname(torch.__file__), "utils", "checkpoint.py")

# A checkpoint runs a module again from the backward pass, where its parents are not being called.
_path_of_checkpointed: WeakKeyDictionary[Module, str] = WeakKeyDictionary()


def caller() -> FrameType:
    """The frame that called the operator: not ours, not torch's, not a torch function mode's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_NOT_THE_CALLER)
        or frame.f_code.co_name == "__torch_function__"
    ):
        frame = frame.f_back
    return frame


def stack(frame: FrameType | None) -> tuple[Frame, ...]:
    """The frames that led to `frame`, outermost first, without those of safeops."""
    frames = []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            frames.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(frames))


def module_path() -> str | None:
    """Class of the outermost ``nn.Module`` that is being called, then attribute names from there to
    the innermost; None outside modules."""
    modules, checkpointed = _modules_being_called()
    if not modules:
        return None
    try:
        return _path(modules, checkpointed)
    except Exception:  # a named_modules() of the program's own must not fail the operator
        return ".".join(type(module).__name__ for module in modules)


def _modules_being_called() -> tuple[list[Module], list[Module]]:
    """The modules on the stack, outermost first, and those that a checkpoint runs."""
    modules: list[Module] = []
    checkpointed: list[Module] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in _MODULE_CALLS and code.co_filename == _MODULE_FILE:
            module = frame.f_locals.get("self")
            if isinstance(module, Module) and not (modules and modules[-1] is module):
                modules.append(module)
        elif modules and code.co_filename == _CHECKPOINT_FILE:
            checkpointed.append(modules[-1])
        frame = frame.f_back
    return modules[::-1], checkpointed


def _path(modules: list[Module], checkpointed: list[Module]) -> str:
    root = modules[0]
    path = start = type(root).__name__
    if root in checkpointed:
        path = start = _path_of_checkpointed.get(root, start)
    for parent, module in pairwise(modules):
        if name := _name_in(parent, module):
            path = f"{path}.{name}"
        elif (name := _name_in(root, module)) is not None:
            path = f"{start}.{name}" if name else start
        else:
            path = f"{path}.{type(module).__name__}"
        if module in checkpointed:
            _path_of_checkpointed[module] = path
    return path


def _name_in(parent: Module, module: Module) -> str | None:
    for name, child in list(parent._modules.items()):
        if child is module:
            return name
    # Not a child: an element of a ModuleList, which is not itself called, or further down.
    for name, descendant in parent.named_modules():
        if descendant is module:
            return name
    return None
