"""What is running: versions, SIMD target, CUDA kernels, level, policies."""

from __future__ import annotations

import os

import torch

from safeops import _cuda_library, _library, _policy, diagnostics


def show_config() -> str:
    """Describes the build and the settings in force for the calling thread or task.

    Returns:
        Lines of text for a bug report: versions of safeops and torch, SIMD target, CUDA kernels,
        diagnostics level, and for every operator the policy of a call that names none.

    Example:
        >>> print(safeops.show_config())
    """
    lines = [
        f"safeops            {_library.version}",
        f"torch              {torch.__version__} (built for {_library.built_for_torch})",
        f"SIMD target        {_library.simd_target}",
        f"CUDA kernels       {_cuda_library.reason_for_absence or 'loaded'}",
        f"raise mode         {diagnostics.raise_mode()}",
        f"diagnostics level  {diagnostics.level()}",
        f"SAFEOPS_POLICY     {os.environ.get('SAFEOPS_POLICY') or 'not set'}",
    ]
    for operator in _library.OPERATORS:
        policy, eps = _policy.resolve(operator)
        chosen = policy or "stock, which nobody chose: warns"
        lines.append(f"{operator:<18} {chosen}" + (f", eps={eps:g}" if eps is not None else ""))
    return "\n".join(lines)
