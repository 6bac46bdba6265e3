"""The feature scaling demo, run as a user runs it, with one epoch of one seed."""

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

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEMO = EXAMPLES / "feature_scaling"
POISONED = ("torch, mask after", "nan_to_num, mask", "safeops stock", "safeops nan")
SOUND = ("added eps, mask", "double where", "safeops epsilon", "safeops zero")
BATCH = 64


class Demo(NamedTuple):
    stdout: str
    rows: dict[str, dict[str, str]]

    def lines(self) -> list[list[str]]:
        """The printed lines, as the cells of a table."""
        return [re.split(r"\s{2,}", line.strip()) for line in self.stdout.splitlines()]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    output = tmp_path_factory.mktemp("demo") / "not" / "yet" / "there"
    finished = subprocess.run(
        [sys.executable, DEMO / "demo.py", "--quick", "--output", output],
        capture_output=True,
        text=True,
        env={**os.environ, "SAFEOPS_POLICY": "raise"},
    )
    assert finished.returncode == 0, finished.stderr
    with (output / "feature_scaling.csv").open(newline="") as file:
        return Demo(finished.stdout, {row["operators"]: row for row in csv.DictReader(file)})


class Zeros(NamedTuple):
    """What the first batch has to divide by zero."""

    pixels: torch.Tensor  # without spread
    right: torch.Tensor  # image rows without ink in the right half
    left: torch.Tensor


@pytest.fixture(scope="module")
def zeros() -> Zeros:
    spec = importlib.util.spec_from_file_location("digits_model", EXAMPLES / "digits" / "model.py")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    images = model.load(8).patches.view(-1, 8, 8)
    first = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:BATCH]
    batch = images[first]
    halves = batch.view(-1, 8, 2, 4).sum(-1) == 0
    return Zeros((batch == batch[0]).all(0), halves[..., 1], halves[..., 0])


def test_first_batch_divides_by_zero(zeros: Zeros) -> None:
    assert zeros.pixels.any() and zeros.right.any() and zeros.left.any()


@pytest.mark.parametrize("operators", POISONED)
def test_mask_after_a_division_leaves_nan_in_the_parameters(demo: Demo, operators: str) -> None:
    row = demo.rows[operators]
    assert row["first_nan_steps"] == "1"
    assert float(row["nan_parameters"]) > 0
    assert float(row["accuracy"]) < 0.2


@pytest.mark.parametrize("operators", POISONED)
def test_loss_tells_nothing_of_it(demo: Demo, operators: str) -> None:
    assert float(demo.rows[operators]["final_loss"]) == pytest.approx(math.log(10), abs=0.05)


@pytest.mark.parametrize("operators", SOUND)
def test_safe_division_learns(demo: Demo, operators: str) -> None:
    row = demo.rows[operators]
    assert row["first_nan_steps"] == ""
    assert float(row["nan_parameters"]) == 0
    assert float(row["accuracy"]) > 0.7


def test_zero_learns_what_the_recipe_learns(demo: Demo) -> None:
    ours, theirs = demo.rows["safeops zero"], demo.rows["double where"]
    assert float(ours["final_loss"]) == pytest.approx(float(theirs["final_loss"]), rel=1e-3)
    (difference,) = re.findall(r"tone curves differ by\s+(\S+)", demo.stdout)
    assert float(difference) < 1e-5


def test_torch_alone_counts_nothing(demo: Demo) -> None:
    for operators, row in demo.rows.items():
        if not operators.startswith("safeops"):
            assert row["forward_hits"] == row["backward_hits"] == "0"


def test_raise_stops_with_its_sentence(demo: Demo, zeros: Zeros) -> None:
    row = demo.rows["safeops raise"]
    hits = BATCH * int(zeros.pixels.sum())
    assert math.isnan(float(row["accuracy"]))
    assert (row["forward_hits"], row["backward_hits"]) == (str(hits), "0")
    assert f"policy 'raise' met {hits} singular elements of {BATCH * 64}" in row["error"]
    assert row["error"] in " ".join(demo.stdout.split())


def test_every_line_is_named_with_its_counts(demo: Demo, zeros: Zeros) -> None:
    pixels, right = int(zeros.pixels.sum()), int(zeros.right.sum())
    # Under 'zero' the logarithm meets a zero wherever either half is blank.
    either = int((zeros.left | zeros.right).sum())
    expected = {
        "spread = self.sqrt(variance)": (0, pixels),
        "score = self.div(centred, spread)": (BATCH * pixels, BATCH * pixels),
        "ratio = self.div(left, right)": (right, right),
        "log_ratio = self.log(ratio)": (either, either),
    }
    source = (DEMO / "features.py").read_text().splitlines()
    found = {}
    for line in demo.lines():
        place = re.fullmatch(r"features\.py:(\d+)", line[0])
        if place:
            assert line[1] == source[int(place[1]) - 1].strip()
            found[line[1]] = tuple(int(cell.replace(",", "")) for cell in line[3:])
    assert found == expected


def test_nan_shows_the_place(demo: Demo, zeros: Zeros) -> None:
    drawn = re.findall(r"^\s+((?:[#.] ){7}[#.])\s+(\d+)", demo.stdout, re.MULTILINE)
    marks = [[mark == "#" for mark in pixels.split()] for pixels, _ in drawn]
    assert marks == zeros.pixels.tolist()
    either = (zeros.left | zeros.right).sum(0)
    assert [int(count) for _, count in drawn] == either.tolist()


def test_only_the_masked_quotient_has_a_nan_gradient(demo: Demo) -> None:
    gradients = {line[0]: line[-1] for line in demo.lines() if line[-1] in ("NaN", "finite")}
    assert gradients == {
        "torch, mask after": "NaN",
        "double where": "finite",
        "safeops zero": "finite",
    }


def test_table_shows_every_setting(demo: Demo) -> None:
    expected = list(demo.rows)
    assert [line[0] for line in demo.lines() if line[0] in expected][: len(expected)] == expected
