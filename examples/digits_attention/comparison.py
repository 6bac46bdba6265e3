"""One setting of the comparison, how it is trained, and the table of all of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

import attention
import model
import torch
from report import EQUAL_POINTS
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor
from training import Recipe, Run, batches, fit, observed


@dataclass(frozen=True)
class Setting:
    """One line of the table; `skips` leaves out the batches whose loss is not finite."""

    recipe: Recipe
    name: str
    softmax: Callable[..., Tensor]
    policy: str | None = None
    skips: bool = False


@dataclass(frozen=True)
class Result:
    """One setting over all seeds: mean accuracy and loss, sums of the counts."""

    recipe: str
    softmax: str
    accuracy: float
    final_loss: float
    first_nan_steps: str
    nan_parameters: float
    skipped: float
    nan_answers: int
    forward_hits: int
    backward_hits: int
    call_lines: str
    error: str


def train(setting: Setting, digits: model.Digits, seed: int, epochs: int) -> Run:
    """Trains from scratch."""
    run = Run()
    torch.manual_seed(seed)
    classifier = attention.QuadrantClassifier(setting.softmax)
    order = batches(len(digits.patches), seed, epochs)
    with observed(run, "softmax", setting.policy):
        fit(run, classifier, digits, order, setting.recipe, setting.skips)
    return run


def summarize(setting: Setting, runs: Sequence[Run]) -> Result:
    nan_steps = sorted({run.first_nan_step for run in runs if run.first_nan_step is not None})
    batches_seen = sum(run.skipped_batches + len(run.losses) for run in runs)
    errors = [run.error for run in runs if run.error is not None]
    return Result(
        recipe=setting.recipe.name,
        softmax=setting.name,
        accuracy=fmean(run.accuracy for run in runs),
        final_loss=fmean(run.losses[-1] if run.losses else math.nan for run in runs),
        first_nan_steps=" ".join(map(str, nan_steps)),
        nan_parameters=fmean(run.nan_parameters for run in runs),
        skipped=sum(run.skipped_batches for run in runs) / batches_seen if batches_seen else 0.0,
        nan_answers=sum(run.nan_answers for run in runs),
        forward_hits=sum(run.forward_hits for run in runs),
        backward_hits=sum(run.backward_hits for run in runs),
        call_lines=" ".join(sorted(set().union(*(run.call_lines for run in runs)))),
        error=errors[0] if errors else "",
    )


def print_table(results: Sequence[Result], seeds: int, console: Console) -> None:
    table = Table(
        title=f"Mean accuracy, first steps with a NaN parameter, sums of hits (seeds: {seeds})",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("softmax", no_wrap=True)
    headings = ("test\naccuracy", "first\nNaN step", "batches\nskipped")
    for heading in (*headings, "NaN\nanswers", "hits\nforward", "hits\nbackward"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("call", no_wrap=True)
    for recipe, group in groupby(results, key=lambda result: result.recipe):
        members = list(group)
        table.add_row(f"[bold]{recipe}[/bold]")
        for result in members:
            table.add_row(*_cells(result), style="green" if result in _best(members) else None)
        table.add_section()
    console.print(table)
    points = 100 * EQUAL_POINTS
    console.print(
        f"Green: no parameter and no answer is NaN, accuracy at most {points:g} point below the "
        "group's best."
    )
    for result in results:
        if result.error:
            sentence = f"- {result.softmax} stopped with: {result.error}"
            console.print(sentence, highlight=False, markup=False)


def _cells(result: Result) -> list[str]:
    counts = [f"{result.forward_hits:,}", f"{result.backward_hits:,}"]
    if not result.softmax.startswith("safeops"):
        counts = ["-", "-"]
    measured = [
        f"{result.accuracy:.1%}",
        _range(result.first_nan_steps),
        f"{result.skipped:.0%}" if result.skipped else "-",
        f"{result.nan_answers:,}" if result.nan_answers else "-",
    ]
    if result.error:
        measured = ["stopped", "-", "-", "-"]
    return [f"  {result.softmax}", *measured, *counts, result.call_lines]


def _range(steps: str) -> str:
    first, *others = steps.split() or ["-"]
    return f"{first}..{others[-1]}" if others else first


def _best(group: Sequence[Result]) -> list[Result]:
    """The results within EQUAL_POINTS of the best accuracy, of those without a NaN."""
    sound = [
        result
        for result in group
        if not (result.error or result.nan_parameters or result.nan_answers)
    ]
    best = max((result.accuracy for result in sound), default=math.nan)
    return [result for result in sound if result.accuracy >= best - EQUAL_POINTS]
