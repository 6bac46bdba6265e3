"""Tables of the post-mortem, the chain of its last part, and what the counts can tell."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from itertools import groupby, zip_longest

from neuraldbg import SemanticEvent
from rich import box
from rich.console import Console
from rich.table import Table
from training import Run, Setup

SHOWN_LINKS = 6
TROUBLE = {
    "exploding": "exploding",
    "vanishing": "vanishing",
    "nan_detected": "NaN",
    "diverging": "diverging",
}


def print_setup(
    setup: Setup,
    alone: Mapping[str, Run],
    fed: Mapping[str, Run],
    published: Mapping[str, str],
    console: Console,
) -> None:
    table = Table(
        title=f"{setup.name.capitalize()}: NeuralDBG's anomalies/events, alone and with safeops",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("run", no_wrap=True)
    if published:
        table.add_column("post", justify="right", no_wrap=True)
    for heading in ("alone", "with\nsafeops", "singular\nrows", "largest\ngradient", "last\nloss"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("states entered")
    for name, run in alone.items():
        cells = [name]
        if published:
            cells.append(published.get(name, ""))
        cells += [run.count, fed[name].count, _rows(fed[name]), *_outcome(run), _states(run)]
        table.add_row(*cells)
    console.print(table)
    for sentence in _reading(alone, fed):
        console.print(f"- {sentence}", highlight=False, markup=False)
    console.print()


def _rows(run: Run) -> str:
    return f"{run.rows} / {run.backward_rows}"


def _outcome(run: Run) -> tuple[str, str]:
    if run.error is not None:
        return "-", "stopped"
    return f"{run.largest_gradient:.1e}", f"{run.losses[-1]:.3f}"


def _states(run: Run) -> str:
    """How often the states of real trouble were entered, baselines included."""
    states = Counter(event.to_state for event in run.events)
    return ", ".join(f"{name} {states[state]}" for state, name in TROUBLE.items() if states[state])


def _reading(alone: Mapping[str, Run], fed: Mapping[str, Run]) -> list[str]:
    """What this setup's figures say, taken from the figures."""
    stock, zero = alone["F.normalize"], alone["policy zero"]
    watched = fed["F.normalize"]
    sentences = []
    if watched.rows == 0:
        sentences.append(
            "No row that reaches normalize is zero here: the bias of layer norm, which the healthy "
            "step has moved, fills the zero batch first. The counts are the published ones, and "
            "normalize has no part in them."
        )
    else:
        sentences.append(
            f"normalize met {watched.rows} zero rows. NeuralDBG alone has no word for them; with "
            f"safeops there are {len(watched.events) - len(stock.events)} events more."
        )
    same = [name for name, run in alone.items() if _is_same_count(run, stock, name)]
    if same:
        sentences.append(
            f"{stock.count} is the count of F.normalize and also of {', '.join(same)}: a count "
            "cannot tell the fault from its repair."
        )
    if watched.rows and _gradient(zero) < _gradient(stock):
        sentences.append(
            f"What differs is the gradient ({stock.largest_gradient:.1e}, under zero "
            f"{zero.largest_gradient:.1e}) and the states: compare these and the lines, not how "
            "many events there are."
        )
    if zero.largest_gradient > 1e3 and watched.rows:
        sentences.append(
            "What is left of it under zero is not of normalize: layer norm multiplies the gradient "
            "of a row without spread by 1 / sqrt(1e-5) = 316, once per layer."
        )
    repaired = alone["repair of the post"]
    if not math.isfinite(repaired.losses[-1]):
        sentences.append(
            f"The repair of the post ({repaired.count}) marks single elements: the loss is NaN, "
            "so it shows the place and trains nothing."
        )
    if "the repair, always" in alone:
        sentences.append(
            f"In force from the first step ({alone['the repair, always'].count}) it also turns "
            "healthy rows into NaN, because ReLU leaves zeros in them; the published count needs "
            "it to come in with the zero batch."
        )
    stopped = fed["policy raise"]
    if stopped.error:
        sentences.append(f"raise stops at {stopped.error}")
    return sentences


def _is_same_count(run: Run, stock: Run, name: str) -> bool:
    repairs = name != "policy stock" and name != "F.normalize"
    return repairs and run.error is None and run.count == stock.count


def _gradient(run: Run) -> float:
    return math.inf if math.isnan(run.largest_gradient) else run.largest_gradient


def print_chain(alone: Run, fed: Run, console: Console) -> None:
    table = Table(
        title="F.normalize, what turned wrong first (+: neighbours that say the same)",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("NeuralDBG alone", "with safeops"):
        table.add_column(heading)
    links = [_links(run)[:SHOWN_LINKS] for run in (alone, fed)]
    for row in zip_longest(*links, fillvalue=""):
        table.add_row(*row)
    console.print(table)
    console.print('explain_failure("data_anomaly") begins with')
    for name, run in (("alone", alone), ("with safeops", fed)):
        first = run.data_anomalies[0] if run.data_anomalies else "nothing"
        console.print(f"  {name + ':':14}{first}", highlight=False, markup=False)
    console.print("and the mermaid graph shows the line between the layers before and behind it:")
    for edge in _edges_around(fed.graph, "model.py:"):
        console.print(f"  {edge}", highlight=False, markup=False)


def _links(run: Run) -> list[str]:
    """Anomalies in order without recoveries, neighbours that say the same of layers as one."""
    texts = []
    wrong = [event for event in run.anomalies if event.to_state not in ("normal", "healthy")]
    for _, group in groupby(wrong, _kind):
        events = list(group)
        first = events[0]
        more = f" +{len(events) - 1}" if len(events) > 1 else ""
        texts.append(f"step {first.step}: {first.layer_name}{more} {first.to_state}")
    return texts


def _kind(event: SemanticEvent) -> tuple[object, ...]:
    return event.event_type, event.to_state, event.step


def _edges_around(graph: str, label: str) -> list[str]:
    """The edges of a mermaid graph at the first node whose label contains the text."""
    labels = dict(re.findall(r'(E_\w+)\["(.*?)"\]', graph))
    node = next((name for name, text in labels.items() if label in text), None)
    edges = re.findall(r"(E_\w+) --> (E_\w+)", graph)
    return [f"{labels[a]} --> {labels[b]}" for a, b in edges if node in (a, b)]
