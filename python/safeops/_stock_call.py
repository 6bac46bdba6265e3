"""How a call of PyTorch is read: by torch's own signature, into the call of ours that it makes."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

from safeops import _cuda_library

# What torch's argument parser takes for a name of its own, as NumPy's.
_ALIASES = {
    "axis": "dim",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
}

_DEFAULT_FUNCTION = (
    Tensor.__torch_function__.__func__,  # type: ignore[attr-defined]
    torch._C._disabled_torch_function_impl,
)

# torch 2.15 has named tensors no more.
_has_names = getattr(Tensor, "has_names", None)


class Call(NamedTuple):
    """A call of ours.

    Attributes:
        operator: the name under which it counts.
        function: the function of ours.
        functional: the same, out of place.
        arguments: by position; tensors are among the first two.
        keywords: by name, without eps, policy and out.
        eps: of normalize, where the stock call gave one.
        out: the tensor that receives the result.
        first: what the stock call does before it computes.
        then: what becomes of the result of ours.
    """

    operator: str
    function: Callable[..., Tensor]
    functional: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = {}
    eps: float | None = None
    out: Tensor | None = None
    first: Callable[[], object] | None = None
    then: Callable[[Tensor], Tensor] | None = None

    def run(self) -> Tensor:
        """Computes what the stock call stands for."""
        if self.first is not None:
            self.first()
        keywords = self.keywords
        if self.eps is not None:
            keywords = {**keywords, "eps": self.eps}
        if self.out is not None and self.then is None:
            keywords = {**keywords, "out": self.out}
        result = self.function(*self.arguments, **keywords)
        return result if self.then is None else self.then(result)

    def tensors(self) -> list[Tensor]:
        return [value for value in self.arguments[:2] if isinstance(value, Tensor)]

    def rows(self) -> int:
        """How many rows, or elements, the call sees; 0 if its arguments do not fit together."""
        if self.functional.__name__ in _ROWS:
            return _rows(self.arguments[0].shape, self.arguments[_ROWS[self.functional.__name__]])
        try:
            return math.prod(torch.broadcast_shapes(*(t.shape for t in self.tensors())))
        except RuntimeError:
            return 0


# Which argument holds the dims of a row.
_ROWS = {"normalize": 2, "softmax": 1, "log_softmax": 1, "softmin": 1, "logsumexp": 1}


def _rows(shape: torch.Size, dim: Any) -> int:
    rank = len(shape)
    dims = (dim,) if isinstance(dim, int) else tuple(dim or ())
    reduced = {d % rank for d in dims} if rank and dims else set(range(rank))
    return math.prod(size for d, size in enumerate(shape) if d not in reduced)


class StockCall(NamedTuple):
    """A function, method or operator of torch that ours stands for.

    Attributes:
        operators: the names under which its calls may count.
        ours: takes the arguments of the stock call; returns the call of ours, None where there is
            none. A TypeError says that they do not fit the signature.
        parsed: the stock call goes through torch's argument parser, which knows NumPy's names.
    """

    operators: tuple[str, ...]
    ours: Callable[..., Call | None]
    parsed: bool = True

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call of ours for these arguments of the stock call, None where ours has no answer."""
        if kwargs and self.parsed:
            named = {_ALIASES.get(name, name): value for name, value in kwargs.items()}
            if len(named) != len(kwargs):
                return None
            kwargs = named
        try:
            call = self.ours(*args, **kwargs)
        except TypeError:
            return None
        return call if call is not None and _reaches(call) else None


def _reaches(call: Call) -> bool:
    for value in call.arguments[:2]:
        if isinstance(value, Tensor) and not _reaches_tensor(value):
            return False
    if call.out is not None and not _reaches_tensor(call.out):
        return False
    return not (any(tensor.is_cuda for tensor in call.tensors()) and _lacks_cuda_kernel(call))


def _reaches_tensor(tensor: Tensor) -> bool:
    if not is_dynamo_compiling():
        kind = type(tensor)
        # First: a subclass may refuse to be asked for anything.
        if kind is not Tensor and kind is not Parameter and not _answers_as_torch(kind):
            return False
        if _has_names is not None and _has_names(tensor):
            return False
    if not _has_kernels(tensor) or tensor.layout is not torch.strided:
        return False
    return not (tensor.is_nested or tensor.is_quantized)


def _has_kernels(tensor: Tensor) -> bool:
    return tensor.is_cpu or tensor.is_meta or (tensor.is_cuda and _cuda_library.loaded)


_CUDA_ORDERS = (1, 2, math.inf)
_MOST_CUDA_DIMS = 16  # of elements that are not dense


def _lacks_cuda_kernel(call: Call) -> bool:
    """Whether a call that has a kernel on the CPU has none on CUDA."""
    tensors = call.tensors()
    if call.operator == "normalize":
        p = call.arguments[1]
        return p != 2 if tensors[0].is_complex() else p not in _CUDA_ORDERS
    if call.operator in _ROWS:
        return False
    if any(tensor.dim() > _MOST_CUDA_DIMS for tensor in tensors):
        return True
    if any(tensor.is_complex() for tensor in tensors) or any(
        isinstance(value, complex) for value in call.arguments[:2]
    ):
        return True
    integral = not any(tensor.is_floating_point() for tensor in tensors) and not any(
        isinstance(value, (float, torch.SymFloat)) for value in call.arguments[:2]
    )
    return integral and call.keywords.get("rounding_mode") is not None


def _answers_as_torch(kind: type[Tensor]) -> bool:
    """Whether a subclass leaves functions and operators to torch."""
    function = getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    if function not in _DEFAULT_FUNCTION:
        return False
    # What stands for plain tensors while torch traces.
    traced = issubclass(kind, (FakeTensor, FunctionalTensor))
    return traced or kind.__torch_dispatch__ is Tensor.__torch_dispatch__


def is_number(value: object) -> bool:
    if isinstance(value, (int, float, complex, torch.SymInt, torch.SymFloat)):
        return True
    # A NumPy scalar; of complex ones torch takes the real part, or refuses them.
    return isinstance(value, numbers.Real) and getattr(value, "shape", None) == ()


def index(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError  # torch takes no bool for a dim
    return value if isinstance(value, (int, torch.SymInt)) else operator.index(value)


def dims(value: Any) -> Any:
    return tuple(index(dim) for dim in value) if isinstance(value, (tuple, list)) else index(value)


def are_tensors(input: object, out: object = None) -> bool:
    return isinstance(input, Tensor) and (out is None or isinstance(out, Tensor))
