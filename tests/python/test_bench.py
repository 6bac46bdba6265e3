"""benchmarks/bench.py measures everything it promises and divides the right way round. How fast
anything is belongs to no test."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import safeops
from samples import LONG

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

DIVISION = ("div", "reciprocal", "rsqrt", "sqrt", "log")
ROWS_OF_GROUP = {
    "L2": 9,
    "16 MB": 9,
    "64 MB": 3,
    "tiny rows": 12,
    "dim=1": 6,
    "call": 3,
    "dtype": 9,
    "copy": 4,
    "policy, no hits": 6,
    "hits": 6,
    "counting": 12,
    "2 threads": 18,
    "scaling": 4,
    "softmax (L2)": 9,
    "softmax (16 MB)": 9,
    "softmax (64 MB)": 3,
    "softmax (vocabulary)": 6,
    "softmax (one row)": 3,
    "softmax (attention)": 3,
    "softmax (tiny rows)": 12,
    "softmax (dim=1)": 6,
    "softmax (dtype)": 6,
    "softmax (call)": 3,
    "log_softmax (L2)": 9,
    "log_softmax (16 MB)": 3,
    "log_softmax (64 MB)": 3,
    "log_softmax (vocabulary)": 6,
    "log_softmax (tiny rows)": 3,
    "log_softmax (dim=1)": 3,
    "log_softmax (dtype)": 6,
    "log_softmax (call)": 3,
    "logsumexp (L2)": 9,
    "logsumexp (16 MB)": 9,
    "logsumexp (64 MB)": 3,
    "logsumexp (vocabulary)": 6,
    "logsumexp (one row)": 3,
    "logsumexp (tiny rows)": 12,
    "logsumexp (dim=1)": 6,
    "logsumexp (dtype)": 6,
    "logsumexp (call)": 3,
    "softmax (where)": 18,
    "softmax (policy, no hits)": 6,
    "softmax (hits)": 6,
    "softmax (counting)": 12,
    "softmax (2 threads)": 18,
    "softmax (scaling)": 4,
    **{
        f"{operator} ({kind})": rows
        for operator in DIVISION
        for kind, rows in {
            "L2": 4,
            "4 MB": 2,
            "16 MB": 2,
            "64 MB": 2,
            "dtype": 4,
            "call": 2,
            "double where": 24,
        }.items()
    },
    "div (broadcast)": 12,
    "div (policy, no hits)": 30,
    "div (hits)": 18,
    "div (counting)": 12,
    "div (2 threads)": 4,
    "patch (covered call)": 24,
    "patch (other call)": 6,
    "patch (module)": 4,
    "level": 8,
    "sink": 8,
    "audit (training)": 8,
}
STOCK = {
    "softmax": "F.softmax",
    "log_softmax": "F.log_softmax",
    "logsumexp": "torch.logsumexp",
}


@dataclass(frozen=True)
class Run:
    stdout: str
    markdown: str
    machine: dict[str, str]
    rows: list[dict[str, Any]]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "--quick", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def recorded(folder: Path, *arguments: str) -> Run:
    # In folders that the run has to make.
    data, table = folder / "data" / "bench.json", folder / "tables" / "bench.md"
    finished = bench("--rounds=2", f"--json={data}", f"--markdown={table}", *arguments)
    assert finished.returncode == 0, finished.stderr
    record = json.loads(data.read_text())
    return Run(finished.stdout, table.read_text(), record["machine"], record["rows"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("bench"))


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Other folders of the project may have modules of these names.
    names = ("report", "comparisons", "diagnostics", "division", "jax_peer", "timing")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def report(benchmarks: None) -> ModuleType:
    return importlib.import_module("report")


@pytest.fixture
def division(benchmarks: None) -> ModuleType:
    return importlib.import_module("division")


@pytest.fixture
def diagnostics(benchmarks: None) -> ModuleType:
    return importlib.import_module("diagnostics")


def test_every_group_is_complete(whole: Run) -> None:
    assert Counter(row["group"] for row in whole.rows) == ROWS_OF_GROUP


@pytest.mark.parametrize("group", ["L2", "16 MB", "64 MB", "tiny rows", "dim=1", "call", "dtype"])
def test_stock_is_the_peer_in_every_pass(whole: Run, group: str) -> None:
    rows = [row for row in whole.rows if row["group"] == group]
    assert {(row["peer"], row["product"]) for row in rows} == {("F.normalize", "safeops")}
    passes = Counter(row["what"].split()[0] for row in rows)
    assert set(passes) == {"forward", "forward+backward", "backward"}
    assert len(set(passes.values())) == 1


@pytest.mark.parametrize("operator", STOCK)
@pytest.mark.parametrize("kind", ["L2", "16 MB", "64 MB", "tiny rows", "dim=1", "call", "dtype"])
def test_softmax_has_its_stock_as_peer(whole: Run, operator: str, kind: str) -> None:
    rows = [row for row in whole.rows if row["group"] == f"{operator} ({kind})"]
    assert {(row["peer"], row["product"]) for row in rows} == {(STOCK[operator], "safeops")}
    passes = Counter(row["what"].split()[0] for row in rows)
    assert set(passes) == {"forward", "forward+backward", "backward"}
    assert len(set(passes.values())) == 1


def test_masked_softmax_is_measured_beside_both_recipes(whole: Run) -> None:
    rows = [row for row in whole.rows if row["group"] == "softmax (where)"]
    assert Counter(row["peer"] for row in rows) == {"masked_fill, where": 9, "masked_fill": 9}
    assert all("masked" in row["what"] for row in rows)


@pytest.mark.parametrize("operator", DIVISION)
def test_division_has_torch_and_the_recipe_as_peers(whole: Run, operator: str) -> None:
    for kind, peer in (
        ("L2", f"torch.{operator}"),
        ("64 MB", f"torch.{operator}"),
        ("call", f"torch.{operator}"),
        ("double where", "double where"),
    ):
        rows = [row for row in whole.rows if row["group"] == f"{operator} ({kind})"]
        assert {(row["peer"], row["product"]) for row in rows} == {(peer, "safeops")}
        passes = Counter(row["what"].split()[0] for row in rows)
        assert set(passes) == {"forward", "forward+backward"}
        assert len(set(passes.values())) == 1


def test_recipe_of_division_is_right_and_torch_alone_is_not(division: ModuleType) -> None:
    for operator, regular in division.REGULAR.items():
        *others, x = division.operands(operator, (64,), share=0.5)()
        x.requires_grad_()
        function = getattr(torch, operator)
        recipe = division.double_where(torch.where, function, regular)
        masked_after = torch.where(regular(x), function(*others, x), 0.0)
        (poisoned,) = torch.autograd.grad(masked_after.sum(), x)
        (gradient,) = torch.autograd.grad(recipe(*others, x).sum(), x)
        assert (x == 0).any() and poisoned.isnan()[x == 0].all()
        assert (gradient[x == 0] == 0).all()
        assert torch.equal(gradient[x != 0], poisoned[x != 0])


@pytest.mark.parametrize("what", ["F.normalize", "F.softmax", "x.softmax", "a / b"])
def test_a_covered_call_is_answered_by_ours(diagnostics: ModuleType, what: str) -> None:
    stock, ours = diagnostics.INTERCEPTED[what]
    fill = -math.inf if "softmax" in what else 0.0
    inputs = [torch.full_like(x, fill) for x in diagnostics.operands(what)]
    answers = []
    for call, scope, counted in (
        (stock, contextlib.nullcontext, False),
        (stock, diagnostics.observed, True),
        (stock, diagnostics.patched, True),
        (ours, contextlib.nullcontext, True),
    ):
        safeops.diagnostics.reset()
        with scope():
            answers.append(call(*inputs))
        assert (safeops.diagnostics.snapshot().total() > 0) == counted
    for answer, expected in zip(answers, (answers[0], answers[0], answers[3]), strict=False):
        torch.testing.assert_close(answer, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("hits", [False, True])
def test_a_training_step_hits_as_it_says(diagnostics: ModuleType, hits: bool) -> None:
    step = diagnostics.training_step(hits)
    with diagnostics.observed():
        step()
        step()
    assert safeops.diagnostics.snapshot().total(direction="forward") == (16 if hits else 0)


def test_a_scope_is_entered_around_every_sample(benchmarks: None) -> None:
    timing = importlib.import_module("timing")
    seen: list[str] = []

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    contender = timing.Contender("", lambda: seen.append("call"), scope=scope)
    timing.measure([contender], timing.Plan(2, 0.0, time.perf_counter, warm_up_seconds=0.0))
    assert seen == [*("in", "call", "out", "in", *["call"] * 3, "out"), *("in", "call", "out") * 2]


def test_one_family_can_run_alone(tmp_path: Path) -> None:
    run = recorded(tmp_path, "--family=softmax", "--only=call")
    assert {row["group"] for row in run.rows} == {f"{operator} (call)" for operator in STOCK}


def test_jax_is_a_peer_where_it_is_installed(tmp_path: Path) -> None:
    run = recorded(tmp_path, "--jax", "--only=logsumexp (call): forward")
    peers = [(row["what"].split()[0], row["peer"]) for row in run.rows]
    both = ["torch.logsumexp"]
    if importlib.util.find_spec("jax"):
        both.append("JAX logsumexp")
        assert run.machine["jax"] != "not installed"
    else:
        assert run.machine["jax"] == "not installed"
    passes = ("forward", "forward+backward")
    assert peers == [(name, peer) for name in passes for peer in both]


def test_jax_compiles_the_recipe_of_division(tmp_path: Path) -> None:
    run = recorded(tmp_path, "--jax", "--only=(double where): forward 1024 float32 1%")
    peers = Counter(row["peer"] for row in run.rows)
    installed = importlib.util.find_spec("jax") is not None
    assert peers == {"double where": 5, **({"JAX double where": 5} if installed else {})}


def test_every_dtype_is_measured(whole: Run) -> None:
    dtypes = {row["what"].split()[3] for row in whole.rows if row["group"] == "dtype"}
    assert dtypes == {"bfloat16", "float16", "float64"}


def test_figures_are_finite_and_in_order(whole: Run) -> None:
    for row in whole.rows:
        for figure in (row["ratio"], row["peer_seconds"], row["product_seconds"]):
            assert all(math.isfinite(value) and value > 0 for value in figure.values()), row
            assert figure["p5"] <= figure["median"] <= figure["p95"], row


def test_tables_hold_every_row(whole: Run) -> None:
    printed = [line.rstrip() for line in whole.stdout.splitlines()]
    for row in whole.rows:
        ratio = f"{row['ratio']['median']:.2f}x"
        assert any(line.startswith(row["what"]) and ratio in line for line in printed), row
        cells = f"| {row['group']} | {row['what']} | {row['peer']} | {row['product']} |"
        assert any(
            line.startswith(cells) and f" {ratio} " in line for line in whole.markdown.splitlines()
        ), row


def test_machine_is_named(whole: Run) -> None:
    for key in (
        "CPU",
        "load average",
        "torch",
        "jax",
        "config",
        "heap",
        "OMP_WAIT_POLICY",
        "method",
    ):
        assert whole.machine[key]
        assert whole.machine[key] in whole.stdout
        assert f"- {key}: {whole.machine[key]}" in whole.markdown


def test_heap_is_warm_unless_told_otherwise(whole: Run, tmp_path: Path) -> None:
    assert "MALLOC_TOP_PAD_=33554432" in whole.machine["heap"]
    cold = recorded(tmp_path, "--heap=default", "--only=call: forward 4x4")
    assert cold.machine["heap"] == "default"
    assert len(cold.rows) == 1


def test_no_comparison_at_all_is_an_error() -> None:
    finished = bench("--only=nothing is called so")
    assert finished.returncode == 1
    assert "no comparison contains 'nothing is called so'" in finished.stderr


def test_ratio_is_the_peer_over_the_product_round_by_round(report: ModuleType) -> None:
    contenders = [report.Contender(name, lambda: None) for name in ("slow", "slower", "product")]

    def verdicts(goal: float) -> list[tuple[str, float, str]]:
        comparison = report.Comparison("group", "what", 1, 1, lambda: contenders, goal)
        rows = report.rows(comparison, contenders, [[2, 20, 12], [8, 80, 32], [1, 10, 4]])
        return [(row.peer, row.ratio.median, row.verdict()) for row in rows]

    # The second round was disturbed. The medians of the times alone would say 3.
    assert verdicts(2.0) == [("slow", 2.0, "2x met"), ("slower", 8.0, "")]
    assert verdicts(2.5)[0] == ("slow", 2.0, "2.5x SHORT")


@pytest.mark.skipif(not LONG, reason="Inductor takes its time: make test-long")
def test_compiled_stock_is_a_second_peer(tmp_path: Path) -> None:
    run = recorded(tmp_path, "--compile", "--only=call: forward 4x4")
    assert [row["peer"] for row in run.rows] == ["F.normalize", "compiled F.normalize"]
