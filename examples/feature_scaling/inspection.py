"""What one batch shows: where NaN is, which lines were singular, what a safe gradient costs."""

import linecache
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import features
import model
import torch
import torch.nn.functional as F
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

import safeops

ROUNDS = 15
ELEMENTS = 1 << 20
ZERO_SHARE = 0.01


def bend_gradient(operators: features.Operators, digits: model.Digits, batch: Tensor) -> Tensor:
    """The gradient of the tone curves in the first step of seed 0."""
    torch.manual_seed(0)
    classifier = features.FeatureClassifier(operators)
    F.cross_entropy(classifier(digits.patches[batch]), digits.labels[batch]).backward()
    return classifier.bend.grad


def print_place(digits: model.Digits, batch: Tensor, console: Console) -> None:
    """The features that policy 'nan' marks, before the mask takes them out."""
    classifier = features.FeatureClassifier(features.SAFEOPS)
    with torch.no_grad(), safeops.policy("nan"):
        ink = classifier.tone(digits.patches[batch].squeeze(1))
        scores, _ = classifier.scores(ink)
        ratios, _ = classifier.log_ratios(ink)
    marked = scores.isnan().all(0).view(features.IMAGE, features.IMAGE)
    images = ratios.isnan().sum(0)
    console.print(
        f"NaN under 'nan' in one batch of {len(batch)}: the pixels whose score is NaN in every "
        "image (#),\nand beside each row the number of images whose log ratio is",
        highlight=False,
    )
    for pixels, count in zip(marked.tolist(), images.tolist(), strict=True):
        row = " ".join("#" if pixel else "." for pixel in pixels)
        console.print(f"  {row}   {count:2}", highlight=False)


def print_lines(digits: model.Digits, batch: Tensor, console: Console) -> None:
    """The calls that met singular elements in one step under 'zero'."""
    safeops.diagnostics.reset()
    with safeops.policy("zero"):
        bend_gradient(features.SAFEOPS, digits, batch)
    table = Table(
        title=f"Singular elements of one batch of {len(batch)} under 'zero', by line of the call",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("line", "call", "condition"):
        table.add_column(heading, no_wrap=True)
    for heading in ("forward", "backward"):
        table.add_column(heading, justify="right", no_wrap=True)
    sites = safeops.diagnostics.snapshot().sites
    for site in sorted(sites, key=lambda site: site.lineno):
        code = linecache.getline(site.filename, site.lineno).strip()
        place = f"{Path(site.filename).name}:{site.lineno}"
        counts = f"{site.forward:,}", f"{site.backward:,}"
        table.add_row(place, code, site.condition, *counts)
    console.print(table)


def print_recipe(digits: model.Digits, batch: Tensor, console: Console) -> None:
    """The double-where recipe beside policy 'zero': same numbers, other cost."""
    with safeops.policy("zero"):
        ours = bend_gradient(features.SAFEOPS, digits, batch)
    theirs = bend_gradient(features.DOUBLE_WHERE, digits, batch)
    difference = (ours - theirs).abs().max() / theirs.abs().max()
    console.print(
        f"Double where and safeops zero: gradients of the tone curves differ by {difference:.1e} "
        "of the largest."
    )
    seconds = _step_seconds()
    table = Table(
        title=f"a / b with {ZERO_SHARE:.0%} zeros in b, {ELEMENTS:,} elements, value and gradients",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("operators", no_wrap=True)
    table.add_column("ms", justify="right")
    table.add_column("gradient", justify="right")
    for name, (milliseconds, is_finite) in seconds.items():
        table.add_row(name, f"{milliseconds:.2f}", "finite" if is_finite else "NaN")
    console.print(table)


def _step_seconds() -> dict[str, tuple[float, bool]]:
    """Median milliseconds of interleaved rounds, and whether the gradients are finite."""
    generator = torch.Generator().manual_seed(0)
    a, b, incoming = (torch.randn(ELEMENTS, generator=generator) for _ in range(3))
    b[torch.rand(ELEMENTS, generator=generator) < ZERO_SHARE] = 0
    regular = b != 0
    inputs = a.requires_grad_(), b.requires_grad_()

    def masked(divide: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
        quotient = torch.where(regular, divide(*inputs), 0.0)
        return torch.autograd.grad(quotient, inputs, incoming)

    contenders = {
        "torch, mask after": lambda: masked(torch.div),
        "double where": lambda: torch.autograd.grad(
            features.DOUBLE_WHERE.div(*inputs), inputs, incoming
        ),
        "safeops zero": lambda: torch.autograd.grad(
            safeops.div(*inputs, policy="zero"), inputs, incoming
        ),
    }
    finite = {
        name: all(bool(gradient.isfinite().all()) for gradient in call())
        for name, call in contenders.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            samples[name].append(1e3 * (time.perf_counter() - start))
    return {name: (statistics.median(samples[name]), finite[name]) for name in contenders}
