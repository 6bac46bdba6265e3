"""Fills a folder with all that a GPU machine needs: package, libraries, programs, scripts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MANIFEST = "manifest.json"
HASHES = "hashes.json"
MOST_BYTES = 60_000_000
TOOLKIT = "/usr/local/cuda"
PROGRAMS = {"cuda": "device_check_cuda", "emulated": "device_check_emulated"}
LIBRARIES = ("libsafeops.so", "libsafeops_torch_cuda.so")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def torch_of(python: str) -> tuple[str, str | None]:
    """The versions of torch and CUDA."""
    script = "import torch; print(torch.__version__, torch.version.cuda)"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"device_check: {python} has no torch: {done.stderr.strip()[-200:]}")
    version, cuda = done.stdout.split()
    return version, None if cuda == "None" else cuda


def build(python: str, version: str, jobs: int) -> Path:
    minor = ".".join(version.split(".")[:2])
    folder = ROOT / "build" / f"device-{minor}"
    configure = ["cmake", "--preset", "device", "-B", str(folder), "--log-level=WARNING"]
    subprocess.run([*configure, f"-DPython_EXECUTABLE={python}"], cwd=ROOT, check=True)
    targets = ["safeops_torch", "safeops_torch_cuda", *PROGRAMS.values()]
    command = ["cmake", "--build", str(folder), "--parallel", str(jobs), "--target", *targets]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


def emulated_hashes(program: Path) -> dict[str, str]:
    import program_output

    done = subprocess.run([program], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"device_check: the emulator fails: {done.stdout[-2000:]}")
    return program_output.hashes(done.stdout)


def libraries_needed(file: Path, name: str) -> list[Path]:
    listing = subprocess.run(["ldd", str(file)], check=True, capture_output=True, text=True).stdout
    return [Path(path) for path in re.findall(rf"{name}\S* => (\S+)", listing)]


def fill(folder: Path, built: Path) -> None:
    package = folder / "python" / "safeops"
    ignored = shutil.ignore_patterns("__pycache__", "lib")
    shutil.copytree(ROOT / "python" / "safeops", package, ignore=ignored)
    for name in ("bin", "lib"):
        (folder / name).mkdir()
    (package / "lib").mkdir()
    for name in LIBRARIES:
        shutil.copy(built / "lib" / name, package / "lib")
    for name, target in PROGRAMS.items():
        shutil.copy(built / "tools" / "device_check" / target, folder / "bin" / name)
    for binary in [*(package / "lib").iterdir(), *(folder / "bin").iterdir()]:
        subprocess.run(["strip", "--strip-unneeded", str(binary)], check=True)
    for library in libraries_needed(folder / "bin" / "cuda", "libhwy"):
        shutil.copy(library, folder / "lib" / library.name)
    (folder / HERE.name).mkdir()
    for script in HERE.glob("*.py"):
        shutil.copy(script, folder / HERE.name)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def revision() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def find_nvcc() -> str | None:
    """Where cmake/Cuda.cmake looks."""
    if os.environ.get("CUDACXX"):
        return os.environ["CUDACXX"]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), TOOLKIT]
    places = [os.path.join(toolkit, "bin") for toolkit in toolkits if toolkit]
    return shutil.which("nvcc", path=os.pathsep.join([*places, os.environ.get("PATH", os.defpath)]))


def is_of_others(folder: Path) -> bool:
    """Whether something is there that `prepare` has not left and so must not remove."""
    if not folder.exists():
        return False
    return not folder.is_dir() or (any(folder.iterdir()) and not (folder / MANIFEST).is_file())


def without_building(folder: Path, reason: str) -> int:
    if not (folder / MANIFEST).is_file():
        print(f"device_check: {reason}: nothing was prepared")
        return 2
    earlier = json.loads((folder / MANIFEST).read_text())
    print(
        f"device_check: {reason}: {folder} stays as it was prepared from "
        f"{earlier.get('revision')} for torch {earlier.get('torch')}"
    )
    return 0


def prepare(python: str, folder: Path, jobs: int) -> int:
    if is_of_others(folder):
        print(f"device_check: {folder} holds something else: nothing was prepared; name another")
        return 2
    if find_nvcc() is None:
        return without_building(folder, "no nvcc")
    version, cuda = torch_of(python)
    if cuda is None:
        return without_building(folder, f"torch {version} is built without CUDA")
    built = build(python, version, jobs)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Not in its place before it is complete.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as scratch:
        new = Path(scratch) / folder.name
        fill(new, built)
        hashes = emulated_hashes(new / "bin" / "emulated")
        (new / HASHES).write_text(json.dumps(hashes, indent=1) + "\n")
        size = size_of(new)
        manifest = {"torch": version, "cuda": cuda, "revision": revision(), "bytes": size}
        (new / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
    print(
        f"device_check: {folder}: {size / 1e6:.1f} MB for torch {version}, {len(hashes)} hashes; "
        f"on a machine with a GPU: python {folder.name}/{HERE.name} run"
    )
    if size > MOST_BYTES:
        print(f"device_check: more than {MOST_BYTES / 1e6:.0f} MB", file=sys.stderr)
        return 1
    return 0
