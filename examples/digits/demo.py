"""Trains a digits classifier with PyTorch's normalize and with safeops under every policy.

More than a quarter of the image patches are blank, so they reach normalize as rows of norm zero.
"""

import argparse
from pathlib import Path

import figure
import model
import report
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from training import Recipe, Run, Setting, train

MOMENTUM = Recipe("SGD, momentum")
CLIPPED = Recipe("SGD, clipped to 1", clip=1.0)
ADAM = Recipe("Adam", adam=True)
DEFAULT_BIAS = Recipe("SGD, default bias", zero_bias=False)

SETTINGS = (
    Setting(MOMENTUM, None),
    Setting(MOMENTUM, "stock"),
    Setting(MOMENTUM, "epsilon", 1e-6),
    Setting(MOMENTUM, "epsilon", 1e-3),
    Setting(MOMENTUM, "epsilon", 0.1),
    Setting(MOMENTUM, "zero"),
    Setting(MOMENTUM, "nan"),
    Setting(MOMENTUM, "raise"),
) + tuple(
    Setting(recipe, policy)
    for recipe in (CLIPPED, ADAM, DEFAULT_BIAS)
    for policy in (None, "stock", "zero")
)


def main() -> None:
    arguments = parse_arguments()
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    # Batches this small gain nothing from a second thread, and on a busy machine they wait for it.
    torch.set_num_threads(1)
    digits = model.load()
    blank = (digits.patches == 0).all(-1)
    share = f"{blank.float().mean():.0%}"
    console.print(f"{blank.sum():,} of {blank.numel():,} training patches are blank ({share}).")
    runs = train_all(digits, arguments.seeds, arguments.epochs, console)
    results = [report.summarize(setting, runs[setting]) for setting in SETTINGS]
    report.print_table(results, arguments.seeds, console)

    arguments.output.mkdir(parents=True, exist_ok=True)
    report.write_csv(results, arguments.output / "digits.csv")
    shown = {setting: runs[setting] for setting in SETTINGS if setting.recipe is MOMENTUM}
    title = f"normalize on digit patches, {share} of them blank ({MOMENTUM.name})"
    figure.draw(shown, title, arguments.output / "digits.png")
    console.print(f"Figure: {arguments.output / 'digits.png'}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
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


def train_all(
    digits: model.Digits, seeds: int, epochs: int, console: Console
) -> dict[Setting, list[Run]]:
    name = TextColumn("{task.description}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), name)
    runs: dict[Setting, list[Run]] = {setting: [] for setting in SETTINGS}
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(SETTINGS) * seeds)
        for setting in SETTINGS:
            progress.update(task, description=f"{setting.name} ({setting.recipe.name})")
            for seed in range(seeds):
                runs[setting].append(train(setting, digits, seed, epochs))
                progress.advance(task)
    return runs


if __name__ == "__main__":
    main()
