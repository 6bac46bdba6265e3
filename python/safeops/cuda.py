"""Whether operators run on CUDA tensors here, and why not.

The kernels are a library of their own, which is loaded at import where it was built and torch has
CUDA. Without it everything else works, and a call on a CUDA tensor is refused with the reason.

Example:
    >>> if not safeops.cuda.is_available():
    ...     print(safeops.cuda.why_unavailable())
"""

from __future__ import annotations

import torch

from safeops import _cuda_library

__all__ = ["is_available", "why_unavailable"]


def is_available() -> bool:
    """Whether the CUDA kernels are loaded and there is a device to run them."""
    return _cuda_library.loaded and torch.cuda.is_available()


def why_unavailable() -> str | None:
    """Why not, and what to do; None where :func:`is_available`.

    Kernels that are not built, or are switched off by ``SAFEOPS_CUDA=0`` in the environment; a
    torch without CUDA; a library built for another torch; no device.
    """
    if not _cuda_library.loaded:
        return _cuda_library.reason_for_absence
    if not torch.cuda.is_available():
        return "torch finds no CUDA device; its driver is missing, or no device is visible"
    return None
