"""Fetches the test suites that tests/clients runs and that no wheel contains.

Usage: python tools/client_suites.py [DIR]. Unpacks the tests of the source distributions, in the
versions that the extra `clients` of pyproject.toml pins, into DIR/NAME-VERSION (build/clients).
Suites that are there already stay. Nothing but the tests is unpacked, so that they import the
installed package.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "clients"
# Package, and what of its source distribution its suite needs.
SUITES = {"gpytorch": ("test",), "timm": ("tests", "pyproject.toml")}


def pinned_version(package: str) -> str:
    text = (ROOT / "pyproject.toml").read_text()
    pins = re.findall(rf'"{re.escape(package)}==([^"]+)"', text)
    if len(pins) != 1:
        raise SystemExit(
            f"client_suites: pyproject.toml pins {package} {len(pins)} times, not once"
        )
    return pins[0]


def suite_folder(package: str, folder: Path = FOLDER) -> Path:
    return folder / f"{package}-{pinned_version(package)}"


def unpack(archive: Path, parts: tuple[str, ...], target: Path) -> None:
    """Unpacks the parts of the one folder that a source distribution consists of."""
    with tarfile.open(archive) as tar, tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        wanted = [
            member
            for member in tar.getmembers()
            if member.name.partition("/")[2].partition("/")[0] in parts
        ]
        tar.extractall(scratch, wanted, filter="data")
        (top,) = Path(scratch).iterdir()
        # Renamed last: a folder that is there is complete.
        top.rename(target)


def fetch(package: str, folder: Path) -> None:
    target = suite_folder(package, folder)
    if target.is_dir():
        return
    requirement = f"{package}=={pinned_version(package)}"
    print(f"client_suites: fetching the tests of {requirement}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "-q"]
        options = ["--no-deps", "--no-binary", package, "--dest", scratch]
        subprocess.run([*command, *options, requirement], check=True)
        (archive,) = Path(scratch).iterdir()
        unpack(archive, SUITES[package], target)


def main() -> None:
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FOLDER
    for package in SUITES:
        fetch(package, folder)


if __name__ == "__main__":
    main()
