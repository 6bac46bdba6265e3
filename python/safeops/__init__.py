"""Numerically safe operators for PyTorch, with a choice of what happens at singular points.

``safeops.normalize`` takes the place of ``torch.nn.functional.normalize``. At a row whose norm is
zero, or below eps, a policy decides about value and gradient: ``"stock"`` (what PyTorch does),
``"nan"``, ``"epsilon"``, ``"zero"`` or ``"raise"``. It is chosen in the call (``policy=``), for a
block or a function (:class:`safeops.policy`), for the process (:func:`safeops.set_default_policy`,
environment variable ``SAFEOPS_POLICY``); the first of these that says something counts.

:mod:`safeops.diagnostics` counts the singular rows that were met, and names the lines that met
them.

>>> import torch, safeops
>>> x = torch.zeros(2, 3, requires_grad=True)
>>> with safeops.policy("zero"):
...     safeops.normalize(x, dim=-1).sum().backward()
>>> x.grad
tensor([[0., 0., 0.],
        [0., 0., 0.]])
"""

from safeops import _library  # isort: skip  (registers the operators that the others bind)
from safeops import _vmap as _vmap
from safeops import diagnostics
from safeops._config import show_config
from safeops._errors import SingularityError, SingularityWarning
from safeops._normalize import normalize
from safeops._policy import policy, set_default_policy

__version__ = _library.version

__all__ = [
    "SingularityError",
    "SingularityWarning",
    "diagnostics",
    "normalize",
    "policy",
    "set_default_policy",
    "show_config",
]
