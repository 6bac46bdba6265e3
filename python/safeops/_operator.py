"""What the functions of all operators share: policy, accounting, compiled code, overrides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function

from safeops import _call_lines, _compiled_scope, _cuda_library, _deferred, _policy
from safeops._library import hit_epoch


class Operator:
    """An operator of the library, called as its Python function calls it.

    Args:
        name: its name in ``torch.ops.safeops``, in scopes and in counters.
        stock_gradient: says what PyTorch's gradient at a singular row is, from the eps of the call.
        takes_eps: its arguments end with eps and policy; otherwise with policy alone.
        unit: what is counted, ``"row"`` or ``"element"``.
        overload: which overload of the operator; that of ``out=`` is named after it.
        in_place: the form that changes its first argument and returns it.
    """

    def __init__(
        self,
        name: str,
        stock_gradient: Callable[[float | None], str],
        *,
        takes_eps: bool = True,
        unit: str = "row",
        overload: str = "",
        in_place: bool = False,
    ) -> None:
        self.name = name
        self._stock_gradient = stock_gradient
        self._takes_eps = takes_eps
        self._unit = unit
        overloads = getattr(torch.ops.safeops, f"{name}_" if in_place else name)
        self._functional = getattr(overloads, overload or "default")
        if in_place:
            self._changing, self._functional = self._functional, self._change
        else:
            self._into_out = getattr(overloads, f"{overload}_out" if overload else "out")

    def run(
        self,
        leading: tuple[Any, ...],
        eps: float | None,
        policy: str | None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Calls the operator with `leading`, then with what is in force of eps and policy."""
        if policy == "":
            _policy.check_policy(policy, f"safeops.{self.name}: policy")
        compiling = is_dynamo_compiling()
        if compiling:
            policy = getattr(_compiled_scope, self.name) if policy is None else policy
            eps = _compiled_scope.eps if eps is None else eps
        elif policy is None or eps is None:
            scope_policy, scope_eps = _policy.resolve(self.name)
            policy = scope_policy if policy is None else policy
            eps = scope_eps if eps is None else eps

        # By position: torch takes half a microsecond longer to sort arguments given by name.
        arguments = (*leading, eps, policy) if self._takes_eps else (*leading, policy)
        if compiling:
            return self._functional(*arguments) if out is None else self._fill(out, arguments)
        epoch = hit_epoch.value
        if epoch != _call_lines.joined_epoch:
            _call_lines.join_backward_hits()
        launch = None
        if policy == "raise" and _cuda_library.loaded:
            launch = _deferred.last_launch(leading)
        try:
            result = self._functional(*arguments) if out is None else self._fill(out, arguments)
        except Exception as error:
            singularity = _deferred.error_of_earlier_call(error)
            if singularity is None:
                singularity = _call_lines.note_failed_call(epoch, error, policy)
            if singularity is None:
                raise
            raise singularity from None
        if hit_epoch.value != epoch:
            _call_lines.note_hit(epoch, policy, self._unit, self._stock_gradient(eps))
        if launch is not None:
            _deferred.note_launch(launch)
        return result

    def _fill(self, out: Tensor, arguments: tuple[Any, ...]) -> Tensor:
        # Returns nothing: compiled graphs refuse what is returned and is an argument.
        self._into_out(*arguments, out=out)
        return out

    def _change(self, input: Tensor, *rest: Any) -> Tensor:
        self._changing(input, *rest)
        return input


def hand_over(
    function: Callable[..., Tensor],
    tensors: dict[str, object],
    *arguments: Any,
    **keywords: Any,
) -> Tensor:
    """Lets a tensor subclass or a torch function mode answer the call, but no nested tensor."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and tensor.is_nested:
            raise NotImplementedError(
                f"safeops.{function.__name__}: {name} must be a dense tensor, got a nested one; "
                f"convert it first, for example with {name}.to_padded_tensor(0.0)"
            )
    result: Tensor = handle_torch_function(
        function, tuple(tensors.values()), *arguments, **keywords
    )
    return result
