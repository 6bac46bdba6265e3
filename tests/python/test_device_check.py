"""tools/device_check: what it compares, reports and refuses, tried on the CPU."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import safeops

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "device_check"

# A line of the program that needs no torch, and one that differs from the SIMD kernels.
GOOD = "normalize p=2 float32 7x3 zero: 0123456789abcdef same"
BAD = "quotient float32 5000x1 zero: 00000000000000ff DIFFERS: output 0 element 3"


@pytest.fixture
def tool(monkeypatch):
    """Imports a module of the tool, which is no package: it runs where nothing is installed."""
    monkeypatch.syspath_prepend(str(TOOL))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(TOOL)):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path):
    """What `prepare` leaves, with a script for the program."""
    made = tmp_path / "prepared"
    (made / "bin").mkdir(parents=True)
    (made / "python").symlink_to(ROOT / "python")
    (made / "manifest.json").write_text(json.dumps({"torch": torch.__version__}))
    (made / "hashes.json").write_text(json.dumps({GOOD.partition(":")[0]: "0123456789abcdef"}))
    return made


def put_program(folder, *lines, status=0):
    program = folder / "bin" / "emulated"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{chr(10).join(lines)}\nEND\nexit {status}\n")
    program.chmod(0o755)


@pytest.fixture
def context(tool, folder, tmp_path):
    return tool("stage").Context(folder, tmp_path / "notes.json", 60.0, dry=True)


def run_command(folder, *words):
    return subprocess.run(
        [sys.executable, str(TOOL), "run", "--folder", str(folder), *words],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("optional", "status"), [(False, 2), (True, 0)])
def test_without_a_gpu_nothing_is_run(
    tool, monkeypatch, folder, tmp_path, capsys, optional, status
):
    runner = tool("runner")
    monkeypatch.setattr(runner, "has_gpu", lambda: False)
    assert runner.run(folder, tmp_path / "out", optional=optional) == status
    assert "no GPU here: nothing was run" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("listed", "file", "torch_sees", "found"),
    [
        ("GPU 0: H200", False, "", True),
        ("", True, "", True),
        ("", False, "True\n", True),
        ("", False, "False\n", False),
    ],
)
def test_a_gpu_is_found_without_nvidia_smi(
    tool, monkeypatch, tmp_path, listed, file, torch_sees, found
):
    runner = tool("runner")
    device = tmp_path / "nvidia0"
    if file:
        device.touch()
    monkeypatch.setattr(runner, "DEVICE_FILE", str(device))
    answers = {"nvidia-smi": listed, sys.executable: torch_sees}
    monkeypatch.setattr(runner, "output_of", lambda command, seconds: answers[command[0]])
    assert runner.has_gpu() == found


def test_a_command_that_is_missing_or_fails_says_nothing(tool):
    output_of = tool("runner").output_of
    assert output_of(["/nowhere/nvidia-smi", "-L"], 60.0) == ""
    assert output_of(["sh", "-c", "echo GPU; exit 6"], 60.0) == ""
    assert output_of(["sh", "-c", "echo GPU"], 60.0) == "GPU\n"


def test_a_dry_run_says_that_it_is_one(folder, tmp_path):
    put_program(folder, GOOD)
    out = tmp_path / "out"
    stages = ("--only", "versions", "--only", "hashes", "--only", "sanitizer")
    done = run_command(folder, "--out", str(out), "--dry-run", *stages)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed, 1 skipped, 0 incomplete, 0 failed (dry run on the CPU" in done.stdout
    report = json.loads((out / "device_check.json").read_text())
    assert report["dry_run"] and report["complete"]
    assert report["stages"]["versions"]["notes"]["torch"] == torch.__version__
    assert "compute-sanitizer" in report["stages"]["sanitizer"]["notes"]["skipped"]


def test_every_stage_passes_its_dry_run(tool, context):
    """In this process: another import of torch for each would take longer than the stages."""
    stage = tool("stage")
    mode, level = safeops.diagnostics.raise_mode(), safeops.diagnostics.level()
    put_program(context.folder, GOOD)
    try:
        for name in tool("runner").NAMES:
            fresh = stage.Context(context.folder, context.notes_path, 120.0, dry=True)
            expected = stage.SKIPPED if name == "sanitizer" else 0
            assert stage.run(name, fresh) == expected, (name, fresh.wrong)
            assert json.loads(json.dumps(fresh.notes)) == json.loads(context.notes_path.read_text())
            assert name == "sanitizer" or fresh.notes["checks"] > 0
    finally:
        safeops.diagnostics.set_raise_mode(mode)
        safeops.diagnostics.set_level(level)
        safeops.diagnostics.reset()


@pytest.mark.parametrize(
    ("lines", "status", "message"),
    [
        ([GOOD, BAD], 1, "DIFFERS: output 0 element 3"),
        ([GOOD.replace("89ab", "0000")], 0, "0000cdef, emulator 0123456789abcdef"),
        ([GOOD, BAD.replace("DIFFERS: output 0 element 3", "same")], 0, "not run on the emulator"),
        ([GOOD], 3, "exit status 3"),
        ([GOOD.replace(" same", " same ALARM")], 0, "same ALARM"),
    ],
)
def test_what_differs_from_the_emulator_is_told(tool, context, lines, status, message):
    put_program(context.folder, *lines, status=status)
    tool("stage_hashes").run(context)
    context.dry = False
    tool("stage_hashes").compare(
        context,
        json.loads((context.folder / "hashes.json").read_text()),
        tool("program_output").hashes("\n".join(lines)),
    )
    assert any(message in what for what in context.wrong), context.wrong


def test_a_launch_that_is_missing_is_told(tool, context):
    tool("stage_hashes").compare(context, {"a": "0", "b": "1"}, {"a": "0"})
    assert context.wrong == ["b: not run"]
    with pytest.raises(ValueError, match="same name"):
        tool("program_output").hashes(f"{GOOD}\n{GOOD}\n")


@pytest.fixture
def stages(tool, monkeypatch, tmp_path):
    """Stages of a few lines each, in place of the real ones."""
    runner = tool("runner")
    here = tmp_path / "scripts"
    here.mkdir()
    (here / "stage.py").write_text((TOOL / "stage.py").read_text())
    bodies = {
        "good": "context.note(a=1)\n    context.expect(True, '')",
        "bad": "context.expect(False, 'three is four')",
        "empty": "pass",
        "part": "context.expect(True, '')\n    context.lack('the other half')",
        "crash": "import os\n    os._exit(17)",
        "hangs": "context.note(before=1)\n    import time\n    time.sleep(600)",
    }
    for name, body in bodies.items():
        (here / f"stage_{name}.py").write_text(f"def run(context):\n    {body}\n")
    monkeypatch.setattr(runner, "HERE", here)

    def run(*names, budget=100.0, seconds=20.0):
        chosen = tuple(runner.Stage(name, seconds) for name in names)
        monkeypatch.setattr(runner, "STAGES", chosen)
        status = runner.run(tmp_path, tmp_path / "out", budget=budget, dry=True)
        return status, json.loads((tmp_path / "out" / runner.REPORT).read_text())

    return run


def test_a_stage_that_fails_does_not_stop_the_others(stages, capsys):
    status, report = stages("bad", "crash", "empty", "good")
    assert status == 1
    found = {name: stage["status"] for name, stage in report["stages"].items()}
    assert found == {"bad": "failed", "crash": "failed", "empty": "failed", "good": "passed"}
    assert report["stages"]["bad"]["notes"]["wrong"] == ["three is four"]
    assert report["stages"]["good"]["notes"] == {"a": 1, "checks": 1}
    output = capsys.readouterr().out
    assert "three is four" in output and "empty: nothing was checked" in output
    assert "1 passed, 0 skipped, 0 incomplete, 3 failed" in output


def test_a_stage_that_hangs_is_stopped_and_keeps_its_notes(stages):
    status, report = stages("hangs", "good", seconds=10.0)
    assert status == 1
    assert report["stages"]["hangs"]["status"] == "timed out"
    assert report["stages"]["hangs"]["notes"] == {"before": 1}
    assert report["stages"]["good"]["status"] == "passed"


def test_a_stage_that_left_something_out_has_not_passed(stages, capsys):
    status, report = stages("good", "part")
    assert status == 1
    assert report["stages"]["part"]["status"] == "incomplete"
    assert report["stages"]["part"]["notes"]["not_checked"] == ["the other half"]
    output = capsys.readouterr().out
    assert "part: not checked: the other half" in output
    assert "1 passed, 0 skipped, 1 incomplete, 0 failed" in output


@pytest.mark.parametrize("name", ["numbers", "policies", "speed"])
def test_a_stage_without_time_is_incomplete(tool, context, monkeypatch, name):
    stage = tool("stage")
    monkeypatch.setattr(stage.Context, "left", lambda self: 0.0)
    monkeypatch.setattr(safeops.diagnostics, "set_raise_mode", lambda mode: None)
    assert stage.run(name, context) == stage.INCOMPLETE
    assert all(what.startswith("no time left from ") for what in context.missing)


def test_the_budget_ends_the_run_and_says_so(stages):
    status, report = stages("good", "good2", budget=0.0)
    assert status == 1
    assert [stage["status"] for stage in report["stages"].values()] == ["no time left"] * 2


def test_stages_fit_into_nine_minutes(tool):
    runner = tool("runner")
    assert sum(stage.seconds for stage in runner.STAGES) <= runner.BUDGET < 540
    for name in runner.NAMES:
        assert (TOOL / f"stage_{name}.py").exists()


@pytest.mark.parametrize(
    ("status", "output", "verdict"),
    [
        (0, "ERROR SUMMARY: 0 errors", "passed"),
        (9, "Invalid __global__ read of size 4 bytes", "FAILED"),
        (9, "Invalid read, unable to go on", "FAILED"),
        (1, "Error: Device not supported", "refused"),
    ],
)
def test_verdicts_of_compute_sanitizer(tool, context, tmp_path, status, output, verdict):
    command = tmp_path / "compute-sanitizer"
    command.write_text(f"#!/bin/sh\necho '{output}'\nexit {status}\n")
    command.chmod(0o755)
    sanitizer = tool("stage_sanitizer")
    assert sanitizer.verdict_of(context, str(command), "memcheck", 20.0).startswith(verdict)
    assert bool(context.wrong) == (verdict == "FAILED")


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        (("passed", "passed", "passed", "passed"), "passed"),
        (("passed", "refused: x", "passed", "passed"), "incomplete"),
        (("passed", "passed", "passed", "not finished in 9 s"), "incomplete"),
        (("refused: x", "refused: x", "refused: x", "refused: x"), "skipped"),
    ],
)
def test_a_tool_that_did_not_finish_leaves_the_stage_incomplete(
    tool, context, monkeypatch, verdicts, status
):
    sanitizer, stage = tool("stage_sanitizer"), tool("stage")
    told = dict(zip(sanitizer.TOOLS, verdicts, strict=True))

    def verdict_of(context, command, name, seconds):
        context.expect(True, "")
        return told[name]

    monkeypatch.setattr(sanitizer, "find", lambda: "compute-sanitizer")
    monkeypatch.setattr(sanitizer, "verdict_of", verdict_of)
    context.dry = False
    codes = {"passed": 0, "incomplete": stage.INCOMPLETE, "skipped": stage.SKIPPED}
    assert stage.run("sanitizer", context) == codes[status]


def test_memory_is_raw_for_the_tool_that_looks_for_reads_of_it(tool, context, tmp_path):
    command = tmp_path / "compute-sanitizer"
    command.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/words\n')
    command.chmod(0o755)
    sanitizer = tool("stage_sanitizer")
    for name in sanitizer.TOOLS:
        sanitizer.verdict_of(context, str(command), name, 60.0)
    raw = [" --raw" in line for line in (tmp_path / "words").read_text().splitlines()]
    assert raw == [name == "initcheck" for name in sanitizer.TOOLS]


@pytest.mark.parametrize("works", [True, False])
def test_a_machine_that_cannot_compile_is_noted_and_fails_nothing(
    tool, context, monkeypatch, works
):
    speed, operations = tool("stage_speed"), tool("operations").OPERATIONS[:1]

    def compile_(call, **options):
        if not works:
            raise RuntimeError("Failed to find C compiler")
        return call

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(speed, "COMPILED_SHAPES", ((16, 8),))
    rows, device = [], tool("accelerator").Cpu()
    speed.grid(context, device, operations, ((16, 8),), torch.float32, rows, 0.0)
    speed.compiled(context, device, operations, rows, 0.0)
    assert ["compiled_us" in row for row in rows] == [works, False]
    assert ("Failed to find C compiler" in context.notes.get("compiled", "")) != works
    assert not context.wrong and not context.missing


def test_errors_are_measured_in_epsilons(tool):
    operations = tool("operations")
    exact = torch.tensor([1.0, 2.0, float("nan"), float("inf")], dtype=torch.float64)
    got = exact.float()
    assert operations.worst_error(got, exact, torch.ones(4)) == 0.0
    got[0] += 3 * torch.finfo(torch.float32).eps
    assert operations.worst_error(got, exact, torch.ones(4)) == pytest.approx(3.0)
    got[3] = 1.0
    assert operations.worst_error(got, exact, torch.ones(4)) == float("inf")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_sameness_is_of_bits_but_for_nan(tool, dtype):
    same = tool("operations").same
    a = torch.tensor([0.0, 1.0, float("nan")], dtype=dtype)
    assert same(a, a.clone())
    assert not same(a, torch.tensor([-0.0, 1.0, float("nan")], dtype=dtype))
    assert not same(a, torch.tensor([0.0, 1.0, 2.0], dtype=dtype))


def test_preparing_needs_a_compiler_and_leaves_what_is_there(
    tool, monkeypatch, folder, tmp_path, capsys
):
    prepare = tool("prepare")
    monkeypatch.setattr(prepare, "find_nvcc", lambda: None)
    assert prepare.prepare(sys.executable, tmp_path / "new", 1) == 2
    assert "no nvcc: nothing was prepared" in capsys.readouterr().out
    before = sorted(folder.rglob("*"))
    assert prepare.prepare(sys.executable, folder, 1) == 0
    assert f"was prepared from None for torch {torch.__version__}" in capsys.readouterr().out
    assert sorted(folder.rglob("*")) == before and not (tmp_path / "new").exists()


@pytest.mark.parametrize("variable", ["CUDACXX", "CUDA_HOME", "CUDA_PATH", "PATH"])
def test_nvcc_is_looked_for_where_cmake_does(tool, monkeypatch, tmp_path, variable):
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch(0o755)
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "PATH"):
        monkeypatch.delenv(name, raising=False)
    prepare = tool("prepare")
    monkeypatch.setattr(prepare, "TOOLKIT", str(tmp_path / "none"))
    assert prepare.find_nvcc() is None
    places = {"CUDACXX": nvcc, "PATH": nvcc.parent}
    monkeypatch.setenv(variable, str(places.get(variable, tmp_path)))
    assert prepare.find_nvcc() == str(nvcc)


def test_a_folder_of_others_is_not_replaced(tool, monkeypatch, tmp_path, capsys):
    prepare = tool("prepare")
    monkeypatch.setattr(prepare, "build", lambda *rest: pytest.fail("built"))
    theirs = tmp_path / "work" / "notes"
    theirs.parent.mkdir()
    theirs.write_text("kept")
    for folder in (theirs.parent, theirs):
        assert prepare.prepare(sys.executable, folder, 1) == 2
        assert "holds something else" in capsys.readouterr().out
    assert theirs.read_text() == "kept"


def test_what_was_prepared_earlier_is_replaced_when_the_new_one_is_complete(
    tool, monkeypatch, folder
):
    prepare = tool("prepare")
    monkeypatch.setattr(prepare, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(prepare, "torch_of", lambda python: ("2.0.0", "13.0"))
    monkeypatch.setattr(prepare, "build", lambda *rest: folder)
    monkeypatch.setattr(prepare, "fill", lambda new, built: new.mkdir())
    monkeypatch.setattr(prepare, "emulated_hashes", lambda program: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare.prepare(sys.executable, folder, 1)
    assert json.loads((folder / "manifest.json").read_text()) == {"torch": torch.__version__}
    monkeypatch.setattr(prepare, "emulated_hashes", lambda program: {"a": "0"})
    assert prepare.prepare(sys.executable, folder, 1) == 0
    assert json.loads((folder / "manifest.json").read_text())["torch"] == "2.0.0"
    assert sorted(path.name for path in folder.iterdir()) == ["hashes.json", "manifest.json"]
    assert [path.name for path in folder.parent.iterdir()] == ["prepared"]
