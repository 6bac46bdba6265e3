"""One figure: training loss and gradient norm at every step, median over the seeds."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from training import Run

Style = Mapping[str, object]


def draw(
    runs: Mapping[str, Sequence[Run]], styles: Mapping[str, Style], title: str, path: Path
) -> None:
    figure = Figure(figsize=(11, 8), layout="constrained")
    loss_axes, norm_axes = figure.subplots(2, 1, sharex=True)
    ended = []
    for name, group in runs.items():
        losses = _median([run.losses for run in group])
        if any(run.error or any(map(math.isnan, run.losses)) for run in group):
            ended.append((name, len(losses) + 1, bool(group[0].error)))
            continue
        steps = range(1, len(losses) + 1)
        loss_axes.plot(steps, losses, label=name, **styles[name])
        norms = _median([run.gradient_norms for run in group])
        norm_axes.plot(range(1, len(norms) + 1), norms, label=name, **styles[name])
    for place, (name, step, stopped) in enumerate(reversed(ended)):
        reason = "stopped by SingularityError" if stopped else "loss is NaN"
        text = f"{name}: {reason} at step {step}"
        _mark_end(loss_axes, step, 0.06 + 0.1 * place, text, styles[name])

    figure.suptitle(title, fontsize=15)
    _label(loss_axes, "training loss")
    _label(norm_axes, "gradient norm of all parameters")
    norm_axes.set_xlabel("training step", fontsize=12)
    norm_axes.legend(loc="best", ncols=2, fontsize=12, handlelength=4, frameon=False)
    figure.savefig(path, dpi=130)


def _median(series: Sequence[Sequence[float]]) -> list[float]:
    """Median over the seeds at every step, up to where it is no number; an ended run counts as NaN,
    and NaN as larger than any number."""
    steps = itertools.zip_longest(*series, fillvalue=math.nan)
    middle = (len(series) - 1) // 2
    medians = (torch.tensor(values).sort().values[middle].item() for values in steps)
    return list(itertools.takewhile(math.isfinite, medians))


def _mark_end(axes: Axes, step: int, height: float, text: str, style: Style) -> None:
    """A run that broke has no curve worth drawing: a marker says where it broke, and how."""
    transform = axes.get_xaxis_transform()
    shown = {"markersize": 9, **style, "linestyle": "none"}
    axes.plot(step, height, transform=transform, **shown)
    axes.annotate(
        text,
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
