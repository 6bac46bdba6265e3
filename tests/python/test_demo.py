"""The digits demo, run as a user runs it, with one epoch of one seed."""

import csv
import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
SAFEOPS_ROWS = ("stock", "epsilon 1e-06", "epsilon 0.001", "epsilon 0.1", "zero", "nan", "raise")


class Demo(NamedTuple):
    stdout: str
    output: Path
    rows: dict[tuple[str, str], dict[str, str]]

    def momentum(self, normalize: str) -> dict[str, str]:
        return self.rows["SGD, momentum", normalize]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    output = tmp_path_factory.mktemp("demo") / "not" / "yet" / "there"
    command = [sys.executable, DIGITS / "demo.py", "--quick", "--output", output]
    finished = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "SAFEOPS_POLICY": "raise"}
    )
    assert finished.returncode == 0, finished.stderr
    with (output / "digits.csv").open(newline="") as file:
        rows = {(row["recipe"], row["normalize"]): row for row in csv.DictReader(file)}
    return Demo(finished.stdout, output, rows)


@pytest.fixture(scope="module")
def blank_patches() -> int:
    """Blank patches of the first batch; later the bias has moved and no row is zero any more."""
    spec = importlib.util.spec_from_file_location("digits_model", DIGITS / "model.py")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    patches = model.load().patches
    first = torch.randperm(len(patches), generator=torch.Generator().manual_seed(0))[:64]
    return int((patches[first] == 0).all(-1).sum())


def test_figure_is_a_png(demo: Demo) -> None:
    assert (demo.output / "digits.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("policy", ["stock", "epsilon 1e-06", "zero", "nan"])
def test_every_blank_patch_is_counted_forward_and_backward(
    demo: Demo, blank_patches: int, policy: str
) -> None:
    row = demo.momentum(policy)
    assert blank_patches > 0
    assert int(row["forward_hits"]) == blank_patches
    assert int(row["backward_hits"]) == blank_patches


@pytest.mark.parametrize("policy", SAFEOPS_ROWS)
def test_hits_are_reported_at_the_line_of_the_call(demo: Demo, policy: str) -> None:
    name, line = demo.momentum(policy)["call_lines"].split(":")
    assert name == "model.py"
    source = (DIGITS / "model.py").read_text().splitlines()[int(line) - 1]
    assert "self.normalize(" in source


@pytest.mark.parametrize("normalize", ["F.normalize", "stock"])
def test_stock_gradient_explodes_while_the_loss_stays_finite(demo: Demo, normalize: str) -> None:
    row = demo.momentum(normalize)
    assert float(row["largest_gradient"]) > 1e9
    assert math.isfinite(float(row["final_loss"]))


def test_zero_keeps_the_gradient_small(demo: Demo) -> None:
    assert float(demo.momentum("zero")["largest_gradient"]) < 1e3


def test_nan_reaches_the_loss(demo: Demo) -> None:
    assert math.isnan(float(demo.momentum("nan")["final_loss"]))


def test_raise_stops_with_its_sentence(demo: Demo, blank_patches: int) -> None:
    row = demo.momentum("raise")
    assert math.isnan(float(row["accuracy"]))
    assert int(row["forward_hits"]) == blank_patches
    assert row["backward_hits"] == "0"
    assert f"policy 'raise' met {blank_patches} singular rows of 1024" in row["error"]
    assert row["error"] in " ".join(demo.stdout.split())


def test_default_bias_meets_no_singular_row(demo: Demo) -> None:
    stock, zero = (demo.rows["SGD, default bias", name] for name in ("stock", "zero"))
    assert stock["forward_hits"] == stock["backward_hits"] == zero["forward_hits"] == "0"
    assert stock["final_loss"] == zero["final_loss"]


def test_table_shows_every_setting_in_its_group(demo: Demo) -> None:
    expected: list[str] = []
    for recipe, normalize in demo.rows:
        expected += [normalize] if recipe in expected else [recipe, normalize]
    first_cells = [re.split(r"\s{2,}", line.strip())[0] for line in demo.stdout.splitlines()]
    assert [cell for cell in first_cells if cell in expected] == expected
