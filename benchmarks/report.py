"""Machine, rows and tables of a benchmark run."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jax_peer
import torch
from comparisons import Comparison
from timing import Contender, Spread, spread

import safeops

HEADER = ("what", "peer", "product", "peer us", "product us", "ns/el", "ratio", "p5..p95", "goal")
WIDTHS = (54, 29, 14, 11, 11, 8, 8, 16, 10)
TEXT_COLUMNS = 3


@dataclass(frozen=True)
class Row:
    """One comparison with one peer. Times are seconds per call; ratios are peer / product, formed
    in every round."""

    group: str
    what: str
    threads: int
    elements: int
    peer: str
    product: str
    peer_seconds: Spread
    product_seconds: Spread
    ratio: Spread
    goal: float | None

    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            self.peer,
            self.product,
            f"{self.peer_seconds.median * 1e6:.1f}",
            f"{self.product_seconds.median * 1e6:.1f}",
            f"{self.product_seconds.median * 1e9 / self.elements:.3f}",
            f"{self.ratio.median:.2f}x",
            f"{self.ratio.p5:.2f}..{self.ratio.p95:.2f}",
            self.verdict(),
        )

    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return f"{self.goal:g}x {'met' if self.ratio.median >= self.goal else 'SHORT'}"


def rows(
    comparison: Comparison, contenders: Sequence[Contender], seconds: Sequence[Sequence[float]]
) -> list[Row]:
    product = seconds[-1]
    return [
        Row(
            comparison.group,
            comparison.what,
            comparison.threads,
            comparison.elements,
            peer.name,
            contenders[-1].name,
            spread(samples),
            spread(product),
            spread([theirs / ours for theirs, ours in zip(samples, product, strict=True)]),
            comparison.goal if position == 0 else None,
        )
        for position, (peer, samples) in enumerate(zip(contenders[:-1], seconds, strict=False))
    ]


def line(cells: Iterable[str]) -> str:
    padded = (
        f"{cell:<{width}}" if position < TEXT_COLUMNS else f"{cell:>{width}}"
        for position, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    )
    return " ".join(padded).rstrip()


def markdown(measured: Sequence[Row], machine: dict[str, str]) -> str:
    text = [f"- {key}: {value}" for key, value in machine.items()]
    text += ["", "| group | " + " | ".join(HEADER) + " |"]
    text += ["|---|---|---|---|" + "---:|" * 5 + "---|"]
    text += [f"| {row.group} | " + " | ".join(row.cells()) + " |" for row in measured]
    return "\n".join(text) + "\n"


def record(measured: Sequence[Row], machine: dict[str, str]) -> dict[str, object]:
    return {"machine": machine, "rows": [asdict(row) for row in measured]}


def machine(clock: str, rounds: int) -> dict[str, str]:
    heap = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("MALLOC_")]
    return {
        "CPU": f"{_cpu_name()}, {len(os.sched_getaffinity(0))} usable",
        "load average": f"{os.getloadavg()[0]:.1f} at the start",
        "torch": f"{torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}",
        "jax": jax_peer.version(),
        "config": "; ".join(" ".join(text.split()) for text in safeops.show_config().splitlines()),
        "heap": ", ".join(sorted(heap)) or "default",
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
        "method": f"median of {rounds} interleaved rounds, {clock} time",
    }


def _cpu_name() -> str:
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.processor() or platform.machine()
