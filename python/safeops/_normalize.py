"""``safeops.normalize``."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.overrides import has_torch_function_variadic

from safeops._operator import Operator, hand_over

STOCK_EPS = 1e-12


def _stock_gradient(eps: float | None) -> str:
    floor = STOCK_EPS if eps is None else eps
    return f"grad / {floor:g}, up to {1 / floor if floor else float('inf'):.3g} times grad"


_normalize = Operator("normalize", _stock_gradient)


def normalize(
    input: Tensor,
    p: float = 2.0,
    dim: int | Sequence[int] | None = 1,
    eps: float | None = None,
    out: Tensor | None = None,
    *,
    policy: str | None = None,
) -> Tensor:
    r"""Divides every row of ``input`` by its p-norm; swaps with ``torch.nn.functional.normalize``.

    For a row x (the elements along ``dim``) with norm :math:`n = \lVert x \rVert_p`:

    .. math::
        y = x / n, \qquad
        \nabla_x = (g - y \langle y, g \rangle) / n \quad (p = 2)

    The row is singular where n is exactly 0, or below eps; there the policy decides:

    ========== ====================== ==============================================
    policy     value                  gradient
    ========== ====================== ==============================================
    stock      x / max(n, eps)        g / eps
    nan        NaN                    NaN
    epsilon    x / max(n, eps)        g / eps
    zero       0                      0, at every order
    raise      an error               an error where g is not 0
    ========== ====================== ==============================================

    A policy never changes a bit of a row that is not singular, and norms neither overflow nor
    underflow on the way: a float32 row of 1e25 or 1e-30 (the latter under ``zero``) gives a unit
    row and the right gradient. NaN or inf in a row gives what PyTorch gives.

    Args:
        input: real or complex floating-point tensor of any shape and memory format.
        p: order of the norm: any number but NaN, inf and -inf included.
        dim: dim or dims of a row; the empty tuple means all dims.
        eps: threshold of "singular". None means that of the scope, else 1e-12 under ``stock`` and
            ``epsilon`` (2**-14 for float16 under ``epsilon``) and 0 under the other policies.
        out: tensor of the same dtype that receives the result; resized if its shape differs.
        policy: ``"stock"``, ``"nan"``, ``"epsilon"``, ``"zero"`` or ``"raise"``. None means the
            innermost ``safeops.policy`` scope, else ``safeops.set_default_policy``, else
            ``SAFEOPS_POLICY``, else stock with one warning per call line that hits.

    Returns:
        A tensor with the shape, dtype and memory format of ``input``, or ``out``.

    Raises:
        SingularityError: under ``raise``, if a row is singular. Nothing is written to ``out``.
        ValueError: for an unknown policy, a bad eps, or p = NaN.
        IndexError: for a dim out of range.
        RuntimeError: for an integer or boolean input.
        NotImplementedError: for a sparse or nested input.

    Example:
        >>> x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
        >>> safeops.normalize(x, dim=-1, policy="zero")
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]], grad_fn=<SafeopsNormalizeBackward>)
    """
    if dim is None:  # as torch's norm: over everything
        dim = ()
    if has_torch_function_variadic(input, out):
        return hand_over(
            normalize,
            {"input": input, "out": out},
            input,
            p,
            dim,
            eps,
            out=out,
            policy=policy,
        )
    return _normalize.run((input, p, dim), eps, policy, out)
