"""The library with the CUDA kernels: loaded where it was built and torch has CUDA.

Loading it needs no GPU and initialises nothing: the runtime that it is linked to is torch's, which
is in the process already.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from safeops import _library

_NAME = "libsafeops_torch_cuda.so"


def _load(path: Path) -> str | None:
    """Loads the library; otherwise says why it is not there, and what to do."""
    if os.environ.get("SAFEOPS_CUDA") == "0":
        return "SAFEOPS_CUDA=0 in the environment switches them off; unset it before the import"
    if torch.version.cuda is None:
        return (
            f"torch {torch.__version__} is built without CUDA; install a torch that has it and "
            f"build safeops again for that one"
        )
    if not path.exists():
        return (
            f"safeops was built without {_NAME} (SAFEOPS_CUDA=OFF, or no CUDA compiler was found); "
            f"build it again with -DSAFEOPS_CUDA=ON, which says what is missing, or move the "
            f"tensor to the CPU"
        )
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        return (
            f"{path} does not load into torch {torch.__version__}: {error.__cause__ or error}; "
            f"build safeops again for this torch with `make build`"
        )
    return None


# None where the kernels are loaded.
reason_for_absence: str | None = _load(_library.FOLDER / _NAME)

loaded = reason_for_absence is None

if reason_for_absence is not None:
    _library.set_cuda_unavailable(reason_for_absence)
