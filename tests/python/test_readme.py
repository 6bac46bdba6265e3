"""README.md is true: its snippets run, its tables hold, its links and commands exist."""

from __future__ import annotations

import doctest
import inspect
import math
import operator
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import safeops
from division_numbers import GRADIENT_BOUNDS, VALUE_BOUNDS
from reference import forward_bound
from samples import POLICIES, count
from softmax_reference import gradient_ulps_allowed, ulps_allowed

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def table(header: str) -> dict[str, list[str]]:
    """Cells by the name in their first column, of the table whose header begins so."""
    start = re.escape(f"| {header} |".replace("|  |", "| |"))
    (text,) = re.findall(rf"^{start}.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0].strip("`"): row[1:] for row in rows}


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


POLICY_TABLE = table("policy | value")
SOFTMAX_TABLE = table("policy | softmax")
QUOTIENT_TABLE = table("policy | quotient")
ARGUMENT_TABLE = table("policy | `f(x)`")
OPERATOR_TABLE = table("operator")
ACCURACY_TABLE = table("")
SOFTMAX_ACCURACY_TABLE = table("value or gradient")
DIVISION_ACCURACY_TABLE = table("element")
COMMAND_TABLE = table("command")


def evaluate(cell: str, **names: Any) -> Any:
    (code,) = codes(cell)
    known = {
        "NaN": math.nan,
        "SingularityError": safeops.SingularityError,
        "ValueError": ValueError,
        "inf": math.inf,
        "log": math.log,
        "log2": math.log2,
    }
    return eval(code, known, names)


def test_sessions_show_what_happens() -> None:
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner()
    for language, text in BLOCKS:
        if language == "python" and ">>>" in text:
            parsed = doctest.DocTestParser().get_doctest(text, names, "README.md", None, 0)
            runner.run(parsed, clear_globs=False)
            names = parsed.globs
    result = runner.summarize()
    assert result.failed == 0 and result.attempted >= 15


def scripts() -> Iterator[tuple[str, str, str]]:
    """Name, source and printed output of the scripts: each is followed by what it prints."""
    for (language, source), (following, output) in zip(
        BLOCKS, [*BLOCKS[1:], ("", "")], strict=True
    ):
        if language == "python" and ">>>" not in source:
            assert following == "text", f"no output follows {source}"
            yield source.split(maxsplit=2)[1], source, output


def test_scripts_print_what_is_shown(tmp_path: Path) -> None:
    ran = 0
    for name, source, output in scripts():
        (tmp_path / name).write_text(source)
        result = subprocess.run(
            [sys.executable, name],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert result.returncode == 0, result.stdout
        assert result.stdout.replace(f"{tmp_path}/", "") == output
        ran += 1
    assert ran == 1


def backward_alone(x: torch.Tensor, g: torch.Tensor, n: float, eps: float) -> torch.Tensor:
    norm = torch.full((1, 1), n, dtype=torch.float64)
    return torch.ops.safeops._normalize_backward(g, x, norm, 2.0, [1], eps, "raise")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("row", [(0.0, 0.0), (0.0, -0.0), (3e-3, 4e-3)], ids=str)
def test_policy_table_at_a_singular_row(
    row: tuple[float, float], dtype: torch.dtype, policy: str
) -> None:
    value, slope, _ = POLICY_TABLE[policy]
    x = torch.tensor([row], dtype=dtype, requires_grad=True)
    g = torch.tensor([[2.0, -1.0]], dtype=dtype)
    names = {"x": x.detach(), "g": g, "n": math.hypot(*row), "eps": 0.125}
    expected, expected_slope = evaluate(value, **names), evaluate(slope, **names)
    if isinstance(expected, type):
        with pytest.raises(expected):
            safeops.normalize(x, eps=0.125, policy=policy)
        with pytest.raises(expected_slope, match="backward"):
            backward_alone(x.detach(), g, names["n"], 0.125)
    else:
        y = safeops.normalize(x, eps=0.125, policy=policy)
        y.backward(g)
        for got, want in ((y.detach(), expected), (x.grad, expected_slope)):
            want = torch.as_tensor(want, dtype=dtype).expand(1, 2)
            torch.testing.assert_close(got, want, equal_nan=True)
    assert count(direction="forward") == count(direction="backward") == 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_policy_table_default_eps(dtype: torch.dtype, policy: str) -> None:
    default, *half = codes(POLICY_TABLE[policy][2])
    eps = float(eval(half[0] if half and dtype is torch.float16 else default))
    # Of the float16 numbers only zero is below 1e-12.
    smallest = 2.0**-24 if dtype is torch.float16 else 5e-324
    at = torch.tensor([[max(eps, smallest)]], dtype=dtype)
    below = torch.nextafter(at, torch.zeros_like(at))
    safeops.normalize(at, policy=policy)
    assert count() == 0
    if policy == "raise":
        with pytest.raises(safeops.SingularityError):
            safeops.normalize(below, policy=policy)
    else:
        safeops.normalize(below, policy=policy)
    assert count() == 1


@pytest.mark.parametrize("where", [None, torch.zeros(3, dtype=torch.bool)], ids=["all", "none"])
@pytest.mark.parametrize("column", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("policy", POLICIES)
def test_softmax_table_at_an_empty_row(
    policy: str, column: str, where: torch.Tensor | None
) -> None:
    *values, slope = SOFTMAX_TABLE[policy]
    expected = evaluate(values[["softmax", "log_softmax", "logsumexp"].index(column)], eps=0.125)
    expected_slope = evaluate(slope)
    x = torch.full((1, 3), -math.inf, requires_grad=True)
    arguments = {"where": where, "policy": policy}
    if column != "logsumexp":
        arguments["eps"] = 0.125
    function = getattr(safeops, column)
    if policy == "raise":
        assert (expected, expected_slope) == (safeops.SingularityError, ValueError)
        with pytest.raises(expected):
            function(x, -1, **arguments)
    else:
        y = function(x, -1, **arguments)
        y.sum().backward()
        masked_log = where is not None and (column, policy) == ("log_softmax", "epsilon")
        want = torch.full_like(y, -math.inf if masked_log else expected)
        torch.testing.assert_close(y, want, equal_nan=True)
        want = torch.full_like(x, 0.0 if where is not None else expected_slope)
        torch.testing.assert_close(x.grad, want, equal_nan=True)
    assert count("empty_row", "forward", column) == 1


def check_singular_element(
    call: Callable[[], torch.Tensor],
    backward: Callable[[torch.Tensor], Any],
    inputs: list[torch.Tensor],
    cells: list[str],
    names: dict[str, Any],
) -> None:
    """Value and gradients are those that the cells of the table say, or errors."""
    expected, *slopes = (evaluate(cell, **names) for cell in cells)
    if isinstance(expected, type):
        with pytest.raises(expected):
            call()
        for slope in slopes:
            with pytest.raises(slope, match="backward"):
                backward(names["g"])
    else:
        y = call()
        y.backward(names["g"])
        found = (y.detach(), *(x.grad for x in inputs))
        for got, want in zip(found, (expected, *slopes), strict=True):
            want = torch.as_tensor(want, dtype=got.dtype).expand_as(got)
            torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("divisor", [0.0, -0.0, -0.1])
@pytest.mark.parametrize("policy", POLICIES)
def test_quotient_table_at_a_singular_element(policy: str, divisor: float) -> None:
    a = torch.tensor([3.0], requires_grad=True)
    b = torch.tensor([divisor], requires_grad=True)
    names = {"a": a.detach(), "b": b.detach(), "g": torch.tensor([2.0]), "eps": 0.125}
    names["copysign"] = lambda eps, b: torch.copysign(torch.tensor(eps), b)

    def backward(g: torch.Tensor) -> Any:
        inputs = (g, a.detach(), b.detach())
        return torch.ops.safeops._div_backward(*inputs, None, 0.125, policy, [True, True])

    check_singular_element(
        lambda: safeops.div(a, b, eps=0.125, policy=policy),
        backward,
        [a, b],
        QUOTIENT_TABLE[policy],
        names,
    )


SLOPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rsqrt": lambda x: -0.5 * x.rsqrt() ** 3,
    "sqrt": lambda x: 0.5 / x.sqrt(),
    "log": lambda x: 1 / x,
}


@pytest.mark.parametrize("argument", [0.1, 0.0, -3.0])
@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_argument_table_at_a_singular_element(policy: str, name: str, argument: float) -> None:
    cells = list(ARGUMENT_TABLE[policy])
    if name == "sqrt" and argument == 0 and policy != "epsilon":
        assert "`sqrt(0)` is 0, and only its gradient is singular" in README
        cells[0] = "`0`"
    x = torch.tensor([argument], requires_grad=True)
    plain = getattr(torch, name)
    names = {"x": x.detach(), "g": torch.tensor([2.0]), "eps": torch.tensor(0.125)}
    names |= {"f": plain, "slope": SLOPES[name]}

    def backward(g: torch.Tensor) -> Any:
        return getattr(torch.ops.safeops, f"_{name}_backward")(g, x.detach(), 0.125, policy)

    function = partial(getattr(safeops, name), eps=0.125, policy=policy)
    if cells[0] == "`0`" and policy == "raise":
        with pytest.raises(evaluate(cells[1]), match="backward"):
            function(x).backward(names["g"])
    else:
        check_singular_element(lambda: function(x), backward, [x], cells, names)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["reciprocal", "rsqrt", "sqrt", "log"])
def test_default_eps_of_the_division_family(name: str, dtype: torch.dtype) -> None:
    (text,) = re.findall(r"uses it \((.*?)\)\. The division family has that\s+default", README)
    single, half = (eval(code) for code in codes(text))
    eps = torch.tensor(half if dtype is torch.float16 else single, dtype=dtype)
    function = getattr(safeops, name)
    below = torch.nextafter(eps, torch.zeros_like(eps))
    function(eps, policy="epsilon")
    for policy in ("stock", "nan", "zero", "raise"):
        function(below, policy=policy)
    assert count(operator=name) == 0
    function(below, policy="epsilon")
    assert count("below_eps", operator=name) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_the_default_eps_of_log_softmax(dtype: torch.dtype) -> None:
    (text,) = re.findall(r"only log_softmax under `epsilon` uses it \((.*?)\)", README)
    single, half = (eval(code) for code in codes(text))
    x = torch.full((1,), -math.inf, dtype=dtype)
    want = math.log(half if dtype is torch.float16 else single)
    y = safeops.log_softmax(x, 0, policy="epsilon")
    torch.testing.assert_close(y, torch.tensor([want], dtype=dtype))


def test_policy_tables_have_every_policy() -> None:
    for cells in (POLICY_TABLE, SOFTMAX_TABLE, QUOTIENT_TABLE, ARGUMENT_TABLE):
        assert tuple(cells) == POLICIES
        assert all(len(codes(cell)) >= 1 for row in cells.values() for cell in row)


def test_operator_table_has_every_operator() -> None:
    text = README[README.index("| operator |") :].split("\n\n")[0]
    rows = [line.split("|")[1:3] for line in text.splitlines()[2:]]
    ours = [name for cell, _ in rows for name in codes(cell)]
    theirs = [name for _, cell in rows for name in codes(cell)]
    functions = {name for name in safeops.__all__ if inspect.isfunction(getattr(safeops, name))}
    assert set(ours) == functions - {"set_default_policy", "show_config"}
    for name, swapped in zip(ours, theirs, strict=True):
        assert operator.attrgetter(swapped.removeprefix("torch."))(torch).__name__ == name
    assert len(OPERATOR_TABLE) == 6


@pytest.mark.parametrize(("line", "p"), [("value, p = 2", 2.0), ("value, other p", 3.0)])
def test_accuracy_table_has_the_bounds_of_the_tests(line: str, p: float) -> None:
    columns = (
        (torch.float16, torch.bfloat16),
        (torch.float32, torch.complex64),
        (torch.float64, torch.complex128),
    )
    for cell, dtypes in zip(ACCURACY_TABLE[line], columns, strict=True):
        for dtype in dtypes:
            for length in (1, 3, 1000):
                counted = length * (2 if p == 2 and dtype.is_complex else 1)
                assert evaluate(cell, N=counted) == pytest.approx(forward_bound(dtype, p, length))


@pytest.mark.parametrize("line", ["softmax, log_softmax", "logsumexp", "gradient"])
def test_softmax_accuracy_table_has_the_bounds_of_the_tests(line: str) -> None:
    columns = ((torch.float16, torch.bfloat16), (torch.float32,), (torch.float64,))
    for cell, dtypes in zip(SOFTMAX_ACCURACY_TABLE[line], columns, strict=True):
        for dtype in dtypes:
            if line == "gradient":
                assert evaluate(cell) == gradient_ulps_allowed(dtype)
            else:
                for name in line.split(", "):
                    assert evaluate(cell) == ulps_allowed(name, dtype)


def test_division_accuracy_table_has_the_bounds_of_the_tests() -> None:
    lines = [*DIVISION_ACCURACY_TABLE]
    assert {name for line in lines[:-1] for name in line.split(", ")} == set(VALUE_BOUNDS)
    for line in lines:
        cells = tuple(evaluate(cell) for cell in DIVISION_ACCURACY_TABLE[line])
        for name in line.split(", "):
            assert cells == (GRADIENT_BOUNDS if name == "its gradient" else VALUE_BOUNDS[name])


def stripped(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def test_cpp_is_an_excerpt_of_the_example() -> None:
    example = stripped((ROOT / "examples" / "cpp" / "unit_rows.cc").read_text())
    excerpts = [text for language, text in BLOCKS if language == "cpp"]
    assert excerpts
    for excerpt in excerpts:
        assert stripped(excerpt) in example
    (find,) = re.findall(r"`(find_package.*?)`", README)
    assert find in (ROOT / "examples" / "cpp" / "CMakeLists.txt").read_text()


def test_commands_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        commands = re.findall(r"\bmake ([a-z-]+)[` ;]", text)
        assert len(commands) >= 6 and set(commands) <= set(targets)
    assert len(COMMAND_TABLE) >= 6 and (ROOT / "tools" / "bootstrap").exists()


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/semantics.md"]
)
def test_links_and_test_files_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    for link in re.findall(r"\]\(([^):#]+)\)", text):
        assert ((ROOT / page).parent / link).exists(), link
    for name in re.findall(r"`(\w+_test\.cc|test_\w+\.py)`", text):
        assert list((ROOT / "tests").glob(f"*/{name}")), name


@pytest.mark.parametrize(
    "module", [safeops._softmax, safeops._division, safeops._roots, safeops.nn]
)
def test_examples_of_docstrings(module: Any) -> None:
    names = {"safeops": safeops, "torch": torch}
    result = doctest.testmod(module, extraglobs=names)
    assert result.failed == 0 and result.attempted >= 3


def test_every_invariant_names_its_tests() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text()
    invariants = re.findall(r"^\| (\d+) \|.*\|(.*)\|$", text, re.MULTILINE)
    assert [int(number) for number, _ in invariants] == list(range(1, len(invariants) + 1))
    assert len(invariants) >= 9 and all(codes(tests) for _, tests in invariants)
