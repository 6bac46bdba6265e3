"""Compares safeops with PyTorch in one process: ratios from interleaved rounds.

Usage: python benchmarks/bench.py [--family NAME] [--only TEXT] [--quick] [--compile] [--jax]
           [--markdown FILE]

Restarts itself under allocator settings that keep freed memory mapped (--heap default: as it is),
so that kernels are compared and not page faults.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from comparisons import Comparison
    from report import Row
    from timing import Plan

ROOT = Path(__file__).resolve().parents[1]

WARM_HEAP = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 25),
}
FAMILIES = ("normalize", "softmax", "division", "diagnostics")
CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--family", choices=FAMILIES, action="append", help="all if left out")
    parser.add_argument("--only", default="", metavar="TEXT", help="comparisons that contain TEXT")
    parser.add_argument("--quick", action="store_true", help="small sizes: tries the benchmark")
    parser.add_argument("--compile", action="store_true", help="also beside torch.compile")
    parser.add_argument("--jax", action="store_true", help="also beside JAX's jit, if installed")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds, at least 2")
    parser.add_argument("--heap", choices=("warm", "default"), default="warm")
    parser.add_argument(
        "--clock",
        choices=tuple(CLOCKS),
        default="wall",
        help="thread: CPU time of the calling thread, one-thread comparisons only; for a machine "
        "that others use",
    )
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "bench.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    if chosen.rounds < 2:
        parser.error(f"--rounds must be at least 2, got {chosen.rounds}")
    return chosen


def restart_with_heap(heap: str) -> None:
    """malloc reads its settings once, when the process starts."""
    wanted = {name: value for name, value in os.environ.items() if name not in WARM_HEAP}
    if heap == "warm":
        wanted |= WARM_HEAP
    # Idle threads that spin would take the core that the next comparison runs on.
    wanted.setdefault("OMP_WAIT_POLICY", "passive")
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted)


def run(chosen: argparse.Namespace) -> dict[str, object]:
    import report
    from timing import Plan

    machine = report.machine(chosen.clock, chosen.rounds)
    for key, value in machine.items():
        print(f"{key:<15} {value}")
    print("\n" + report.line(report.HEADER))

    clock = CLOCKS[chosen.clock]
    plan = (
        Plan(chosen.rounds, 0.0, clock, 0.0) if chosen.quick else Plan(chosen.rounds, 0.005, clock)
    )
    cpus = os.sched_getaffinity(0)
    gc.freeze()  # what was imported; the collection before each measurement need not walk it
    measured: list[report.Row] = []
    for comparison in comparisons(chosen):
        if chosen.only not in f"{comparison.group}: {comparison.what}":
            continue
        if chosen.clock == "thread" and comparison.threads > 1:
            continue
        if not measured or measured[-1].group != comparison.group:
            print(f"-- {comparison.group}")
        for row in compare(comparison, plan, cpus):
            measured.append(row)
            print(report.line(row.cells()), flush=True)
    if not measured:
        sys.exit(f"bench: no comparison contains {chosen.only!r}")
    if chosen.markdown:
        chosen.markdown.write_text(report.markdown(measured, machine))
    return report.record(measured, machine)


def comparisons(chosen: argparse.Namespace) -> Iterator[Comparison]:
    import diagnostics
    import division
    import jax_peer
    import normalize
    import softmax
    from comparisons import Fused, smaller

    rooms = {
        "normalize": normalize,
        "softmax": softmax,
        "division": division,
        "diagnostics": diagnostics,
    }
    fused = Fused(torch=chosen.compile, jax=chosen.jax and jax_peer.is_installed())
    sized = smaller if chosen.quick else lambda shape: shape
    for family in chosen.family or FAMILIES:
        yield from rooms[family].comparisons(sized, not chosen.quick, fused)


def compare(comparison: Comparison, plan: Plan, cpus: set[int]) -> list[Row]:
    import report
    import torch
    from timing import measure

    # One thread stays on one CPU; the last, since the first serves most interrupts.
    os.sched_setaffinity(0, cpus if comparison.threads > 1 else {max(cpus)})
    torch.set_num_threads(comparison.threads)
    torch.manual_seed(0)
    contenders = comparison.contenders()
    return report.rows(comparison, contenders, measure(contenders, plan))


def main() -> None:
    chosen = arguments()
    restart_with_heap(chosen.heap)
    # First: a run takes half an hour, and its figures must have a place.
    for file in filter(None, (chosen.json, chosen.markdown)):
        file.parent.mkdir(parents=True, exist_ok=True)
    record = run(chosen)
    chosen.json.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{len(record['rows'])} ratios written to {chosen.json}")


if __name__ == "__main__":
    main()
