"""One setting of the comparison, how it is trained, and the table of all of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import features
import model
import torch
from report import EQUAL_POINTS
from rich import box
from rich.console import Console
from rich.table import Table
from training import Recipe, Run, batches, fit, observed

MOMENTUM = Recipe("SGD, momentum")


@dataclass(frozen=True)
class Setting:
    """One line of the table."""

    name: str
    operators: features.Operators
    policy: str | None = None


@dataclass(frozen=True)
class Result:
    """One setting over all seeds: mean accuracy and loss, sum of hits."""

    operators: str
    accuracy: float
    final_loss: float
    first_nan_steps: str
    nan_parameters: float
    forward_hits: int
    backward_hits: int
    error: str

    @property
    def is_sound(self) -> bool:
        return not self.error and self.nan_parameters == 0


def train(setting: Setting, digits: model.Digits, seed: int, epochs: int) -> Run:
    """Trains from scratch."""
    run = Run()
    torch.manual_seed(seed)
    classifier = features.FeatureClassifier(setting.operators)
    order = batches(len(digits.patches), seed, epochs)
    with observed(run, None, setting.policy):
        fit(run, classifier, digits, order, MOMENTUM)
    return run


def summarize(setting: Setting, runs: Sequence[Run]) -> Result:
    nan_steps = sorted({run.first_nan_step for run in runs if run.first_nan_step is not None})
    errors = [run.error for run in runs if run.error is not None]
    return Result(
        operators=setting.name,
        accuracy=fmean(run.accuracy for run in runs),
        final_loss=fmean(run.losses[-1] if run.losses else math.nan for run in runs),
        first_nan_steps=" ".join(map(str, nan_steps)),
        nan_parameters=fmean(run.nan_parameters for run in runs),
        forward_hits=sum(run.forward_hits for run in runs),
        backward_hits=sum(run.backward_hits for run in runs),
        error=errors[0] if errors else "",
    )


def print_table(results: Sequence[Result], seeds: int, console: Console) -> None:
    table = Table(
        title=f"Mean accuracy and loss, first step with a NaN parameter, hits (seeds: {seeds})",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("operators", no_wrap=True)
    for heading in ("test\naccuracy", "final\nloss", "first\nNaN step", "NaN\nparameters"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("hits\nforward", "hits\nbackward"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = max((result.accuracy for result in results if result.is_sound), default=math.nan)
    for result in results:
        is_best = result.is_sound and result.accuracy >= best - EQUAL_POINTS
        table.add_row(*_cells(result), style="green" if is_best else None)
    console.print(table)
    points = 100 * EQUAL_POINTS
    console.print(f"Green: no parameter is NaN, accuracy at most {points:g} point below the best.")
    for result in results:
        if result.error:
            sentence = f"{result.operators} stopped with: {result.error}"
            console.print(sentence, highlight=False, markup=False)


def _cells(result: Result) -> list[str]:
    measured = [
        f"{result.accuracy:.1%}",
        f"{result.final_loss:.3f}",
        result.first_nan_steps or "-",
        f"{result.nan_parameters:.1%}" if result.nan_parameters else "-",
    ]
    if result.error:
        measured = ["stopped", "-", "-", "-"]
    counts = [f"{result.forward_hits:,}", f"{result.backward_hits:,}"]
    if not result.operators.startswith("safeops"):
        counts = ["-", "-"]
    return [result.operators, *measured, *counts]
