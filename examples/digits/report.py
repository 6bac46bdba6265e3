"""Tables of the comparison: one for the terminal, one as CSV."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from training import Run, Setting

EQUAL_POINTS = 0.01


@dataclass(frozen=True)
class Result:
    """One setting over all seeds: mean accuracy and loss, largest gradient norm, sum of hits."""

    recipe: str
    normalize: str
    accuracy: float
    final_loss: float
    largest_gradient: float
    forward_hits: int
    backward_hits: int
    call_lines: str
    error: str


def summarize(setting: Setting, runs: Sequence[Run]) -> Result:
    norms = torch.tensor([norm for run in runs for norm in run.gradient_norms])
    errors = [run.error for run in runs if run.error is not None]
    return Result(
        recipe=setting.recipe.name,
        normalize=setting.name,
        accuracy=fmean(run.accuracy for run in runs),
        final_loss=fmean(run.losses[-1] if run.losses else math.nan for run in runs),
        # torch's maximum, because Python's max would lose a NaN.
        largest_gradient=norms.max().item() if len(norms) else math.nan,
        forward_hits=sum(run.forward_hits for run in runs),
        backward_hits=sum(run.backward_hits for run in runs),
        call_lines=" ".join(sorted(set().union(*(run.call_lines for run in runs)))),
        error=errors[0] if errors else "",
    )


def write_csv(results: Sequence[Any], path: Path) -> None:
    """One line per result, a dataclass, with its fields as columns."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(vars(results[0])))
        writer.writeheader()
        writer.writerows(vars(result) for result in results)


def print_table(results: Sequence[Result], seeds: int, console: Console) -> None:
    table = Table(
        title=f"Mean accuracy and loss, largest gradient norm, sum of hits (seeds: {seeds})",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("normalize", no_wrap=True)
    for heading in ("test\naccuracy", "final\nloss", "largest\ngradient", "hits\nforward"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("hits\nbackward", justify="right", no_wrap=True)
    table.add_column("call", no_wrap=True)

    for recipe, group in groupby(results, key=lambda result: result.recipe):
        members = list(group)
        table.add_row(f"[bold]{recipe}[/bold]")
        for result in members:
            table.add_row(*_cells(result), style="green" if result in _best(members) else None)
        table.add_section()
    console.print(table)
    _print_reading(results, console)


def _cells(result: Result) -> list[str]:
    hits = [f"{result.forward_hits:,}", f"{result.backward_hits:,}"]
    if result.normalize == "F.normalize":
        hits = ["-", "-"]
    measured = [
        f"{result.accuracy:.1%}",
        f"{result.final_loss:.3f}",
        f"{result.largest_gradient:.2g}",
    ]
    if result.error:
        measured = ["stopped", "-", "-"]
    return [f"  {result.normalize}", *measured, *hits, result.call_lines]


def _best(group: Sequence[Result]) -> list[Result]:
    """The results within EQUAL_POINTS of the group's best accuracy, of those that learned."""
    finished = [result for result in group if math.isfinite(result.final_loss)]
    best = max(result.accuracy for result in finished)
    return [result for result in finished if result.accuracy >= best - EQUAL_POINTS]


def _print_reading(results: Sequence[Result], console: Console) -> None:
    points = 100 * EQUAL_POINTS
    console.print(f"Best (green): at most {points:g} point below the top accuracy of the group.")
    for recipe, group in groupby(results, key=lambda result: result.recipe):
        members = list(group)
        names = [result.normalize for result in _best(members)]
        console.print(f"- {recipe}: {_verdict(members)} Best: {', '.join(names)}.", highlight=False)
    for result in results:
        if result.error:
            sentence = f"- {result.normalize} stopped with: {result.error}"
            console.print(sentence, highlight=False, markup=False)


def _verdict(group: Sequence[Result]) -> str:
    """One honest sentence about PyTorch's own normalize in this group."""
    stock = next(result for result in group if result.normalize == "F.normalize")
    hits = max(result.forward_hits for result in group)
    if stock not in _best(group):
        behind = max(result.accuracy for result in _best(group)) - stock.accuracy
        return f"stock is {100 * behind:.1f} points behind, its loss is {stock.final_loss:.3f}."
    if hits == 0:
        return "stock is just as good, no row is singular."
    return f"stock is just as good, although a gradient norm reaches {stock.largest_gradient:.1e}."
