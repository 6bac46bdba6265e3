"""Numerically safe operators for PyTorch, with a choice of what happens at singular points.

``safeops.normalize`` takes the place of ``torch.nn.functional.normalize``; ``softmax``,
``log_softmax``, ``softmin`` and ``logsumexp`` that of PyTorch's, with a mask (``where=``); ``div``
(also ``divide`` and ``true_divide``), ``reciprocal``, ``rsqrt``, ``sqrt`` and ``log``, each with a
form in place (``div_``), that of PyTorch's. At a row that has no answer (its norm is zero, or every
element of it is -inf or masked out) and at an element that has none (a divisor of 0, the logarithm
of 0) a policy decides about value and gradient: ``"stock"`` (what PyTorch does), ``"nan"``,
``"epsilon"``, ``"zero"`` or ``"raise"``. It is chosen in the call (``policy=``), for a block or a
function (:class:`safeops.policy`), for the process (:func:`safeops.set_default_policy`, environment
variable ``SAFEOPS_POLICY``); the first of these that says something counts.

:mod:`safeops.diagnostics` counts the singular rows and elements that were met, and names the lines
that met them; :mod:`safeops.sinks` sends that where it is to go. :mod:`safeops.nn` has the softmax
family as modules. :mod:`safeops.cuda` says whether CUDA tensors are served.

>>> import torch, safeops
>>> x = torch.zeros(2, 3, requires_grad=True)
>>> with safeops.policy("zero"):
...     safeops.normalize(x, dim=-1).sum().backward()
>>> x.grad
tensor([[0., 0., 0.],
        [0., 0., 0.]])
"""

from safeops import _library  # isort: skip  (registers the operators that the others bind)
from safeops import _cuda_library as _cuda_library
from safeops import _vmap_division as _vmap_division
from safeops import _vmap_normalize as _vmap_normalize
from safeops import _vmap_softmax as _vmap_softmax
from safeops import cuda, diagnostics, nn, sinks
from safeops._audit import audit
from safeops._config import show_config
from safeops._division import (
    div,
    div_,
    divide,
    divide_,
    reciprocal,
    reciprocal_,
    true_divide,
    true_divide_,
)
from safeops._errors import SingularityError, SingularityWarning
from safeops._normalize import normalize
from safeops._patch import patch
from safeops._policy import policy, set_default_policy
from safeops._report import Report
from safeops._roots import log, log_, rsqrt, rsqrt_, sqrt, sqrt_
from safeops._softmax import log_softmax, logsumexp, softmax, softmin

__version__ = _library.version

__all__ = [
    "Report",
    "SingularityError",
    "SingularityWarning",
    "audit",
    "cuda",
    "diagnostics",
    "div",
    "div_",
    "divide",
    "divide_",
    "log",
    "log_",
    "log_softmax",
    "logsumexp",
    "nn",
    "normalize",
    "patch",
    "policy",
    "reciprocal",
    "reciprocal_",
    "rsqrt",
    "rsqrt_",
    "set_default_policy",
    "show_config",
    "sinks",
    "softmax",
    "softmin",
    "sqrt",
    "sqrt_",
    "true_divide",
    "true_divide_",
]
