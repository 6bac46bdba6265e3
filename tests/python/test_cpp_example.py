"""An installed safeops serves a CMake project: examples/cpp is built against it and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import safeops

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(safeops.__file__).parent / "lib" / "libsafeops.so"
BUILD = LIBRARY.resolve().parents[1]

EXPECTED = """\
value
 0.6000  0.8000
 0.0000  0.0000
[ CPUDoubleType{2,2} ]
gradient
 0.1280 -0.0960
 0.0000  0.0000
[ CPUDoubleType{2,2} ]
safeops::normalize: policy 'raise' met 2 singular rows of 2 (zero_norm 2; first at row 0) in a \
float32 tensor of shape [2, 3]; use policy 'zero', 'epsilon' or 'nan' to continue
normalize zero_norm forward: 3 rows, first row 1
normalize zero_norm backward: 1 rows, first row 1
"""


def run(*command: str | Path) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_example_builds_against_the_installed_package(tmp_path: Path) -> None:
    prefix, build = tmp_path / "prefix", tmp_path / "build"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    run(
        "cmake",
        *("-S", ROOT / "examples" / "cpp", "-B", build, "-G", "Ninja"),
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    run("cmake", "--build", build)
    assert run(build / "unit_rows") == EXPECTED
