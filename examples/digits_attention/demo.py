"""Trains a digits classifier whose attention pools the inked pixels of each quadrant.

A few quadrants are blank: their softmax has nothing to attend to. Compares what people write for
that with safeops.softmax(where=...) under every policy.
"""

import sys
from pathlib import Path

import attention
import torch

import safeops

# The digits, the training loop and the figure are those of the first demo.
sys.path.append(str(Path(__file__).resolve().parents[1] / "digits"))

import command
import comparison
import figure
import model
from comparison import Setting
from report import write_csv
from training import Recipe

MOMENTUM = Recipe("SGD, momentum")
ADAM = Recipe("Adam", adam=True)

SETTINGS = (
    Setting(MOMENTUM, "masked_fill", attention.masked_fill),
    Setting(MOMENTUM, "masked_fill, skip", attention.masked_fill, skips=True),
    Setting(MOMENTUM, "finfo.min fill", attention.finite_minimum),
    Setting(MOMENTUM, "added mask, where", attention.added_mask_then_where),
    Setting(MOMENTUM, "masked_fill, where", attention.masked_fill_then_where),
    *(
        Setting(MOMENTUM, f"safeops {policy}", safeops.softmax, policy)
        for policy in ("stock", "nan", "zero", "epsilon", "raise")
    ),
    Setting(ADAM, "masked_fill", attention.masked_fill),
    Setting(ADAM, "masked_fill, skip", attention.masked_fill, skips=True),
    Setting(ADAM, "finfo.min fill", attention.finite_minimum),
    Setting(ADAM, "safeops zero", safeops.softmax, "zero"),
)

# Settings whose curves coincide stay visible: a wide pale line, then narrower dashes on top of it.
STYLES = {
    "masked_fill": {"color": "#b2182b", "marker": "o"},
    "masked_fill, skip": {"color": "#e08214", "linewidth": 1.8},
    "finfo.min fill": {"color": "#2166ac", "linewidth": 1.8},
    "added mask, where": {"color": "#7a4a1a", "marker": "D"},
    "masked_fill, where": {"color": "#a6dbb5", "linewidth": 6},
    "safeops stock": {"color": "#d6604d", "marker": "v"},
    "safeops nan": {"color": "#7b3294", "marker": "X"},
    "safeops epsilon": {"color": "#1a1a1a", "linewidth": 1.6, "linestyle": (0, (4, 4))},
    "safeops zero": {"color": "#1b9e4b", "linewidth": 1.8},
    "safeops raise": {"color": "#555555", "marker": "s"},
}


def main() -> None:
    arguments = command.parse_arguments(__doc__)
    console = command.wide_console()
    # Batches this small gain nothing from a second thread, and on a busy machine they wait for it.
    torch.set_num_threads(1)
    digits = model.load(attention.QUADRANT)
    blank = (digits.patches == 0).all(-1)
    console.print(
        f"{blank.any(-1).sum():,} of {len(blank):,} training images have a blank quadrant; "
        f"{attention.HEADS} heads attend to each quadrant."
    )
    runs = command.train_all(
        SETTINGS,
        lambda setting: f"{setting.name} ({setting.recipe.name})",
        lambda setting, seed: comparison.train(setting, digits, seed, arguments.epochs),
        arguments.seeds,
        console,
    )
    results = [comparison.summarize(setting, runs[setting]) for setting in SETTINGS]
    comparison.print_table(results, arguments.seeds, console)

    arguments.output.mkdir(parents=True, exist_ok=True)
    write_csv(results, arguments.output / "digits_attention.csv")
    shown = {setting.name: runs[setting] for setting in SETTINGS if setting.recipe is MOMENTUM}
    title = f"attention over the inked pixels of a quadrant ({MOMENTUM.name})"
    path = arguments.output / "digits_attention.png"
    figure.draw(shown, STYLES, title, path)
    console.print(f"Figure: {path}")


if __name__ == "__main__":
    main()
