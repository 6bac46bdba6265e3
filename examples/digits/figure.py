"""One figure: training loss and gradient norm at every step, median over the seeds."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from training import Run, Setting

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


def draw(runs: Mapping[Setting, Sequence[Run]], title: str, path: Path) -> None:
    figure = Figure(figsize=(11, 8), layout="constrained")
    loss_axes, norm_axes = figure.subplots(2, 1, sharex=True)
    ended = []
    for setting, group in runs.items():
        losses = _median([run.losses for run in group])
        if not any(map(math.isfinite, losses)):
            ended.append((setting, group[0]))
            continue
        style = STYLES[setting.name]
        steps = range(1, len(losses) + 1)
        loss_axes.plot(steps, losses, label=setting.name, **style)
        norms = _median([run.gradient_norms for run in group])
        norm_axes.plot(steps, norms, label=setting.name, **style)
    for place, (setting, run) in enumerate(ended):
        _mark_end(loss_axes, setting.name, run, 0.42 - 0.12 * place)

    figure.suptitle(title, fontsize=15)
    _label(loss_axes, "training loss")
    _label(norm_axes, "gradient norm of all parameters")
    norm_axes.set_xlabel("training step", fontsize=12)
    norm_axes.legend(loc="upper right", ncols=2, fontsize=12, handlelength=4, frameon=False)
    figure.savefig(path, dpi=130)


def _median(series: Sequence[Sequence[float]]) -> list[float]:
    return torch.tensor(series).median(0).values.tolist()


def _mark_end(axes: Axes, name: str, run: Run, height: float) -> None:
    """A run without a finite loss has no curve: a marker at its last step says what happened."""
    reason = "stopped by SingularityError" if run.error else "loss is NaN"
    step = 1 + next((i for i, loss in enumerate(run.losses) if math.isnan(loss)), len(run.losses))
    style = STYLES[name]
    transform = axes.get_xaxis_transform()
    axes.plot(step, height, transform=transform, markersize=9, linestyle="none", **style)
    axes.annotate(
        f"{name}: {reason} at step {step}",
        (step, height),
        xycoords=transform,
        xytext=(12, 0),
        fontsize=12,
        textcoords="offset points",
        verticalalignment="center",
        color=style["color"],
    )


def _label(axes: Axes, quantity: str) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set_ylabel(quantity, fontsize=12)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.tick_params(labelsize=11)
    axes.grid(which="major", color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
