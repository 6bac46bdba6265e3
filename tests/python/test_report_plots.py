"""The plots of a report: every count in its place."""

from __future__ import annotations

import pytest

from safeops._report import Report
from safeops._steps import HitsPerStep
from test_report import FULL, contents, site


def heights(axes) -> list[list[float]]:
    return [[bar.get_height() for bar in container] for container in axes.containers]


def test_the_plots_show_the_counts() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots(1, 2)
    assert Report(contents(site(), site(lineno=9, forward=1, backward=2))).plot(axes) is axes
    assert heights(axes[0]) == [[0, 0, 0, 8, 8, 7]] * 2
    bars = [[bar.get_width() for bar in container] for container in axes[1].containers]
    assert bars == [[12, 1], [11, 2]]
    assert [label.get_text() for label in axes[1].get_yticklabels()] == [
        "model.py:41 normalize",
        "model.py:9 normalize",
    ]


def test_plots_of_different_widths_and_many_lines_add_up() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots(1, 2)
    sites = [site(forward=100 - i) for i in range(9)]
    sites.append(site(forward=1000, hits_per_step=HitsPerStep(4, (2, 5))))
    Report(contents(*sites)).plot(axes)
    assert len(axes[0].containers) == 8
    assert sum(map(sum, heights(axes[0]))) == 9 * 23 + 7
    assert axes[0].get_legend_handles_labels()[1][-1] == "3 more"


def test_a_plot_makes_its_own_figure() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    axes = Report(FULL).plot()
    assert len(axes) == 2
    pyplot.close(axes[0].figure)
