"""``safeops.softmax``, ``log_softmax``, ``softmin`` and ``logsumexp``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.overrides import has_torch_function_variadic

from safeops._operator import Operator, hand_over


def _stock_gradient(eps: float | None) -> str:
    return "NaN"


_softmax = Operator("softmax", _stock_gradient)
_log_softmax = Operator("log_softmax", _stock_gradient)
_logsumexp = Operator("logsumexp", _stock_gradient, takes_eps=False)


def softmax(
    input: Tensor,
    dim: int,
    dtype: torch.dtype | None = None,
    *,
    where: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    r"""Turns every row of ``input`` into weights that add up to 1; swaps with ``torch.softmax``.

    For a row x (the elements along ``dim``) and the incoming gradient g:

    .. math::
        y_i = e^{x_i} / \sum\nolimits_j e^{x_j}, \qquad
        \nabla_i = y_i (g_i - \sum\nolimits_j y_j g_j)

    Elements where ``where`` is False take no part: they are never read as numbers, their value and
    their gradient are 0. The row is empty if every element that takes part is -inf, or none takes
    part; there the policy decides:

    ========== ======== ===============================
    policy     value    gradient
    ========== ======== ===============================
    stock      NaN      NaN
    nan        NaN      NaN
    epsilon    0        0
    zero       0        0, at every order
    raise      an error an error where g is not all 0
    ========== ======== ===============================

    A policy never changes a bit of any other row. Under ``stock`` and ``nan`` an empty row is NaN
    as a whole, elements that take no part included; their gradient is 0 all the same. NaN or +inf
    among the elements that take part makes all of them NaN under every policy, as in PyTorch.

    Args:
        input: floating-point tensor of any shape and strides.
        dim: dim of a row.
        dtype: the input is converted to this first. float16 and bfloat16 to float32 without a copy.
        where: boolean tensor that broadcasts to the shape of ``input``. None: every element takes
            part.
        eps: accepted for the symmetry of the family: finite, not negative, and not 0 under
            ``epsilon``. The value at an empty row is 0 / eps, so no eps changes it.
        policy: ``"stock"``, ``"nan"``, ``"epsilon"``, ``"zero"`` or ``"raise"``. None means the
            innermost ``safeops.policy`` scope, else ``safeops.set_default_policy``, else
            ``SAFEOPS_POLICY``, else stock with one warning per call line that hits.
        out: tensor of the dtype of the result that receives it; resized if its shape differs.

    Returns:
        A contiguous tensor with the shape of ``input`` and dtype ``dtype``, else that of ``input``;
        or ``out``.

    Raises:
        SingularityError: under ``raise``, if a row is empty. Nothing is written to ``out``.
        ValueError: for an unknown policy or a bad eps.
        IndexError: for a dim out of range.
        RuntimeError: for a ``where`` that is not boolean or does not broadcast to ``input``.
        NotImplementedError: for an integer, boolean or complex input without ``dtype``, or for a
            sparse or nested one.

    Example:
        >>> scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
        >>> mask = torch.tensor([[True, False, True], [False, False, False]])
        >>> safeops.softmax(scores, dim=-1, where=mask, policy="zero")
        tensor([[0.1192, 0.0000, 0.8808],
                [0.0000, 0.0000, 0.0000]])
    """
    if has_torch_function_variadic(input, where, out):
        return hand_over(
            softmax,
            {"input": input, "where": where, "out": out},
            input,
            dim,
            dtype,
            where=where,
            eps=eps,
            policy=policy,
            out=out,
        )
    return _softmax.run((input, dim, dtype, where), eps, policy, out)


def log_softmax(
    input: Tensor,
    dim: int,
    dtype: torch.dtype | None = None,
    *,
    where: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    r"""Logarithm of :func:`softmax`, without its roundings; swaps with ``torch.log_softmax``.

    For a row x (the elements along ``dim``) and the incoming gradient g:

    .. math::
        y_i = x_i - \log \sum\nolimits_j e^{x_j}, \qquad
        \nabla_i = g_i - e^{y_i} \sum\nolimits_j g_j

    Elements where ``where`` is False take no part: they are never read as numbers, their value is
    -inf and their gradient is 0. The row is empty if every element that takes part is -inf, or none
    takes part; there the policy decides:

    ========== ======== ===============================
    policy     value    gradient
    ========== ======== ===============================
    stock      NaN      NaN
    nan        NaN      NaN
    epsilon    log(eps) 0
    zero       -inf     0, at every order
    raise      an error an error where g is not all 0
    ========== ======== ===============================

    A policy never changes a bit of any other row. At an empty row an element that takes no part is
    -inf under ``epsilon`` as well, and NaN under ``stock`` and ``nan``; its gradient is 0.
    NaN or +inf among the elements that take part makes all of them NaN under every policy.

    Args:
        input, dim, dtype, where, policy, out: as in :func:`softmax`.
        eps: what ``epsilon`` takes the logarithm of at an empty row: finite and above 0. None
            means that of the scope, else 1e-12 (2**-14 for a float16 result). No other policy
            uses it.

    Returns:
        A contiguous tensor with the shape of ``input`` and dtype ``dtype``, else that of ``input``;
        or ``out``.

    Raises:
        SingularityError: under ``raise``, if a row is empty. Nothing is written to ``out``.
        ValueError, IndexError, RuntimeError, NotImplementedError: as :func:`softmax`.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]])
        >>> safeops.log_softmax(x, dim=-1, policy="zero")
        tensor([[-0.6931, -0.6931],
                [   -inf,    -inf]])
    """
    if has_torch_function_variadic(input, where, out):
        return hand_over(
            log_softmax,
            {"input": input, "where": where, "out": out},
            input,
            dim,
            dtype,
            where=where,
            eps=eps,
            policy=policy,
            out=out,
        )
    return _log_softmax.run((input, dim, dtype, where), eps, policy, out)


def softmin(
    input: Tensor,
    dim: int,
    dtype: torch.dtype | None = None,
    *,
    where: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    """:func:`softmax` of ``-input``; swaps with ``torch.nn.functional.softmin``.

    A row is empty if every element that takes part is +inf, or none takes part. Hits are counted,
    and policies chosen, under the name softmax.

    Args:
        input, dim, dtype, where, eps, policy: as in :func:`softmax`.

    Returns:
        A contiguous tensor with the shape of ``input`` and dtype ``dtype``, else that of ``input``.

    Raises:
        SingularityError, ValueError, IndexError, RuntimeError, NotImplementedError: as
            :func:`softmax`.

    Example:
        >>> safeops.softmin(torch.tensor([0.0, torch.inf]), dim=0)
        tensor([1., 0.])
    """
    if has_torch_function_variadic(input, where):
        return hand_over(
            softmin,
            {"input": input, "where": where},
            input,
            dim,
            dtype,
            where=where,
            eps=eps,
            policy=policy,
        )
    return softmax(-input, dim, dtype, where=where, eps=eps, policy=policy)


def logsumexp(
    input: Tensor,
    dim: int | Sequence[int],
    keepdim: bool = False,
    *,
    where: Tensor | None = None,
    policy: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    r"""Logarithm of the sum of exponentials of every row; swaps with ``torch.logsumexp``.

    For a row x (the elements along ``dim``) and the incoming gradient g:

    .. math::
        y = \log \sum\nolimits_j e^{x_j}, \qquad \nabla_i = g e^{x_i - y}

    Elements where ``where`` is False take no part: they are never read as numbers and their
    gradient is 0. The row is empty if every element that takes part is -inf, or none takes part. It
    has a value, -inf, and no slope; there the policy decides:

    ========== ======== ===============================
    policy     value    gradient
    ========== ======== ===============================
    stock      -inf     NaN
    nan        -inf     NaN
    epsilon    -inf     0
    zero       -inf     0, at every order
    raise      an error an error where g is not 0
    ========== ======== ===============================

    A policy never changes a bit of any other row. A row with NaN gives NaN and one with +inf gives
    +inf, with PyTorch's gradient, under every policy.

    Args:
        input: tensor of any shape and strides. Integers and booleans are promoted to the default
            dtype; complex tensors are computed by PyTorch, without a policy.
        dim: dim or dims of a row; the empty tuple means all dims.
        keepdim: keep the dims of a row, with size 1.
        where: boolean tensor that broadcasts to the shape of ``input``. None: every element takes
            part.
        policy: as in :func:`softmax`.
        out: tensor that receives the result, cast to its dtype; resized if its shape differs.

    Returns:
        A tensor with the shape of ``input`` without the dims of a row, or ``out``. A row without
        elements gives -inf and is no hit.

    Raises:
        SingularityError: under ``raise``, if a row is empty. Nothing is written to ``out``.
        ValueError: for an unknown policy.
        IndexError: for a dim out of range.
        RuntimeError: for a dim named twice, or for a ``where`` that is not boolean or does not
            broadcast to ``input``.
        NotImplementedError: for a sparse or nested input.

    Example:
        >>> x = torch.full((2,), -torch.inf, requires_grad=True)
        >>> safeops.logsumexp(x, dim=0, policy="zero").backward()
        >>> x.grad
        tensor([0., 0.])
    """
    if has_torch_function_variadic(input, where, out):
        return hand_over(
            logsumexp,
            {"input": input, "where": where, "out": out},
            input,
            dim,
            keepdim,
            where=where,
            policy=policy,
            out=out,
        )
    return _logsumexp.run((input, dim, keepdim, where), None, policy, out)
