"""``safeops.rsqrt``, ``sqrt``, ``log`` and their in-place forms."""

from __future__ import annotations

from torch import Tensor
from torch.overrides import has_torch_function_variadic

from safeops._operator import Operator, hand_over


def _rsqrt_stock_gradient(eps: float | None) -> str:
    return "-grad / (2 x sqrt(x)): inf or NaN at 0, NaN below"


def _sqrt_stock_gradient(eps: float | None) -> str:
    return "grad / (2 sqrt(x)): inf or NaN at 0, NaN below"


def _log_stock_gradient(eps: float | None) -> str:
    return "grad / x: inf or NaN at 0"


_rsqrt = Operator("rsqrt", _rsqrt_stock_gradient, unit="element")
_sqrt = Operator("sqrt", _sqrt_stock_gradient, unit="element")
_log = Operator("log", _log_stock_gradient, unit="element")
_rsqrt_in_place = Operator("rsqrt", _rsqrt_stock_gradient, unit="element", in_place=True)
_sqrt_in_place = Operator("sqrt", _sqrt_stock_gradient, unit="element", in_place=True)
_log_in_place = Operator("log", _log_stock_gradient, unit="element", in_place=True)


def rsqrt(
    input: Tensor,
    *,
    out: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    r"""Takes the reciprocal of the square root of every element; swaps with ``torch.rsqrt``.

    For an element x and the incoming gradient g:

    .. math::
        y = 1 / \sqrt{x}, \qquad \nabla = -g \, y^3 / 2

    An element is singular where x is 0, of either sign, negative, or below eps; there the policy
    decides:

    ========== =================================== =========================
    policy     value                               gradient
    ========== =================================== =========================
    stock      inf at 0, -inf at -0.0, NaN below   -g y**3 / 2
    nan        NaN                                 NaN
    epsilon    1 / sqrt(eps)                       0
    zero       0                                   0, at every order
    raise      an error                            an error where g is not 0
    ========== =================================== =========================

    A policy never changes a bit of any other element, subnormal ones included. NaN gives NaN.
    A complex element is singular where it is 0 or its modulus is below eps; ``epsilon`` raises the
    modulus to eps. Unlike torch's, it saves its input for the backward pass, which may not be
    changed in place until then; its result may.

    Args:
        input: tensor of any shape, strides and dtype; integers are promoted to the default dtype.
        out: tensor that receives the result, cast to its dtype; resized if its shape differs.
        eps: threshold of "singular". None means that of the scope, else 1e-12 (2**-14 for a float16
            result) under ``epsilon`` and 0 under the other policies.
        policy: ``"stock"``, ``"nan"``, ``"epsilon"``, ``"zero"`` or ``"raise"``. None means the
            innermost ``safeops.policy`` scope, else ``safeops.set_default_policy``, else
            ``SAFEOPS_POLICY``, else stock with one warning per call line that hits.

    Returns:
        A tensor with the shape and strides of ``input``, and its dtype unless that is an integer's;
        or ``out``.

    Raises:
        SingularityError: under ``raise``, if an element is singular. Nothing is written to ``out``.
        ValueError: for an unknown policy or a bad eps.
        NotImplementedError: for a sparse or nested input.

    Example:
        >>> safeops.rsqrt(torch.tensor([4.0, 0.0, -1.0]), policy="zero")
        tensor([0.5000, 0.0000, 0.0000])
    """
    if has_torch_function_variadic(input, out):
        return hand_over(
            rsqrt, {"input": input, "out": out}, input, out=out, eps=eps, policy=policy
        )
    return _rsqrt.run((input,), eps, policy, out)


def rsqrt_(input: Tensor, *, eps: float | None = None, policy: str | None = None) -> Tensor:
    """:func:`rsqrt` in place; swaps with ``torch.Tensor.rsqrt_``.

    Args:
        input: tensor that receives the result.
        eps, policy: as in :func:`rsqrt`.

    Returns:
        ``input``.

    Raises:
        SingularityError: under ``raise``, if an element is singular. ``input`` is unchanged.
        ValueError, NotImplementedError: as :func:`rsqrt`.
        RuntimeError: for an integer or boolean input, or a leaf that requires grad.

    Example:
        >>> safeops.rsqrt_(torch.tensor([4.0, 0.0]), policy="zero")
        tensor([0.5000, 0.0000])
    """
    if has_torch_function_variadic(input):
        return hand_over(rsqrt_, {"input": input}, input, eps=eps, policy=policy)
    return _rsqrt_in_place.run((input,), eps, policy)


def sqrt(
    input: Tensor,
    *,
    out: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    r"""Takes the square root of every element of ``input``; swaps with ``torch.sqrt``.

    For an element x and the incoming gradient g:

    .. math::
        y = \sqrt{x}, \qquad \nabla = g / (2 y)

    An element is singular where x is negative or 0 < x < eps, and at 0, of either sign, for its
    gradient alone: the value there is 0 unless ``epsilon`` floors it. The policy decides:

    ========== =========================== =========================
    policy     value                       gradient
    ========== =========================== =========================
    stock      sqrt(x): NaN below 0        g / (2 y): inf at 0
    nan        NaN; 0 at 0                 NaN
    epsilon    sqrt(eps)                   0
    zero       0                           0, at every order
    raise      an error; 0 at 0            an error where g is not 0
    ========== =========================== =========================

    A policy never changes a bit of any other element. NaN gives NaN. Hits at 0 are counted in the
    backward pass (under ``epsilon`` in both), and what nobody chose a policy for warns at the next
    call of an operator, or at ``safeops.diagnostics.snapshot()``. A complex element is singular
    where it is 0 or its modulus is below eps; ``epsilon`` raises the modulus to eps. Unlike
    torch's, it saves its input for the backward pass, which may not be changed in place until then;
    its result may.

    Args:
        input, out, eps, policy: as in :func:`rsqrt`.

    Returns:
        A tensor with the shape and strides of ``input``, and its dtype unless that is an integer's;
        or ``out``.

    Raises:
        SingularityError, ValueError, NotImplementedError: as :func:`rsqrt`.

    Example:
        >>> x = torch.tensor([4.0, 0.0], requires_grad=True)
        >>> safeops.sqrt(x, policy="zero").sum().backward()
        >>> x.grad
        tensor([0.2500, 0.0000])
    """
    if has_torch_function_variadic(input, out):
        return hand_over(sqrt, {"input": input, "out": out}, input, out=out, eps=eps, policy=policy)
    return _sqrt.run((input,), eps, policy, out)


def sqrt_(input: Tensor, *, eps: float | None = None, policy: str | None = None) -> Tensor:
    """:func:`sqrt` in place; swaps with ``torch.Tensor.sqrt_``.

    Args:
        input: tensor that receives the result.
        eps, policy: as in :func:`rsqrt`.

    Returns:
        ``input``.

    Raises:
        SingularityError, ValueError, RuntimeError, NotImplementedError: as :func:`rsqrt_`.

    Example:
        >>> safeops.sqrt_(torch.tensor([4.0, -1.0]), policy="zero")
        tensor([2., 0.])
    """
    if has_torch_function_variadic(input):
        return hand_over(sqrt_, {"input": input}, input, eps=eps, policy=policy)
    return _sqrt_in_place.run((input,), eps, policy)


def log(
    input: Tensor,
    *,
    out: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    r"""Takes the natural logarithm of every element of ``input``; swaps with ``torch.log``.

    For an element x and the incoming gradient g:

    .. math::
        y = \ln x, \qquad \nabla = g / x

    An element is singular where x is 0, of either sign, negative, or below eps; there the policy
    decides:

    ========== ======================= =========================
    policy     value                   gradient
    ========== ======================= =========================
    stock      -inf at 0, NaN below    g / x
    nan        NaN                     NaN
    epsilon    log(eps)                0
    zero       0                       0, at every order
    raise      an error                an error where g is not 0
    ========== ======================= =========================

    A policy never changes a bit of any other element. NaN gives NaN. A complex element is singular
    where it is 0 or its modulus is below eps; ``epsilon`` raises the modulus to eps.

    Args:
        input, out, eps, policy: as in :func:`rsqrt`.

    Returns:
        A tensor with the shape and strides of ``input``, and its dtype unless that is an integer's;
        or ``out``.

    Raises:
        SingularityError, ValueError, NotImplementedError: as :func:`rsqrt`.

    Example:
        >>> safeops.log(torch.tensor([1.0, 0.0, -1.0]), policy="zero")
        tensor([0., 0., 0.])
    """
    if has_torch_function_variadic(input, out):
        return hand_over(log, {"input": input, "out": out}, input, out=out, eps=eps, policy=policy)
    return _log.run((input,), eps, policy, out)


def log_(input: Tensor, *, eps: float | None = None, policy: str | None = None) -> Tensor:
    """:func:`log` in place; swaps with ``torch.Tensor.log_``.

    Args:
        input: tensor that receives the result.
        eps, policy: as in :func:`rsqrt`.

    Returns:
        ``input``.

    Raises:
        SingularityError, ValueError, RuntimeError, NotImplementedError: as :func:`rsqrt_`.

    Example:
        >>> safeops.log_(torch.tensor([1.0, 0.0]), policy="zero")
        tensor([0., 0.])
    """
    if has_torch_function_variadic(input):
        return hand_over(log_, {"input": input}, input, eps=eps, policy=policy)
    return _log_in_place.run((input,), eps, policy)
