"""``safeops.div``, ``divide``, ``true_divide``, ``reciprocal`` and their in-place forms."""

from __future__ import annotations

from torch import Tensor
from torch.overrides import has_torch_function_variadic

from safeops._numbers import Number, dividend_as_tensor, divisor_for
from safeops._operator import Operator, hand_over


def _stock_gradient(eps: float | None) -> str:
    if eps:
        return f"PyTorch's, of a denominator below {eps:g}: large, inf or NaN"
    return "grad / 0: inf or NaN"


def _stock_gradient_of_quotient(eps: float | None) -> str:
    return f"{_stock_gradient(eps)} (0 with a rounding mode)"


def _quotient(overload: str, in_place: bool) -> Operator:
    return Operator(
        "div", _stock_gradient_of_quotient, unit="element", overload=overload, in_place=in_place
    )


_div, _div_by_number = _quotient("", False), _quotient("Scalar", False)
_div_in_place, _div_in_place_by_number = _quotient("", True), _quotient("Scalar", True)
_reciprocal = Operator("reciprocal", _stock_gradient, unit="element")
_reciprocal_in_place = Operator("reciprocal", _stock_gradient, unit="element", in_place=True)


def _divide_numbers(
    input: Tensor | Number,
    other: Tensor | Number,
    rounding_mode: str | None,
    eps: float | None,
    policy: str | None,
    out: Tensor | None,
) -> Tensor:
    if not isinstance(input, Tensor):
        input = dividend_as_tensor(input, other, rounding_mode)
    if not isinstance(other, Tensor):
        other = divisor_for(input, other, rounding_mode)
    operator = _div if isinstance(other, Tensor) else _div_by_number
    return operator.run((input, other, rounding_mode), eps, policy, out)


def _divide_in_place_by_number(
    input: Tensor,
    other: Number,
    rounding_mode: str | None,
    eps: float | None,
    policy: str | None,
) -> Tensor:
    divisor = divisor_for(input, other, rounding_mode)
    operator = _div_in_place if isinstance(divisor, Tensor) else _div_in_place_by_number
    return operator.run((input, divisor, rounding_mode), eps, policy)


def div(
    input: Tensor | Number,
    other: Tensor | Number,
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    r"""Divides ``input`` by ``other``, element by element; swaps with ``torch.div``.

    For elements a and b after broadcasting and the incoming gradient g:

    .. math::
        y = a / b, \qquad \nabla_a = g / b, \qquad \nabla_b = -g \, (a / b) / b

    An element is singular where b is 0, of either sign, or where its magnitude is below eps, unless
    a is NaN; there the policy decides. b' is b with its magnitude raised to eps:

    ========== ==================== ================================ ================
    policy     value                gradient of ``input``            of ``other``
    ========== ==================== ================================ ================
    stock      a / b: inf or NaN    g / b                            -g (a / b) / b
    nan        NaN                  NaN                              NaN
    epsilon    a / b'               g / b'                           0
    zero       0                    0, at every order                the same
    raise      an error             an error where g is not 0        the same
    ========== ==================== ================================ ================

    A policy never changes a bit of any other element, and real quotients are rounded correctly.
    Complex quotients are scaled on the way: neither abs(b) overflows nor underflows.

    With a rounding mode real quotients are rounded, and the gradient is 0 (at singular elements NaN
    under ``nan``, an error under ``raise``). Integers are promoted to the default dtype without a
    rounding mode. With one they stay integers, which cannot be floored: a divisor of 0 gives 0
    under ``zero`` and is an error under every other policy.

    ``safeops.divide`` is this function.

    Args:
        input: tensor of any shape, strides and dtype, or a number; promoted with ``other`` as by
            torch.
        other: tensor that broadcasts with ``input``, or a number.
        rounding_mode: None, ``"trunc"`` (towards zero) or ``"floor"`` (down, as Python's ``//``).
        out: tensor that receives the result, cast to its dtype; resized if its shape differs.
        eps: threshold of "singular". None means that of the scope, else 1e-12 (2**-14 for a float16
            result) under ``epsilon`` and 0 under the other policies. Integers have none.
        policy: ``"stock"``, ``"nan"``, ``"epsilon"``, ``"zero"`` or ``"raise"``. None means the
            innermost ``safeops.policy`` scope, else ``safeops.set_default_policy``, else
            ``SAFEOPS_POLICY``, else stock with one warning per call line that hits.

    Returns:
        A tensor with the broadcast shape, the promoted dtype and torch's strides; or ``out``.

    Raises:
        SingularityError: under ``raise``, if an element is singular. Nothing is written to ``out``.
        ValueError: for an unknown policy, a bad eps, or an integer divisor of 0 with a rounding
            mode under ``epsilon``.
        RuntimeError: for shapes that do not broadcast, an unknown rounding mode, or an integer
            divisor of 0 with a rounding mode under ``stock`` and ``nan``.
        NotImplementedError: for a complex, boolean or unsigned 16 to 64 bit input with a rounding
            mode, or for a sparse or nested one.

    Example:
        >>> a = torch.tensor([1.0, 2.0, 3.0])
        >>> b = torch.tensor([2.0, 0.0, 4.0], requires_grad=True)
        >>> y = safeops.div(a, b, policy="zero")
        >>> y
        tensor([0.5000, 0.0000, 0.7500], grad_fn=<SafeopsDivBackward>)
        >>> y.sum().backward()
        >>> b.grad
        tensor([-0.2500,  0.0000, -0.1875])
    """
    if has_torch_function_variadic(input, other, out):
        return hand_over(
            div,
            {"input": input, "other": other, "out": out},
            input,
            other,
            rounding_mode=rounding_mode,
            out=out,
            eps=eps,
            policy=policy,
        )
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        return _div.run((input, other, rounding_mode), eps, policy, out)
    return _divide_numbers(input, other, rounding_mode, eps, policy, out)


divide = div


def true_divide(
    input: Tensor | Number,
    other: Tensor | Number,
    *,
    out: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    """:func:`div` without a rounding mode; swaps with ``torch.true_divide``.

    Hits are counted, and policies chosen, under the name div.

    Args:
        input, other, out, eps, policy: as in :func:`div`.

    Returns:
        A tensor with the broadcast shape, the promoted dtype and torch's strides; or ``out``.

    Raises:
        SingularityError, ValueError, RuntimeError, NotImplementedError: as :func:`div`.

    Example:
        >>> safeops.true_divide(torch.tensor([1, 0]), torch.tensor([2, 0]), policy="zero")
        tensor([0.5000, 0.0000])
    """
    if has_torch_function_variadic(input, other, out):
        return hand_over(
            true_divide,
            {"input": input, "other": other, "out": out},
            input,
            other,
            out=out,
            eps=eps,
            policy=policy,
        )
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        return _div.run((input, other, None), eps, policy, out)
    return _divide_numbers(input, other, None, eps, policy, out)


def div_(
    input: Tensor,
    other: Tensor | Number,
    *,
    rounding_mode: str | None = None,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    """:func:`div` in place; swaps with ``torch.Tensor.div_``.

    ``safeops.divide_`` is this function.

    Args:
        input: tensor that is divided, and receives the result, cast to its dtype.
        other, rounding_mode, eps, policy: as in :func:`div`.

    Returns:
        ``input``.

    Raises:
        SingularityError: under ``raise``, if an element is singular. ``input`` is unchanged.
        ValueError, NotImplementedError: as :func:`div`.
        RuntimeError: as :func:`div`; also if the broadcast shape is not that of ``input``, if the
            result cannot be cast to its dtype (floating-point to integer), or if it is a leaf that
            requires grad.

    Example:
        >>> x = torch.tensor([4.0, 1.0])
        >>> safeops.div_(x, torch.tensor([2.0, 0.0]), policy="zero")
        tensor([2., 0.])
    """
    if has_torch_function_variadic(input, other):
        return hand_over(
            div_,
            {"input": input, "other": other},
            input,
            other,
            rounding_mode=rounding_mode,
            eps=eps,
            policy=policy,
        )
    if isinstance(other, Tensor):
        return _div_in_place.run((input, other, rounding_mode), eps, policy)
    return _divide_in_place_by_number(input, other, rounding_mode, eps, policy)


divide_ = div_


def true_divide_(
    input: Tensor,
    other: Tensor | Number,
    *,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    """:func:`true_divide` in place; swaps with ``torch.Tensor.true_divide_``.

    Args:
        input, other, eps, policy: as in :func:`div_`.

    Returns:
        ``input``.

    Raises:
        SingularityError, ValueError, RuntimeError, NotImplementedError: as :func:`div_`.

    Example:
        >>> safeops.true_divide_(torch.tensor([4.0, 1.0]), 2)
        tensor([2.0000, 0.5000])
    """
    if has_torch_function_variadic(input, other):
        return hand_over(
            true_divide_,
            {"input": input, "other": other},
            input,
            other,
            eps=eps,
            policy=policy,
        )
    if isinstance(other, Tensor):
        return _div_in_place.run((input, other, None), eps, policy)
    return _divide_in_place_by_number(input, other, None, eps, policy)


def reciprocal(
    input: Tensor,
    *,
    out: Tensor | None = None,
    eps: float | None = None,
    policy: str | None = None,
) -> Tensor:
    r"""Divides 1 by every element of ``input``; swaps with ``torch.reciprocal``.

    For an element x and the incoming gradient g:

    .. math::
        y = 1 / x, \qquad \nabla = -g \, (1 / x) / x

    It is the quotient of 1 and x, so an element is singular where x is 0, of either sign, or where
    its magnitude is below eps; there the policy decides. x' is x with its magnitude raised to eps:

    ========== ============== =========================
    policy     value          gradient
    ========== ============== =========================
    stock      1 / x: inf     -g (1 / x) / x
    nan        NaN            NaN
    epsilon    1 / x'         0
    zero       0              0, at every order
    raise      an error       an error where g is not 0
    ========== ============== =========================

    A policy never changes a bit of any other element. Unlike torch's, it saves its input for the
    backward pass, which may not be changed in place until then; its result may.

    Args:
        input: tensor of any shape, strides and dtype; integers are promoted to the default dtype.
        out, eps, policy: as in :func:`div`.

    Returns:
        A tensor with the shape and strides of ``input``, and its dtype unless that is an integer's;
        or ``out``.

    Raises:
        SingularityError: under ``raise``, if an element is singular. Nothing is written to ``out``.
        ValueError: for an unknown policy or a bad eps.
        NotImplementedError: for a sparse or nested input.

    Example:
        >>> safeops.reciprocal(torch.tensor([4.0, 0.0]), policy="zero")
        tensor([0.2500, 0.0000])
    """
    if has_torch_function_variadic(input, out):
        return hand_over(
            reciprocal, {"input": input, "out": out}, input, out=out, eps=eps, policy=policy
        )
    return _reciprocal.run((input,), eps, policy, out)


def reciprocal_(input: Tensor, *, eps: float | None = None, policy: str | None = None) -> Tensor:
    """:func:`reciprocal` in place; swaps with ``torch.Tensor.reciprocal_``.

    Args:
        input: tensor that receives the result.
        eps, policy: as in :func:`div`.

    Returns:
        ``input``.

    Raises:
        SingularityError: under ``raise``, if an element is singular. ``input`` is unchanged.
        ValueError, NotImplementedError: as :func:`reciprocal`.
        RuntimeError: for an integer or boolean input, or a leaf that requires grad.

    Example:
        >>> safeops.reciprocal_(torch.tensor([4.0, 0.0]), policy="zero")
        tensor([0.2500, 0.0000])
    """
    if has_torch_function_variadic(input):
        return hand_over(reciprocal_, {"input": input}, input, eps=eps, policy=policy)
    return _reciprocal_in_place.run((input,), eps, policy)
