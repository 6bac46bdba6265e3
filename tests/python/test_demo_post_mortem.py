"""The post-mortem, run as a user runs it, and its claim that looking on changes nothing."""

import json
import os
import re
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "post_mortem"
SETUPS = ("The published table", "A singular one", "The whole chain")


def run_python(*arguments: str | Path, folder: Path) -> str:
    finished = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env={**os.environ, "SAFEOPS_POLICY": "raise", "COLUMNS": "100"},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


class Demo(NamedTuple):
    stdout: str
    left_behind: list[str]

    @property
    def words(self) -> str:
        return " ".join(self.stdout.split())

    def table(self, title: str) -> list[list[str]]:
        """The rows of the table with this title, as cells."""
        lines = self.stdout[self.stdout.index(title) :].splitlines()
        ruler = next(number for number, line in enumerate(lines) if "\u2500" in line)
        rows = takewhile(str.strip, lines[ruler + 1 :])
        return [re.split(r"\s{2,}", line.strip()) for line in rows]

    def rows(self, setup: str) -> dict[str, list[str]]:
        """Cells by run; a line of few cells continues the one above."""
        rows = self.table(f"{setup}: NeuralDBG's anomalies/events")
        return {cells[0]: cells[1:] for cells in rows if len(cells) > 4}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("post_mortem")
    stdout = run_python(DEMO / "demo.py", folder=folder)
    return Demo(stdout, [path.name for path in folder.iterdir()])


def line_of_normalize() -> int:
    source = (DEMO / "model.py").read_text().splitlines()
    (line,) = [number for number, text in enumerate(source, 1) if "F.normalize(" in text]
    return line


def test_published_table_is_measured_again(demo: Demo) -> None:
    rows = demo.rows(SETUPS[0])
    published = {"healthy input": "0/46", "F.normalize": "17/63", "repair of the post": "19/65"}
    for name, figure in published.items():
        assert rows[name][:2] == [figure, figure], name


def test_no_row_at_normalize_is_singular_behind_the_published_table(demo: Demo) -> None:
    for name, cells in demo.rows(SETUPS[0]).items():
        alone, fed = [cell for cell in cells if re.fullmatch(r"\d+/\d+", cell)][-2:]
        assert alone == fed, name
        assert "0 / 0" in cells, name
        if name.startswith("policy"):
            assert alone == "17/63", name
    assert "normalize has no part in them" in demo.words


def test_sink_adds_one_event_per_singular_call_and_direction(demo: Demo) -> None:
    rows = demo.rows(SETUPS[1])
    assert rows["healthy input"][:3] == ["0/46", "0/46", "0 / 0"]
    assert rows["F.normalize"][:3] == ["17/63", "27/73", "40 / 40"]
    assert rows["policy zero"][:3] == ["17/63", "27/73", "40 / 40"]
    assert rows["policy nan"][:3] == ["42/88", "44/90", "8 / 8"]
    assert rows["repair of the post"][:3] == ["36/82", "46/92", "40 / 40"]
    assert rows["policy raise"][2] == "8 / 0"
    assert rows["policy raise"][4] == "stopped"


def test_equal_counts_hide_opposite_states(demo: Demo) -> None:
    rows = demo.rows(SETUPS[1])
    stock, zero = rows["F.normalize"], rows["policy zero"]
    assert stock[0] == zero[0]
    assert stock[5].startswith("exploding") and zero[5].startswith("vanishing")
    assert float(stock[3]) > 1e9 > 1 > float(zero[3])
    assert "a count cannot tell the fault from its repair" in demo.words


def test_whole_chain_diverges_under_stock_and_not_under_zero(demo: Demo) -> None:
    rows = demo.rows(SETUPS[2])
    assert rows["F.normalize"][2:5] == ["8 / 8", "nan", "nan"]
    assert rows["policy zero"][2] == "24 / 24"
    assert 0 < float(rows["policy zero"][4]) < 10


def test_chain_starts_at_the_line_that_called_normalize(demo: Demo) -> None:
    place = f"(model.py:{line_of_normalize()})"
    alone, fed = demo.table("what turned wrong first")[0]
    assert alone.startswith("step 1: ") and "model.py" not in alone
    assert fed.startswith("step 0: ") and f"{place} +1 zero_norm" in fed
    explained = dict(re.findall(r"^  (alone|with safeops): +(.*)$", demo.stdout, re.MULTILINE))
    assert explained["with safeops"].endswith(f"{place} (step 0)")
    assert explained["alone"].endswith("(step 1)") and "model.py" not in explained["alone"]
    edges = [line for line in demo.stdout.splitlines() if " --> " in line]
    assert len(edges) == 2
    assert all(place in edge for edge in edges)


def test_raise_says_where(demo: Demo) -> None:
    assert demo.words.count("raise stops at step 0: safeops::normalize: policy 'raise' met 8") == 2


def test_nothing_is_left_in_the_working_directory(demo: Demo) -> None:
    assert demo.left_behind == []


LOOK_ON = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
import demo, training
def told(run):
    theirs = [e for e in run.events if e.metadata.get("source") != "safeops"]
    return [(e.event_type.value, e.layer_name, e.step, e.from_state, e.to_state) for e in theirs]
print(json.dumps([
    [told(run), [loss.hex() for loss in run.losses], float(run.largest_gradient).hex()]
    for setup in (demo.TABLE, demo.SINGULAR, demo.CHAIN)
    for treatment in (demo.STOCK, demo.REPAIR)
    for is_fed in (False, True)
    for run in [training.train(setup, treatment, is_fed)]
]))
"""


def test_looking_on_changes_no_event_and_no_bit(tmp_path: Path) -> None:
    runs = json.loads(run_python("-c", LOOK_ON, str(DEMO), folder=tmp_path))
    alone, fed = runs[::2], runs[1::2]
    assert len(alone) == 6 and all(events for events, _, _ in alone)
    assert alone == fed
