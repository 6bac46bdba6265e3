"""The shared library: registers its operators with torch and opens its C interface.

The structures repeat the ``extern "C"`` part of ``include/safeops/diagnostics.h``.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).with_name("lib")
_PATH = FOLDER / "libsafeops.so"
_SHAPE_DIMS = 8


class Hit(ctypes.Structure):
    """``safeops_hit``: one call that met singular rows."""

    _fields_ = [
        ("serial", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("first_row", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
        ("sizes", ctypes.c_int64 * _SHAPE_DIMS),
        ("dims", ctypes.c_int32),
        ("op", ctypes.c_int32),
        ("condition", ctypes.c_int32),
        ("direction", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("raised", ctypes.c_int32),
        ("dtype", ctypes.c_char * 16),
    ]


class Record(ctypes.Structure):
    """``safeops_record``: one counter that is not zero."""

    _fields_ = [
        ("op", ctypes.c_int32),
        ("condition", ctypes.c_int32),
        ("direction", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("count", ctypes.c_uint64),
        ("first_row", ctypes.c_uint64),
        ("sizes", ctypes.c_int64 * _SHAPE_DIMS),
        ("dims", ctypes.c_int32),
        ("dtype", ctypes.c_char * 16),
    ]


def shape(entry: Hit | Record) -> tuple[int, ...]:
    """Shape of the input; only the first eight sizes are kept."""
    return tuple(entry.sizes[: min(entry.dims, _SHAPE_DIMS)])


def _refuse_other_torch(built_for: str) -> None:
    running = torch.__version__
    if built_for.split(".")[:2] != running.split(".")[:2]:
        raise ImportError(
            f"safeops: the library was built for torch {built_for}, but torch {running} is "
            f"running; torch's C++ interface changes with every minor version, so build safeops "
            f"again for this one (`make build`, or `pip install --no-build-isolation .`), or "
            f"install torch {built_for}"
        )


def _register_operators() -> None:
    if not _PATH.exists():
        raise ImportError(
            f"safeops: the shared library {_PATH} is missing; build it with `make build` in the "
            f"source tree, or install the package with `pip install --no-build-isolation .`"
        )
    try:
        torch.ops.load_library(str(_PATH))
    except OSError as error:
        # A library for another torch stops here, at its first missing symbol, before it can be
        # asked; the text that safeops_built_for_torch() returns is found in the file instead.
        note = re.search(rb"safeops built for torch ([0-9][\w.+]*)", _PATH.read_bytes())
        if note:
            _refuse_other_torch(note[1].decode())
        raise ImportError(
            f"safeops: the shared library {_PATH} does not load into torch {torch.__version__}: "
            f"{error.__cause__ or error}; build it again for this torch with `make build`"
        ) from error


def _open() -> ctypes.CDLL:
    # torch has loaded the file already: this is a second handle of the same library.
    library = ctypes.CDLL(str(_PATH))
    text, number, count = ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64
    hits, records = ctypes.POINTER(Hit), ctypes.POINTER(Record)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "safeops_last_hit": (number, [hits]),
        "safeops_take_backward_hits": (count, [hits, count]),
        "safeops_snapshot": (count, [records, count]),
        "safeops_glance": (count, [records, count]),
        "safeops_reset": (None, []),
        "safeops_level": (number, []),
        "safeops_set_level": (number, [number]),
        "safeops_raise_mode": (number, []),
        "safeops_set_raise_mode": (number, [number]),
        "safeops_check": (number, [ctypes.POINTER(text)]),
        "safeops_last_launch": (count, []),
        "safeops_raised_launch": (count, []),
        "safeops_has_cuda": (number, []),
        "safeops_set_cuda_unavailable": (None, [text]),
        "safeops_operator_name": (text, [number]),
        "safeops_condition_name": (text, [number]),
        "safeops_direction_name": (text, [number]),
        "safeops_device_name": (text, [number]),
        "safeops_condition_is_hit": (number, [number]),
        "safeops_simd_target": (text, []),
        "safeops_version": (text, []),
        "safeops_built_for_torch": (text, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _names(function: Any) -> tuple[str, ...]:
    names: list[str] = []
    while (name := function(len(names))) is not None:
        names.append(name.decode())
    return tuple(names)


_register_operators()
_library = _open()

built_for_torch: str = _library.safeops_built_for_torch().decode()
_refuse_other_torch(built_for_torch)

version: str = _library.safeops_version().decode()
simd_target: str = _library.safeops_simd_target().decode()

OPERATORS = _names(_library.safeops_operator_name)
CONDITIONS = _names(_library.safeops_condition_name)
DIRECTIONS = _names(_library.safeops_direction_name)
DEVICES = _names(_library.safeops_device_name)
HIT_CONDITIONS = frozenset(
    name for i, name in enumerate(CONDITIONS) if _library.safeops_condition_is_hit(i)
)

# Read through `.value` after every eager call: a plain load of the library's own word.
hit_epoch = ctypes.c_uint64.in_dll(_library, "safeops_hit_epoch")

level = _library.safeops_level
set_level = _library.safeops_set_level
reset = _library.safeops_reset
raise_mode = _library.safeops_raise_mode
set_raise_mode = _library.safeops_set_raise_mode
last_launch = _library.safeops_last_launch
raised_launch = _library.safeops_raised_launch
has_cuda = _library.safeops_has_cuda


def last_hit() -> Hit | None:
    """The last call on this thread that hit."""
    hit = Hit()
    return hit if _library.safeops_last_hit(hit) else None


def check() -> tuple[int, str]:
    """0, 1 if an error of policy `raise` was pending, 2 if a device has failed; and the message."""
    sentence = ctypes.c_char_p()
    found: int = _library.safeops_check(ctypes.byref(sentence))
    return found, (sentence.value or b"").decode()


def set_cuda_unavailable(reason: str) -> None:
    """Says why there are no CUDA kernels, for the error of a call on a CUDA tensor."""
    _library.safeops_set_cuda_unavailable(reason.encode())


def take_backward_hits() -> list[Hit]:
    """Empties the ring of backward hits, oldest first."""
    taken: list[Hit] = []
    chunk = 64
    while True:
        buffer = (Hit * chunk)()
        count = _library.safeops_take_backward_hits(buffer, chunk)
        taken.extend(buffer[:count])
        if count < chunk:
            return taken


def records(*, wait: bool = True) -> list[Record]:
    """All counters that are not zero, in slot order.

    Without `wait` what CUDA streams are still at work on is left for the next time: for readers
    beside the program, which must not stop it.
    """
    read = _library.safeops_snapshot if wait else _library.safeops_glance
    slots = len(OPERATORS) * len(CONDITIONS) * len(DIRECTIONS) * len(DEVICES)
    buffer = (Record * slots)()
    return list(buffer[: read(buffer, slots)])
