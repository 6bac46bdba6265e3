"""Packages that only some sinks need."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_for(sink: str, module: str, extra: str) -> ModuleType:
    """Imports what a sink needs. Raises ImportError naming the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"safeops.sinks.{sink}: {module} must be importable, but {error}; install it with "
            f"`pip install safeops[{extra}]`"
        ) from error
