"""Trains a digits classifier with PyTorch's normalize and with safeops under every policy.

More than a quarter of the image patches are blank, so they reach normalize as rows of norm zero.
"""

import command
import figure
import model
import report
import torch
from training import Recipe, Setting, train

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


# Settings whose curves coincide stay visible: a wide pale line, then narrower dashes on top of it.
STYLES = {
    "F.normalize": {"color": "#f2a0a0", "linewidth": 6},
    "stock": {"color": "#b2182b", "linewidth": 2.5},
    "epsilon 1e-06": {"color": "#1a1a1a", "linewidth": 1.6, "linestyle": (0, (4, 4))},
    "epsilon 0.001": {"color": "#e08214", "linewidth": 1.8},
    "epsilon 0.1": {"color": "#2166ac", "linewidth": 1.8},
    "zero": {"color": "#1b9e4b", "linewidth": 1.8},
    "nan": {"color": "#7b3294", "marker": "X"},
    "raise": {"color": "#555555", "marker": "s"},
}


def main() -> None:
    arguments = command.parse_arguments(__doc__)
    console = command.wide_console()
    # Batches this small gain nothing from a second thread, and on a busy machine they wait for it.
    torch.set_num_threads(1)
    digits = model.load()
    blank = (digits.patches == 0).all(-1)
    share = f"{blank.float().mean():.0%}"
    console.print(f"{blank.sum():,} of {blank.numel():,} training patches are blank ({share}).")
    runs = command.train_all(
        SETTINGS,
        lambda setting: f"{setting.name} ({setting.recipe.name})",
        lambda setting, seed: train(setting, digits, seed, arguments.epochs),
        arguments.seeds,
        console,
    )
    results = [report.summarize(setting, runs[setting]) for setting in SETTINGS]
    report.print_table(results, arguments.seeds, console)

    arguments.output.mkdir(parents=True, exist_ok=True)
    report.write_csv(results, arguments.output / "digits.csv")
    shown = {setting.name: runs[setting] for setting in SETTINGS if setting.recipe is MOMENTUM}
    title = f"normalize on digit patches, {share} of them blank ({MOMENTUM.name})"
    figure.draw(shown, STYLES, title, arguments.output / "digits.png")
    console.print(f"Figure: {arguments.output / 'digits.png'}")


if __name__ == "__main__":
    main()
