"""Trains a digits classifier on scaled features: a z-score of every pixel and log ratios of ink.

Blank pixels have no spread and blank half rows have no ink, so both divide by zero, and a learned
tone curve lies below the division. Compares what people write for that with safeops.
"""

import sys
from pathlib import Path

import torch

# The digits and the training loop are those of the first demo.
sys.path.append(str(Path(__file__).resolve().parents[1] / "digits"))

import command
import comparison
import features
import inspection
import model
from comparison import Setting
from report import write_csv
from training import batches

SETTINGS = (
    Setting("torch, mask after", features.TORCH),
    Setting("nan_to_num, mask", features.NAN_TO_NUM),
    Setting("added eps, mask", features.ADDED_EPS),
    Setting("double where", features.DOUBLE_WHERE),
    *(
        Setting(f"safeops {policy}", features.SAFEOPS, policy)
        for policy in ("stock", "nan", "epsilon", "zero", "raise")
    ),
)


def main() -> None:
    arguments = command.parse_arguments(__doc__)
    console = command.wide_console()
    # Batches this small gain nothing from a second thread, and on a busy machine they wait for it.
    torch.set_num_threads(1)
    digits = model.load(features.IMAGE)
    runs = command.train_all(
        SETTINGS,
        lambda setting: setting.name,
        lambda setting, seed: comparison.train(setting, digits, seed, arguments.epochs),
        arguments.seeds,
        console,
    )
    results = [comparison.summarize(setting, runs[setting]) for setting in SETTINGS]
    comparison.print_table(results, arguments.seeds, console)

    first_batch = next(batches(len(digits.patches), seed=0, epochs=1))
    for show in (inspection.print_place, inspection.print_lines, inspection.print_recipe):
        console.print()
        show(digits, first_batch, console)

    arguments.output.mkdir(parents=True, exist_ok=True)
    write_csv(results, arguments.output / "feature_scaling.csv")
    console.print(f"Table: {arguments.output / 'feature_scaling.csv'}")


if __name__ == "__main__":
    main()
