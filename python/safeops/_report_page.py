"""A report as a page of HTML, as a fragment for notebooks, and as plots."""

from __future__ import annotations

import io
import linecache
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeops import _remedies, _report_text
from safeops._report import AuditedLine, Contents
from safeops._steps import HitsPerStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SITES_IN_A_PLOT = 7
_CONTEXT_LINES = 2
_MOST_ROWS_IN_A_FRAGMENT = 20
_NEEDS_MATPLOTLIB = (
    "safeops.Report.plot: plots need matplotlib, which is not installed; "
    "pip install safeops[report]"
)
# Okabe and Ito's palette, which colour-blind readers can tell apart, without its black and yellow;
# grey for the rest.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7ad8")
_REST = "#888888"
# Stands for the colour of text, which only the page knows.
_INK = "#010203"


def _template(name: str) -> Any:
    import jinja2

    folder = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    environment = jinja2.Environment(
        loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "place": _report_text.place,
        "steps_of": _report_text.steps_of,
        "gradient_of": _report_text.gradient_of,
        "counts_of": _report_text.counts_of,
        "details_of": _report_text.details_of,
        "frames_of": frames_of,
        "row_of": _report_text.row_of,
        "columns": _report_text.COLUMNS,
        "source_around": source_around,
    }
    return environment.get_template(name)


def page(contents: Contents) -> str:
    """The report as one page that needs nothing else."""
    keys = dict.fromkeys((site.operator, site.condition) for site in contents.sites)
    plots = _svg_plots(contents) if contents.sites else ()
    return str(
        _template("report.html").render(
            contents=contents,
            headline=_report_text.headline(contents),
            mode=_report_text.mode(contents),
            unseen=_report_text.unseen(contents),
            plots=plots,
            remedies={key: _remedies.remedies(*key) for key in keys},
            total=lambda direction: sum(
                getattr(found, direction) for found in (*contents.sites, *contents.unattributed)
            ),
        )
    )


def fragment(contents: Contents) -> str:
    """The table alone, for a notebook."""
    return str(
        _template("report_fragment.html").render(
            contents=contents,
            headline=_report_text.headline(contents),
            mode=_report_text.mode(contents),
            unseen=_report_text.unseen(contents),
            most=_MOST_ROWS_IN_A_FRAGMENT,
        )
    )


def source_around(site: AuditedLine) -> list[tuple[int, str]]:
    """Numbers and texts of the line and its neighbours; nothing where the file cannot be read."""
    lines = linecache.getlines(site.filename)
    if not lines:
        return []
    first = max(site.lineno - _CONTEXT_LINES, 1)
    return [
        (number, lines[number - 1].rstrip())
        for number in range(first, min(site.lineno + _CONTEXT_LINES, len(lines)) + 1)
    ]


def frames_of(site: AuditedLine) -> list[str]:
    """The stack as lines of text, without the frames in which Python starts a module."""
    return [
        f"{_report_text.short_path(frame.filename)}:{frame.lineno} in {frame.function}"
        for frame in site.stack
        if not frame.filename.startswith("<frozen ")
    ]


def plot(contents: Contents, axes: Sequence[Axes] | None) -> Sequence[Axes]:
    """Rows hit over the steps, and per line, on two axes."""
    try:
        if axes is None:
            from matplotlib import pyplot

            _, axes = pyplot.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
        _draw_steps(contents, axes[0])
        _draw_sites(contents, axes[1])
    except ModuleNotFoundError as error:
        raise ImportError(_NEEDS_MATPLOTLIB) from error
    return axes


def _svg_plots(contents: Contents) -> tuple[str, ...]:
    """Both plots as elements of a page; nothing without matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return ()
    drawn = []
    settings = {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), _INK),
        **dict.fromkeys(("xtick.color", "ytick.color"), _INK),
    }
    for draw in (_draw_steps, _draw_sites):
        # The salt makes the names of clip paths a function of the report.
        with matplotlib.rc_context(settings | {"svg.hashsalt": "safeops"}):
            figure = Figure(figsize=(5.6, 3.0), layout="constrained")
            draw(contents, figure.add_subplot())
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        drawing = buffer.getvalue()
        drawing = drawing[drawing.index("<svg") :].replace(_INK, "currentColor")
        drawing = re.sub(r" font-family: [^;\"]*;", "", drawing)  # that of the page
        # Both have a figure_1, and a page has every name once.
        drawn.append(re.sub(r'(\bid="|href="#|url\(#)', rf"\1{draw.__name__[1:]}_", drawing))
    return tuple(drawn)


def _shown(contents: Contents) -> list[AuditedLine]:
    """The lines with the most hits, in the order of the report."""
    most = sorted(contents.sites, key=lambda site: site.forward + site.backward, reverse=True)
    kept = most[:_MOST_SITES_IN_A_PLOT]
    return [site for site in contents.sites if any(site is one for one in kept)]


def _label(site: AuditedLine) -> str:
    return f"{Path(site.filename).name}:{site.lineno} {site.operator}"


def _draw_steps(contents: Contents, axes: Axes) -> None:
    shown = _shown(contents)
    width = max((site.hits_per_step.width for site in contents.sites), default=1)
    series = [
        (_label(site), colour, site.hits_per_step.coarsened(width))
        for site, colour in zip(shown, _COLOURS, strict=False)
    ]
    rest = [site for site in contents.sites if not any(site is one for one in shown)]
    if rest:
        series.append((f"{len(rest)} more", _REST, _sum(rest, width)))
    bottom = [0] * max((len(hits.counts) for _, _, hits in series), default=0)
    # A bar of one step stands on its number, one of several begins at its first.
    align = "center" if width == 1 else "edge"
    for label, colour, hits in series:
        counts = [*hits.counts, *[0] * (len(bottom) - len(hits.counts))]
        starts = [width * i for i in range(len(counts))]
        axes.bar(starts, counts, width * 0.9, bottom=bottom, align=align, color=colour, label=label)
        bottom = [below + count for below, count in zip(bottom, counts, strict=True)]
    if series:
        _legend(axes)
    axes.set_xlim(-0.5 * width, max(contents.steps, width * len(bottom)) + 0.5 * (width - 1))
    axes.set_title("rows hit, forward and backward, per optimizer step", fontsize="medium")
    axes.set_xlabel("optimizer step" if width == 1 else f"optimizer step, {width} to a bar")
    _tidy(axes, axes.xaxis, axes.yaxis)


def _sum(sites: Sequence[AuditedLine], width: int) -> HitsPerStep:
    coarse = [site.hits_per_step.coarsened(width).counts for site in sites]
    longest = max(len(counts) for counts in coarse)
    return HitsPerStep(
        width,
        tuple(sum(counts[i] for counts in coarse if i < len(counts)) for i in range(longest)),
    )


def _draw_sites(contents: Contents, axes: Axes) -> None:
    from matplotlib.patches import Patch

    shown = _shown(contents)
    colours = _COLOURS[: len(shown)]
    forward = [site.forward for site in shown]
    backward = [site.backward for site in shown]
    axes.barh(range(len(shown)), forward, 0.6, color=colours)
    axes.barh(range(len(shown)), backward, 0.6, left=forward, color=colours, alpha=0.45)
    axes.set_yticks(range(len(shown)), [_label(site) for site in shown])
    axes.set_ylim(max(len(shown), 3) - 0.5, -0.5)  # the first on top; few bars stay slender
    # Every line has a colour of its own, so the legend shows but how strong it is.
    _legend(
        axes,
        [Patch(color=_REST, label="forward"), Patch(color=_REST, alpha=0.45, label="backward")],
    )
    axes.set_title("rows hit per line", fontsize="medium")
    axes.set_xlabel("rows")
    _tidy(axes, axes.xaxis)


def _legend(axes: Axes, handles: Sequence[Any] | None = None) -> None:
    axes.legend(
        handles=handles,
        frameon=False,
        fontsize="small",
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        ncols=2,
    )


def _tidy(axes: Axes, *of_whole_numbers: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in of_whole_numbers:
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
