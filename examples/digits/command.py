"""The command line that the digits demos share: options, and progress while they train."""

import argparse
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from training import Run

AnySetting = TypeVar("AnySetting", bound=Hashable)


def parse_arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=positive, default=15)
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--output", type=Path, default=Path("build/demo"), metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="one epoch of one seed")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs = arguments.seeds = 1
    return arguments


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def wide_console() -> Console:
    """The terminal, or 100 columns where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=100)


def train_all(
    settings: Sequence[AnySetting],
    name: Callable[[AnySetting], str],
    train: Callable[[AnySetting, int], Run],
    seeds: int,
    console: Console,
) -> dict[AnySetting, list[Run]]:
    """Calls `train(setting, seed)` for every setting and seed."""
    text = TextColumn("{task.description}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), text)
    runs: dict[AnySetting, list[Run]] = {setting: [] for setting in settings}
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(settings) * seeds)
        for setting in settings:
            progress.update(task, description=name(setting))
            for seed in range(seeds):
                runs[setting].append(train(setting, seed))
                progress.advance(task)
    return runs
