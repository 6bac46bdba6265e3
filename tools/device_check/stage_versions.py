"""What the machine is, and whether the kernels are loaded and there is a device for them."""

from __future__ import annotations

import json
import platform
import subprocess

import torch
from prepare import MANIFEST
from stage import Context

import safeops


def run(context: Context) -> None:
    prepared = json.loads((context.folder / MANIFEST).read_text())
    context.note(
        prepared=prepared,
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        config=safeops.show_config(),
    )
    minor = torch.__version__.split(".")[:2]
    context.expect(
        minor == prepared["torch"].split(".")[:2],
        f"prepared for torch {prepared['torch']}, this is {torch.__version__}",
    )
    if context.dry:
        return
    context.note(nvidia_smi=query_driver())
    reason = safeops.cuda.why_unavailable()
    context.expect(reason is None, f"safeops.cuda.why_unavailable: {reason}")
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        context.note(
            device=properties.name,
            capability=f"{properties.major}.{properties.minor}",
            multiprocessors=properties.multi_processor_count,
            memory_bytes=properties.total_memory,
        )


def query_driver() -> str:
    fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
