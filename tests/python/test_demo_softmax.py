"""The attention demo, run as a user runs it, with one seed and enough epochs to learn."""

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
from torch import Tensor

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEMO = EXAMPLES / "digits_attention"
EPOCHS = 12
HEADS = 4
POISONED = ("masked_fill", "added mask, where", "safeops stock", "safeops nan")
SOUND = ("finfo.min fill", "masked_fill, where", "safeops epsilon", "safeops zero")
COUNTED = ("safeops stock", "safeops nan", "safeops epsilon", "safeops zero")


class Demo(NamedTuple):
    stdout: str
    output: Path
    rows: dict[tuple[str, str], dict[str, str]]

    def momentum(self, softmax: str) -> dict[str, str]:
        return self.rows["SGD, momentum", softmax]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    output = tmp_path_factory.mktemp("demo") / "not" / "yet" / "there"
    options = [f"--epochs={EPOCHS}", "--seeds=1", "--output", output]
    finished = subprocess.run(
        [sys.executable, DEMO / "demo.py", *options],
        capture_output=True,
        text=True,
        env={**os.environ, "SAFEOPS_POLICY": "raise"},
    )
    assert finished.returncode == 0, finished.stderr
    with (output / "digits_attention.csv").open(newline="") as file:
        rows = {(row["recipe"], row["softmax"]): row for row in csv.DictReader(file)}
    return Demo(finished.stdout, output, rows)


@pytest.fixture(scope="module")
def blank_quadrants() -> tuple[int, int]:
    """Training images and test images with a blank quadrant; none has two."""
    spec = importlib.util.spec_from_file_location("digits_model", EXAMPLES / "digits" / "model.py")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    digits = model.load(4)

    def blank(quadrants: Tensor) -> int:
        return int((quadrants == 0).all(-1).sum())

    return blank(digits.patches), blank(digits.test_patches)


def test_data_have_blank_quadrants(demo: Demo, blank_quadrants: tuple[int, int]) -> None:
    assert blank_quadrants == (12, 3)
    assert "12 of 1,400 training images have a blank quadrant" in demo.stdout


@pytest.mark.parametrize("softmax", POISONED)
def test_empty_row_makes_every_parameter_nan(demo: Demo, softmax: str) -> None:
    row = demo.momentum(softmax)
    assert int(row["first_nan_steps"]) <= 2
    assert float(row["nan_parameters"]) == 1
    assert int(row["nan_answers"]) == 397


@pytest.mark.parametrize("softmax", SOUND)
def test_sound_softmax_learns(demo: Demo, softmax: str) -> None:
    row = demo.momentum(softmax)
    assert float(row["accuracy"]) >= 0.9
    assert row["first_nan_steps"] == ""
    assert float(row["nan_parameters"]) == int(row["nan_answers"]) == 0
    assert math.isfinite(float(row["final_loss"]))


def test_adam_learns_under_zero_and_not_under_masked_fill(demo: Demo) -> None:
    assert float(demo.rows["Adam", "safeops zero"]["accuracy"]) >= 0.8
    assert float(demo.rows["Adam", "masked_fill"]["nan_parameters"]) == 1


def test_skipping_drops_batches_and_still_answers_nan(
    demo: Demo, blank_quadrants: tuple[int, int]
) -> None:
    row = demo.momentum("masked_fill, skip")
    assert 0.3 < float(row["skipped"]) < 0.6
    assert float(row["nan_parameters"]) == 0
    assert int(row["nan_answers"]) == blank_quadrants[1]
    for (_, softmax), other in demo.rows.items():
        assert (float(other["skipped"]) > 0) == softmax.endswith("skip")


@pytest.mark.parametrize("policy", ["epsilon", "zero"])
def test_every_blank_quadrant_is_counted_in_every_head(
    demo: Demo, blank_quadrants: tuple[int, int], policy: str
) -> None:
    training, test = blank_quadrants
    row = demo.momentum(f"safeops {policy}")
    assert int(row["backward_hits"]) == HEADS * EPOCHS * training
    assert int(row["forward_hits"]) == HEADS * (EPOCHS * training + test)


def test_torch_alone_counts_nothing(demo: Demo) -> None:
    for (_, softmax), row in demo.rows.items():
        if not softmax.startswith("safeops"):
            assert row["forward_hits"] == row["backward_hits"] == "0"
            assert row["call_lines"] == ""


@pytest.mark.parametrize("softmax", [*COUNTED, "safeops raise"])
def test_hits_are_reported_at_the_line_of_the_call(demo: Demo, softmax: str) -> None:
    name, line = demo.momentum(softmax)["call_lines"].split(":")
    assert name == "attention.py"
    source = (DEMO / name).read_text().splitlines()[int(line) - 1]
    assert "self.softmax(" in source


def test_raise_stops_with_its_sentence(demo: Demo) -> None:
    row = demo.momentum("safeops raise")
    assert math.isnan(float(row["accuracy"]))
    assert int(row["forward_hits"]) % HEADS == 0
    assert int(row["forward_hits"]) > 0
    assert row["backward_hits"] == "0"
    assert f"policy 'raise' met {row['forward_hits']} singular rows of 1024" in row["error"]
    assert row["error"] in " ".join(demo.stdout.split())


def test_table_shows_every_setting_in_its_group(demo: Demo) -> None:
    expected: list[str] = []
    for recipe, softmax in demo.rows:
        expected += [softmax] if recipe in expected else [recipe, softmax]
    first_cells = [re.split(r"\s{2,}", line.strip())[0] for line in demo.stdout.splitlines()]
    assert [cell for cell in first_cells if cell in expected] == expected


def test_figure_is_a_png(demo: Demo) -> None:
    figure = demo.output / "digits_attention.png"
    assert figure.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
