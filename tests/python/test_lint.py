"""Every rule of tools/lint.py finds the fault that it is there for."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("lint", ROOT / "tools" / "lint.py")
lint = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(lint)

# Faults are put together here, or this file would be found by the rules it tests.
FAST = "-f" + "fast-math"
HOME = "/" + "home/someone/data"

FAULTS = [
    ("src/core/rows.h", "#include <ATen/ATen.h>\n", "must not include ATen/ATen.h"),
    ("src/core/rows.cc", '#include "torch/settle.h"\n', "must not include torch/settle.h"),
    ("include/safeops/policy.h", "#include <c10/util/Exception.h>\n", "must not include c10/"),
    ("src/operators/x/x_math.h", "# include <torch/library.h>\n", "must not include torch/"),
    ("src/operators/x/x.h", '#include "safeops/operators.h"\n', "must not include safeops/op"),
    ("fuzz/x_fuzz.cc", "#include <torch/torch.h>\n", "must not include torch/torch.h"),
    ("src/torch/library.cc", "#include <Python.h>\n", "no library may include Python.h"),
    ("src/torch/library.cc", "#include <pybind11/pybind11.h>\n", "no library may include pyb"),
    ("src/core/counters.cc", '#include "hwy/highway.h"\n', "may include hwy/highway.h"),
    ("src/operators/x/x_math.h", "auto y = hn::Add(a, b);\n", "may name 'hn::'"),
    ("src/torch/rows.cc", "namespace hn = hwy::N_AVX2;\n", "may name 'hwy::'"),
    ("src/operators/x/x_math.h", "row.sum([](auto v) { return v; });\n", "needs SAFEOPS_LANES"),
    ("src/operators/x/x_math.h", "auto f = [&](auto v) SAFEOPS_LANES { };\n", "captures nothing"),
    (
        "src/operators/x/x_math.h",
        "f([](auto v) SAFEOPS_LANES { return v; },\n  [](auto v) { return v; });\n",
        ":2: a lambda of a row program needs SAFEOPS_LANES",
    ),
    ("CMakeLists.txt", f"add_compile_options({FAST})\n", f"'{FAST}' changes values"),
    ("pyproject.toml", "flags = '-O" + "fast'\n", "changes values"),
    ("src/core/rows.h", "#pragma STDC fp " + "contract(fast)\n", "changes values"),
    ("Makefile", "flags = -ffp-" + "contract=on\n", "changes values"),
    ("docs/x.md", "caf\u00e9\n", "U+00E9 is not ASCII"),
    ("src/core/long.cc", "\n" * 401, "401 lines"),
    ("src/core/string_utils.h", "", "does not say what is inside"),
    ("python/safeops/helpers.py", "", "does not say what is inside"),
    ("src/common/x.h", "", "does not say what is inside"),
    ("docs/x.md", f"see {HOME}\n", "exists on one machine only"),
]

CLEAN = [
    ("src/torch/library.cc", "#include <torch/library.h>\n"),
    ("src/operators/x/x_torch.cc", "#include <ATen/Tensor.h>\n"),
    ("src/core/lanes_highway-inl.h", '#include "hwy/highway.h"\nnamespace hn = hwy::X;\n'),
    ("src/operators/x/x_cpu.cc", '#include "hwy/foreach_target.h"\n'),
    ("tests/core/lanes_test.cc", '#include "hwy/highway.h"\n'),
    ("src/operators/x/x_math.h", "// hn::Max is not safe here\ndouble a[3];\nb[i] = a[(1)];\n"),
    ("src/operators/x/x_math.h", "[[nodiscard]] int f();\n[](auto v) SAFEOPS_LANES { };\n"),
    (
        "src/operators/x/x_math.h",
        "auto f = []<class V>(V v)\n  SAFEOPS_LANES -> V { };\n",
    ),
    ("CMakeLists.txt", "add_compile_options(-ffp-contract=off -fno-math-errno)\n"),
    ("docs/x.md", "Never compile with " + FAST + "; see ../work/plan and $ROOT/tmp/x.\n"),
    ("src/core/exact.cc", "\n" * 400),
    ("src/core/miscount.h", ""),
]


@pytest.mark.parametrize(("path", "text", "message"), FAULTS)
def test_fault_is_found(path, text, message):
    findings = lint.check_text(path, text)
    assert any(message in finding for finding in findings), findings


@pytest.mark.parametrize(("path", "text"), CLEAN)
def test_clean_text_passes(path, text):
    assert lint.check_text(path, text) == []


def test_every_rule_has_a_fault():
    found = {
        rule.__name__ for rule in lint.RULES for path, text, _ in FAULTS if list(rule(path, text))
    }
    assert found == {rule.__name__ for rule in lint.RULES}


@pytest.fixture
def project(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name in (".clang-format", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.cc", "int   main( ) {}\n", "clang-format"),
        ("x.py", "import os\n", "ruff check"),
        ("x.py", "x = {'a':1}\n", "ruff format"),
        ("x.md", "caf\u00e9\n", "x.md:1: U+00E9"),
    ],
)
def test_whole_run_fails_on_a_fault(project, capsys, name, text, message):
    (project / name).write_text(text)
    assert lint.lint(project) == 1
    assert message in capsys.readouterr().out


def test_whole_run_passes_on_clean_files(project, capsys):
    (project / "x.cc").write_text("int main() {}\n")
    (project / "x.py").write_text("print()\n")
    assert lint.lint(project) == 0
    assert "4 files, 0 findings" in capsys.readouterr().out


def test_ignored_files_are_not_read(project):
    (project / ".gitignore").write_text("/build/\n")
    (project / "build").mkdir()
    (project / "build" / "x.md").write_text("caf\u00e9\n")
    assert lint.lint(project) == 0


def test_missing_formatter_is_a_finding(project, monkeypatch, capsys):
    monkeypatch.setattr(lint, "find_tool", lambda name, root: None)
    (project / "x.cc").write_text("int main() {}\n")
    assert lint.lint(project) == 1
    assert "clang-format is missing" in capsys.readouterr().out


def test_nothing_to_check_is_a_failure(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert lint.lint(tmp_path) == 1
