"""Runs the stages one after another, each in a process of its own, within a budget.

A device that has failed stays failed for the process that saw it, and a stage that hangs must not
take the others with it. The report is written after every stage, so that whoever is stopped has
what was found until then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPORT = "device_check.json"
# Of the nine minutes that are promised; the stages add up to it.
BUDGET = 535.0

DEVICE_FILE = "/dev/nvidia0"
ASK_TORCH = "import torch; print(torch.cuda.is_available())"

Report = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    name: str
    seconds: float  # at most; the last one has whatever the others left


STAGES = (
    Stage("versions", 90),  # the first import of torch on that machine
    Stage("hashes", 45),
    Stage("numbers", 70),
    Stage("policies", 45),
    Stage("graphs", 40),
    Stage("raises", 40),
    Stage("speed", 120),
    Stage("sanitizer", 85),
)
NAMES = tuple(stage.name for stage in STAGES)


def has_gpu() -> bool:
    """Asked of the driver first: torch may be missing, or be one without CUDA.

    A container may have the device and no nvidia-smi, and not under its usual name.
    """
    listed = output_of(["nvidia-smi", "-L"], 15)
    if "GPU" in listed or Path(DEVICE_FILE).exists():
        return True
    return output_of([sys.executable, "-c", ASK_TORCH], 60).strip() == "True"


def output_of(command: list[str], seconds: float) -> str:
    """Nothing if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def environment(folder: Path) -> dict[str, str]:
    """For the stages: the prepared package, and the libraries that it brings."""
    paths = {
        "PYTHONPATH": [folder / "python", HERE],
        "LD_LIBRARY_PATH": [folder / "lib"],
    }
    result = dict(os.environ)
    for name, added in paths.items():
        before = [os.environ[name]] if os.environ.get(name) else []
        result[name] = os.pathsep.join([*map(str, added), *before])
    # Chosen by the stages themselves.
    for name in ("SAFEOPS_POLICY", "SAFEOPS_RAISE_MODE", "SAFEOPS_CUDA"):
        result.pop(name, None)
    return result


def write(path: Path, report: Report) -> None:
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(report, indent=1) + "\n")
    scratch.replace(path)


def read_notes(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def run_stage(stage: Stage, folder: Path, out: Path, seconds: float, dry: bool) -> Report:
    """What became of one stage: its status, what it noted, and why it failed."""
    notes = out / f"{stage.name}.json"
    notes.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "stage.py"), stage.name, str(folder), str(notes)]
    command += [str(seconds), *(["--dry-run"] if dry else [])]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment(folder), capture_output=True, text=True, timeout=seconds
        )
        output = done.stdout + done.stderr
        status = {0: "passed", 4: "skipped", 5: "incomplete"}.get(done.returncode, "failed")
    except subprocess.TimeoutExpired as expired:
        output = "".join(
            part.decode(errors="replace") if isinstance(part, bytes) else part or ""
            for part in (expired.stdout, expired.stderr)
        )
        status = "timed out"
    result = {"status": status, "seconds": round(time.monotonic() - start, 1)}
    if status != "passed":
        result["output"] = output[-6000:]
    return result | {"notes": read_notes(notes)}


def run(
    folder: Path,
    out: Path,
    *,
    budget: float = BUDGET,
    only: list[str] | None = None,
    dry: bool = False,
    optional: bool = False,
) -> int:
    deadline = time.monotonic() + budget
    if not dry and not has_gpu():
        print("device_check: no GPU here: nothing was run and nothing is known of the kernels")
        return 0 if optional else 2
    out.mkdir(parents=True, exist_ok=True)
    chosen = [stage for stage in STAGES if only is None or stage.name in only]
    report: Report = {"dry_run": dry, "complete": False, "stages": {}}
    for stage in chosen:
        most = budget if stage is chosen[-1] else stage.seconds
        left = deadline - time.monotonic()
        if left < 5:
            result: Report = {"status": "no time left", "seconds": 0.0, "notes": {}}
        else:
            result = run_stage(stage, folder, out, min(most, left), dry)
        report["stages"][stage.name] = result
        report["complete"] = len(report["stages"]) == len(chosen)
        write(out / REPORT, report)
        print(f"device_check: {stage.name}: {result['status']} ({result['seconds']} s)", flush=True)
        if result.get("output"):
            print(result["output"].rstrip(), flush=True)
    return sum_up(report, out)


def sum_up(report: Report, out: Path) -> int:
    statuses = [result["status"] for result in report["stages"].values()]
    counted = ("passed", "skipped", "incomplete")
    failed = [status for status in statuses if status not in counted]
    kind = " (dry run on the CPU: says nothing about a device)" if report["dry_run"] else ""
    print(
        f"device_check: {', '.join(f'{statuses.count(status)} {status}' for status in counted)}, "
        f"{len(failed)} failed{kind}; {out / REPORT}"
    )
    return 1 if failed or "incomplete" in statuses or "passed" not in statuses else 0
