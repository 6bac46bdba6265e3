"""The suites of timm and gpytorch: every test ends under a patch as it ends without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from client_suites import suite_folder

SUITES = {"gpytorch": ["test/kernels"], "timm": ["tests/test_layers*.py"]}
PATCHES = ("", "observe", "zero")
# Tests that end otherwise under a patch, and why.
DIFFERENT: dict[tuple[str, str], dict[str, str]] = {
    ("gpytorch", "zero"): {
        "test/kernels/test_additive_and_product_kernels.py"
        "::TestAdditiveAndProductKernel::test_initialize": "sets a length scale of 0 through the "
        "inverse of softplus, whose log(0) is meant to be -inf and is 0 under zero",
    }
}

Outcomes = dict[str, str]


def run_suite(package: str, patch: str, result: Path) -> Outcomes:
    folder = suite_folder(package)
    assert folder.is_dir(), f"{folder} is missing: run tools/client_suites.py"
    files = [str(path) for name in SUITES[package] for path in sorted(folder.glob(name))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    finished = subprocess.run(
        [*command, "-p", "patched_session", "--rootdir", str(folder), *files],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SAFEOPS_CLIENT_PATCH": patch,
            "SAFEOPS_CLIENT_OUTCOMES": str(result),
        },
    )
    # 1: tests failed, which the comparison is about; anything above is no run of the suite.
    assert finished.returncode in (0, 1), finished.stdout + finished.stderr
    told = json.loads(result.read_text())
    assert told["probe_hits"] == (1 if patch else 0)
    return told["outcomes"]


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], Future[Outcomes]]]:
    folder = tmp_path_factory.mktemp("suites")
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        yield {
            (package, patch): pool.submit(
                run_suite, package, patch, folder / f"{package}-{patch}.json"
            )
            for package in SUITES
            for patch in PATCHES
        }


@pytest.mark.parametrize(("package", "least"), [("gpytorch", 400), ("timm", 1200)])
def test_suite_passes_alone(
    outcomes: dict[tuple[str, str], Future[Outcomes]], package: str, least: int
) -> None:
    counts = Counter(outcomes[package, ""].result().values())
    assert counts["passed"] >= least
    assert counts.keys() <= {"passed", "skipped"}


@pytest.mark.parametrize("patch", PATCHES[1:])
@pytest.mark.parametrize("package", SUITES)
def test_every_test_ends_as_without(
    outcomes: dict[tuple[str, str], Future[Outcomes]], package: str, patch: str
) -> None:
    alone, patched = outcomes[package, ""].result(), outcomes[package, patch].result()
    assert patched.keys() == alone.keys()
    changed = {test: (alone[test], patched[test]) for test in alone if alone[test] != patched[test]}
    assert changed.keys() == DIFFERENT.get((package, patch), {}).keys(), changed
