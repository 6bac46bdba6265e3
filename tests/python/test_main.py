"""``python -m safeops``: a script runs as python runs it, and its report goes to standard error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import safeops
from safeops import __main__ as command

HITS = """
import torch
import torch.nn.functional as F
print("progress 1")
x = torch.zeros(2, 3, requires_grad=True)
F.normalize(x, dim=-1).sum().backward()
print("gradient", x.grad.max().item())
"""
HIT_LINE = 6
AROUND = "import sys; print(__name__, __file__, __spec__ and __spec__.name, __package__, sys.argv)"
STATE = f"{AROUND}\nprint(sys.path[0], sys.modules['__main__'].__dict__ is globals(), __doc__)\n"


def python(*arguments: str, cwd: Path, script: str | None = None, **options):
    if script is not None:
        (cwd / "script.py").write_text(textwrap.dedent(script))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "SAFEOPS_POLICY"},
        "PYTHONPATH": str(Path(safeops.__file__).parents[1]),
        "COLUMNS": "100",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        **options,
    )


def audited(*arguments: str, cwd: Path, script: str | None = None, **options):
    return python("-m", "safeops", "audit", *arguments, cwd=cwd, script=script, **options)


def without_report(stderr: str) -> str:
    before, report, rest = stderr.partition("\nsafeops audit (")
    return before + rest.partition("(safeops.patch.unreachable())\n")[2] if report else before


@pytest.fixture
def in_process(monkeypatch, tmp_path):
    """The command in this process, whose state it may change, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["safeops"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return tmp_path


# The report


def test_the_report_follows_and_the_output_stays(tmp_path) -> None:
    done = audited("--json", "r.json", "--html", "r.html", "script.py", cwd=tmp_path, script=HITS)
    assert done.returncode == 0
    assert done.stdout == f"progress 1\ngradient {torch.tensor(1e12).item()}\n"
    assert "2 singular rows forward and 2 backward, on 1 line" in done.stderr.replace("\n", " ")
    assert f"1  script.py:{HIT_LINE}  normalize" in done.stderr
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
    (site,) = json.loads((tmp_path / "r.json").read_text())["sites"]
    assert (site["filename"], site["lineno"]) == (str(tmp_path / "script.py"), HIT_LINE)
    assert site["source"] == "F.normalize(x, dim=-1).sum().backward()"
    assert (site["forward"], site["backward"]) == (2, 2)
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")


def test_a_policy_and_operators(tmp_path) -> None:
    done = audited("--policy=zero", "script.py", cwd=tmp_path, script=HITS)
    assert done.stdout == "progress 1\ngradient 0.0\n"
    assert "under policy 'zero'" in done.stderr


def test_a_report_that_cannot_be_written_changes_no_exit_code(in_process, capsys) -> None:
    script = "import os, sys; os.mkdir('r.json'); os.chdir('elsewhere'); sys.exit(4)"
    (in_process / "elsewhere").mkdir()
    (in_process / "script.py").write_text(script)
    with pytest.raises(SystemExit) as ended:
        command.main(["audit", "--html", "r.html", "--json", "r.json", "script.py"])
    assert ended.value.code == 4
    assert "safeops audit: the report is incomplete: IsADirectoryError" in capsys.readouterr().err
    assert (in_process / "r.html").exists()


def test_a_page_that_cannot_be_made_takes_no_json_away(in_process, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    (in_process / "script.py").write_text("")
    files = ["--html", "r.html", "--json", "r.json"]
    command.main(["audit", *files, "--operators", "softmax,log", "script.py"])
    assert "the report is incomplete: ModuleNotFoundError" in capsys.readouterr().err
    assert json.loads((in_process / "r.json").read_text())["operators"] == ["softmax", "log"]


# As python would


@pytest.mark.parametrize("how", [("./sub/../script.py",), ("-m", "script")])
def test_the_script_sees_what_python_shows_it(tmp_path, how) -> None:
    (tmp_path / "sub").mkdir()
    arguments = (*how, "--policy", "ours", "-m", "x y")
    plain = python(*arguments, cwd=tmp_path, script=STATE)
    done = audited("--policy", "zero", *arguments, cwd=tmp_path)
    assert plain.returncode == done.returncode == 0
    assert done.stdout == plain.stdout
    assert "__main__" in done.stdout and "'x y'" in done.stdout


def test_a_package_runs_its_main(tmp_path) -> None:
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rate.py").write_text("RATE = 3")
    (package / "__main__.py").write_text(f"from .rate import RATE\n{STATE}\nprint(RATE)")
    plain = python("-m", "trainer", "a", cwd=tmp_path)
    done = audited("-m", "trainer", "a", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, plain.stdout)


ENDS = {
    "exits with a message": "import sys\nsys.exit('no data')",
    "raises from": """
        def f():
            try:
                1 / 0
            except ZeroDivisionError as e:
                raise OSError(2) from e
        f()
    """,
    "has a hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0])\n1 / 0",
    "raises in torch": """
        import torch
        try:
            torch.zeros(2, 3) @ torch.zeros(4, 5)
        except RuntimeError:
            torch.zeros(6, 7).matmul(torch.zeros(8, 9))
    """,
}


@pytest.mark.parametrize("script", ENDS.values(), ids=ENDS)
def test_exit_code_and_traceback_are_pythons(tmp_path, script) -> None:
    plain = python("script.py", cwd=tmp_path, script=script)
    done = audited("script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    assert without_report(done.stderr) == plain.stderr
    assert "safeops audit (" in done.stderr


def test_what_is_no_python_does_not_run(in_process, capsys) -> None:
    (in_process / "script.py").write_text("def f(:\n")
    with pytest.raises(SystemExit) as ended:
        command.main(["audit", "script.py"])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(f'  File "{in_process / "script.py"}", line 1\n    def f(:\n')
    assert said.endswith("SyntaxError: invalid syntax\n")


def test_an_interrupt_ends_the_script_as_python_does(tmp_path) -> None:
    script = """
        import os, signal
        # A parent that ignores the signal hands that on.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
    """
    plain = python("script.py", cwd=tmp_path, script=script)
    done = audited("script.py", cwd=tmp_path)
    assert done.returncode == plain.returncode == -signal.SIGINT
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert "safeops audit (observed" in done.stderr and "runpy" not in done.stderr


def test_exit_handlers_see_the_module_and_a_forked_child_does_not_report(tmp_path) -> None:
    script = """
        import atexit, os, sys
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            word = "kept"
            atexit.register(lambda: print(word))
        sys.exit(2)
    """
    done = audited("script.py", cwd=tmp_path, script=script)
    assert (done.returncode, done.stdout) == (2, "kept\n")
    assert done.stderr.count("safeops audit (") == 1


def test_spawned_workers_find_the_script(tmp_path) -> None:
    script = """
        import torch
        from torch.utils.data import DataLoader, Dataset
        import torch.nn.functional as F

        class Rows(Dataset):
            def __len__(self):
                return 3
            def __getitem__(self, index):
                return torch.full((2,), float(index))

        if __name__ == "__main__":
            loader = DataLoader(Rows(), num_workers=1, multiprocessing_context="spawn")
            print(sum(F.normalize(batch, dim=-1).sum().item() > 1 for batch in loader))
    """
    done = audited("script.py", cwd=tmp_path, script=script)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert "1 singular row forward and 0 backward, on 1 line" in done.stderr.replace("\n", " ")


# The command line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["audit"], "a script or -m with a module is needed"),
        (["audit", "--policy", "zero"], "a script or -m with a module is needed"),
        (["audit", "-m"], "a script or -m with a module is needed"),
        (["audit", "--policy", "zeros", "x.py"], "safeops.audit: policy must be one of 'stock'"),
        (["audit", "--operators", "relu", "x.py"], "operators must be among normalize"),
        (["audit", "--html", "nowhere/r.html", "x.py"], "a folder that exists"),
        (["audit", "--colour", "red", "x.py"], "unrecognized arguments: --colour red"),
        (["audit", "absent.py"], "absent.py"),
        (["audit", "-m", "absent_module"], "no module named absent_module"),
        (["audits"], "invalid choice: 'audits'"),
    ],
)
def test_a_wrong_command_line_is_explained(monkeypatch, tmp_path, capsys, arguments, says) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["safeops"])
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_config_and_help(capsys) -> None:
    command.main(["config"])
    assert capsys.readouterr().out == f"{safeops.show_config()}\n"
    command.main([])
    assert "audit" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        command.main(["audit", "--help"])
    assert ended.value.code == 0
    assert "--policy" in capsys.readouterr().out
