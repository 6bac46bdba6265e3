"""An installed safeops serves a CMake project: examples/cpp are built against it and run."""

from __future__ import annotations

import json
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


COUNTED = """\
weights are finite
normalize zero_norm forward: 3
normalize zero_norm backward: 3
div zero_denominator forward: 9
"""


def finished(*command: str | Path) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def run(*command: str | Path) -> str:
    return finished(*command).stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the examples, built against an installed package."""
    folder = tmp_path_factory.mktemp("cpp")
    prefix, build = folder / "prefix", folder / "build"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    run(
        "cmake",
        *("-S", ROOT / "examples" / "cpp", "-B", build, "-G", "Ninja"),
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    run("cmake", "--build", build)
    return build


@pytest.mark.slow
def test_example_of_values_and_errors(build: Path) -> None:
    assert run(build / "unit_rows") == EXPECTED


@pytest.mark.slow
def test_example_of_sinks(build: Path, tmp_path: Path) -> None:
    log = tmp_path / "hits.jsonl"
    result = finished(build / "watch_training", log)
    assert result.stdout == COUNTED
    # In the order of the counters unless a period ended in the middle of a step.
    assert sorted(result.stderr.splitlines()) == sorted(
        f"{counter}: {added} more, {step * added} in all"
        for step in (1, 2, 3)
        for counter, added in (
            ("normalize zero_norm forward", 1),
            ("normalize zero_norm backward", 1),
            ("div zero_denominator forward", 3),
        )
    )
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    counted = {("normalize", "forward"): 0, ("normalize", "backward"): 0, ("div", "forward"): 0}
    for line in lines:
        counted[line["operator"], line["direction"]] += line["count"]
        assert line["total"] == counted[line["operator"], line["direction"]]
        assert line["dtype"] == "float64"
        assert line["shape"] == ([3, 3] if line["operator"] == "div" else [3, 2])
    assert list(counted.values()) == [3, 3, 9]
