"""A report as text, and the words that its views share."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from safeops import _remedies

if TYPE_CHECKING:
    from safeops._report import AuditedLine, Contents

MOST_WIDTH = 100
LEAST_WIDTH = 80
_MOST_LINES = 20

# Words that the views share.


def counted(number: int, word: str) -> str:
    """'1 row', '2,000 rows'."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def short_path(filename: str) -> str:
    """The path from the working directory, or from the folder that Python imports it from."""
    folders = [os.path.join(os.path.abspath(folder), "") for folder in (os.getcwd(), *sys.path)]
    inside = [filename[len(folder) :] for folder in folders if filename.startswith(folder)]
    return min([filename.rpartition("/site-packages/")[2], *inside], key=len)


def place(site: AuditedLine) -> str:
    return f"{short_path(site.filename)}:{site.lineno}"


def steps_of(site: AuditedLine) -> str:
    if site.first_step == site.last_step:
        return str(site.first_step)
    return f"{site.first_step:,}-{site.last_step:,}"


def gradient_of(site: AuditedLine) -> str:
    return "-" if site.largest_gradient is None else f"{site.largest_gradient:.3g}"


def counts_of(site: AuditedLine) -> str:
    """Rows, calls and steps, in a line."""
    steps = "step" if site.first_step == site.last_step else "steps"
    return (
        f"{site.forward:,} of {counted(site.rows, 'row')} forward and {site.backward:,} backward, "
        f"in {site.calls:,} of {counted(site.all_calls, 'call')}, at {steps} {steps_of(site)}"
    )


def details_of(site: AuditedLine) -> str:
    """Shapes, dtypes, policies and the first hit, in a line."""
    shapes = ", ".join(str(list(shape)) for shape in site.shapes)
    policies = " and ".join(f"'{policy}'" for policy in site.policies)
    return (
        f"{' and '.join(site.dtypes)} of shape {shapes}, policy {policies}; "
        f"first at step {site.first_step:,}, row {site.first_row:,}"
    )


def headline(contents: Contents) -> str:
    """What was found, in a line."""
    seen = (
        f"{counted(contents.rows, 'row')} in {counted(contents.calls, 'call')} of "
        f"{counted(contents.lines, 'line')}"
    )
    if not contents.sites and not contents.unattributed:
        if not contents.calls:
            return "no covered call was seen"
        return f"nothing singular was met: {seen}"
    found = (*contents.sites, *contents.unattributed)
    forward, backward = (sum(getattr(f, d) for f in found) for d in ("forward", "backward"))
    places = len({(site.filename, site.lineno) for site in contents.sites})
    return (
        f"{counted(forward, 'singular row')} forward and {backward:,} backward, on "
        f"{counted(places, 'line')}; seen: {seen}"
    )


def mode(contents: Contents) -> str:
    """Under which policy, over how many steps."""
    policy = "observed, nothing changed"
    if contents.policy is not None:
        policy = f"under policy '{contents.policy}'"
    return f"{policy}; {counted(contents.steps, 'optimizer step')}"


def unseen(contents: Contents) -> str:
    """What may have hit without being seen, in a line; empty under a policy."""
    if contents.policy is not None:
        return ""
    return (
        "not observed: compiled code, other threads, worker processes, fused kernels "
        "(safeops.patch.unreachable())"
    )


COLUMNS = (
    "line",
    "operator",
    "condition",
    "rows hit",
    "of seen",
    "backward",
    "steps",
    "|gradient|",
)


def row_of(site: AuditedLine) -> tuple[str, ...]:
    return (
        place(site),
        site.operator,
        site.condition,
        f"{site.forward:,}",
        f"{site.rows:,}",
        f"{site.backward:,}",
        steps_of(site),
        gradient_of(site),
    )


def text(contents: Contents, width: int) -> str:
    """The report as a table of at most `width` columns, with a paragraph for every line."""
    lines = textwrap.wrap(f"safeops audit ({mode(contents)}): {headline(contents)}", width)
    lines += textwrap.wrap(unseen(contents), width)
    sites = contents.sites[:_MOST_LINES]
    if sites:
        lines += ["", *_table(sites, width)]
    for number, site in enumerate(sites, 1):
        lines += ["", *_paragraph(number, site, width)]
    if len(sites) < len(contents.sites):
        lines += ["", f"... and {len(contents.sites) - len(sites)} more in report.sites"]
    for key in dict.fromkeys((site.operator, site.condition) for site in sites):
        lines += ["", f"policies at {key[1]} of {key[0]}:"]
        for policy, remedy in _remedies.remedies(*key).items():
            lines += _wrapped(f"  {policy:<9}", str(remedy), width)
    tail = [
        f"no line (compiled code, C++, other threads): {entry.operator} "
        f"{', '.join(entry.conditions)}: {entry.forward:,} forward, {entry.backward:,} backward"
        for entry in contents.unattributed
    ]
    tail += [
        f"notice: {notice.operator} {notice.condition}: {notice.count:,}"
        for notice in contents.notices
    ]
    for entry in tail:
        lines += [*([""] if entry is tail[0] else []), *textwrap.wrap(entry, width)]
    return "\n".join(lines)


# What a narrow table leaves out, in this order; the paragraphs have it, too.
_LEAVE_OUT = ("of seen", "steps", "backward")
_LEAST_PLACE = 12


def _table(sites: Sequence[AuditedLine], width: int) -> list[str]:
    import tabulate

    # The headers as a row: tabulate pads those that it knows of.
    rows = [("#", *COLUMNS), *((str(i), *row_of(site)) for i, site in enumerate(sites, 1))]
    for column in (None, *_LEAVE_OUT):
        if column is not None:
            rows = [_without(row, rows[0].index(column)) for row in rows]
        others = sum(max(map(len, cells)) + 2 for cells in zip(*rows, strict=True))
        others -= max(len(row[1]) for row in rows) + 2
        if width - others >= _LEAST_PLACE:
            break
    rows = [(row[0], _tail(row[1], max(width - others, _LEAST_PLACE)), *row[2:]) for row in rows]
    table = tabulate.tabulate(
        rows,
        tablefmt="plain",
        disable_numparse=True,
        colalign=("right", "left", "left", "left", *["right"] * (len(rows[0]) - 4)),
    )
    return [line.rstrip() for line in table.splitlines()]


def _without(row: tuple[str, ...], column: int) -> tuple[str, ...]:
    return row[:column] + row[column + 1 :]


def _tail(path: str, width: int) -> str:
    """The end of a path, which tells more than its beginning."""
    return path if len(path) <= width else "..." + path[3 - width :]


def _wrapped(first: str, words: str, width: int) -> list[str]:
    indent = " " * len(first)
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=indent) or [first]


def _paragraph(number: int, site: AuditedLine, width: int) -> list[str]:
    first = f"{number:>3}  "
    where = f"{place(site)} in {site.function}"
    if site.modules:
        where += f", module {', '.join(site.modules)}"
    lines = _wrapped(first, where, width)
    if site.source:
        lines.append(textwrap.shorten(f"> {site.source}", width - 5, placeholder=" ..."))
        lines[-1] = " " * 5 + lines[-1]
    lines += _wrapped(" " * 5, counts_of(site), width)
    lines += _wrapped(" " * 5, details_of(site), width)
    return lines + _wrapped(" " * 5, site.suggestion, width)
