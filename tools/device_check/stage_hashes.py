"""Whether the kernels leave on the device, to the bit, what they leave on the emulator.

Both are compiled from the same source with IEEE arithmetic only, and NaN is hashed in one spelling.
The program also compares normalize and the division family with this machine's SIMD kernels.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from prepare import HASHES
from program_output import LINE, hashes
from stage import Context


def program(context: Context) -> Path:
    return context.folder / "bin" / ("emulated" if context.dry else "cuda")


def run(context: Context) -> None:
    expected = json.loads((context.folder / HASHES).read_text())
    # The emulator takes long: a dry run has a part of the launches.
    command = [str(program(context)), *(["--quick"] if context.dry else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, context.left()))
    found = hashes(done.stdout)
    if context.dry:
        expected = {what: value for what, value in expected.items() if what in found}
    last = (done.stdout.strip().splitlines() or [""])[-1]
    context.note(summary=last, hashes=found)
    context.expect(done.returncode == 0, f"exit status {done.returncode}: {last} {done.stderr}")
    for match in LINE.finditer(done.stdout):
        context.expect(match["rest"] == "same", f"{match['what']}: {match['rest']}")
    compare(context, expected, found)


def compare(context: Context, expected: dict[str, str], found: dict[str, str]) -> None:
    context.expect(bool(expected), "the emulator left no hashes")
    for what, value in expected.items():
        context.expect(what in found, f"{what}: not run")
        if what in found:
            context.expect(found[what] == value, f"{what}: {found[what]}, emulator {value}")
    for what in found.keys() - expected.keys():
        context.expect(False, f"{what}: not run on the emulator")
