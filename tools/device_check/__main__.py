"""Takes what was built here to a machine with a GPU, and says there what holds.

Usage: python tools/device_check prepare [--torch-python PYTHON] [--folder FOLDER]
       python FOLDER/device_check run [--out FOLDER] [--budget SECONDS] [--only STAGE] [--dry-run]
                                      [--optional]

`prepare` needs nvcc and builds for the torch of PYTHON; the folder it fills needs neither a
compiler nor this checkout. Without nvcc a folder that was prepared earlier stays as it is. `run`
needs a GPU and that version of torch; with --optional it is no failure that there is no GPU.
--dry-run goes through the same stages on the CPU, with the emulator for a device: it tries the
check, not the kernels.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import prepare
import runner

HERE = Path(__file__).resolve().parent
FOLDER = "build/device_check"


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="device_check", description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    prepared = actions.add_parser("prepare")
    prepared.add_argument("--torch-python", default=sys.executable, metavar="PYTHON")
    prepared.add_argument("--folder", type=Path, default=Path(FOLDER))
    prepared.add_argument("--jobs", type=int, default=2)
    run = actions.add_parser("run")
    run.add_argument(
        "--folder", type=Path, default=HERE.parent if prepared_here() else Path(FOLDER)
    )
    run.add_argument("--out", type=Path, help="for the results; the folder itself if left out")
    run.add_argument("--budget", type=float, default=runner.BUDGET, metavar="SECONDS")
    run.add_argument("--only", action="append", choices=runner.NAMES, metavar="STAGE")
    run.add_argument("--dry-run", action="store_true")
    run.add_argument("--optional", action="store_true")
    return parser.parse_args(words)


def prepared_here() -> bool:
    return (HERE.parent / prepare.MANIFEST).exists()


def main(words: list[str]) -> int:
    chosen = arguments(words)
    if chosen.action == "prepare":
        return prepare.prepare(chosen.torch_python, chosen.folder.resolve(), chosen.jobs)
    folder = chosen.folder.resolve()
    return runner.run(
        folder,
        (chosen.out or folder).resolve(),
        budget=chosen.budget,
        only=chosen.only,
        dry=chosen.dry_run,
        optional=chosen.optional,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
