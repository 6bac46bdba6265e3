"""tools/cuda_registers.py finds spills, growth, kernels unknown to the table and kernels gone."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("cuda_registers", ROOT / "tools/cuda_registers.py")
cuda_registers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cuda_registers)

ROWS = "_ZN7safeops6device4rowsIfLi4EEEvPT_"
HALVES = "_ZN7safeops6device4rowsItLi4EEEvPT_"


def entry(name=ROWS, registers=40, stack=0, stores=0, loads=0, arch="sm_90"):
    return (
        f"ptxas info    : Compiling entry function '{name}' for '{arch}'\n"
        f"ptxas info    : Function properties for {name}\n"
        f"    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 1 barriers, 8 bytes smem\n"
        "ptxas info    : Compile time = 10.024 ms\n"
    )


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Runs the tool on logs, given as text by name, with a table of its own."""
    monkeypatch.setattr(cuda_registers, "TABLE", tmp_path / "cuda_registers.tsv")

    def run(*options, **logs):
        paths = []
        for name, text in logs.items():
            paths.append(tmp_path / (name.replace("__", ".") + ".log"))
            paths[-1].write_text("ptxas info    : 0 bytes gmem\n" + text)
        status = cuda_registers.main([*options, *map(str, paths)])
        return status, capsys.readouterr().out

    run.table = tmp_path / "cuda_registers.tsv"
    return run


def test_update_writes_a_readable_table_that_then_passes(check):
    log = entry() + entry(HALVES, 32)
    assert check("--update", rows__sm_90=log) == (
        0,
        "cuda_registers: 2 kernels (sm_90), 0 findings\n",
    )
    assert check.table.read_text() == (
        "source\tkernel\tsm_90\nrows\trows<float, 4>\t40\nrows\trows<unsigned short, 4>\t32\n"
    )
    assert check(rows__sm_90=log)[0] == 0


def test_a_few_more_registers_pass_and_one_above_fails(check):
    check("--update", rows__sm_90=entry())
    assert check(rows__sm_90=entry(registers=40 + cuda_registers.SLACK))[0] == 0
    status, output = check(rows__sm_90=entry(registers=41 + cuda_registers.SLACK))
    assert status == 1
    assert "rows: rows<float, 4> for sm_90: 49 registers, 40 in cuda_registers.tsv" in output


@pytest.mark.parametrize("spill", [{"stack": 8}, {"stores": 4}, {"loads": 4}])
def test_stack_or_spills_fail_and_no_update_hides_them(check, spill):
    status, output = check("--update", rows__sm_90=entry(**spill))
    assert status == 1
    assert "bytes of stack" in output


def test_a_called_function_with_stack_fails(check):
    function = (
        "ptxas info    : Function properties for __internal_slow\n"
        "    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    )
    status, output = check("--update", rows__sm_90=entry() + function)
    assert status == 1
    assert "__internal_slow for sm_90: 16 bytes of stack" in output
    assert "1 kernels" in output


def test_unknown_kernels_and_lost_kernels_fail(check):
    check("--update", rows__sm_90=entry())
    status, output = check(rows__sm_90=entry(HALVES))
    assert status == 1
    assert "rows<unsigned short, 4> for sm_90 is not in" in output
    assert "rows<float, 4> for sm_90 is in cuda_registers.tsv only" in output


def test_architectures_that_were_not_read_stay_in_the_table(check):
    check("--update", rows__sm_75=entry(arch="sm_75"), rows__sm_120=entry(arch="sm_120"))
    check("--update", rows__sm_120=entry(registers=50, arch="sm_120"))
    assert (
        check.table.read_text() == "source\tkernel\tsm_75\tsm_120\nrows\trows<float, 4>\t40\t50\n"
    )
    assert check(rows__sm_75=entry(arch="sm_75"))[0] == 0


def test_a_kernel_in_an_unnamed_namespace_keeps_its_name(check):
    name = "_ZN7safeops57_INTERNAL_50e3b2a4_7_rows_cu_f1b2c3d4_12345674rowsEPf"
    assert cuda_registers.short("safeops::_INTERNAL_1_rows_cu_2::rows(float*)") == "rows"
    assert check("--update", rows__sm_90=entry(name))[0] == 0


def test_logs_of_another_kind_are_refused(check):
    broken = entry().replace("Used 40 registers", "used them")
    with pytest.raises(SystemExit, match="not one of ptxas -v"):
        check(rows__sm_90=broken)
    with pytest.raises(SystemExit, match="is not named"):
        check(rows=entry())


def test_of_an_unknown_architecture_only_spills_are_checked(check):
    check("--update", rows__sm_90=entry())
    status, output = check(rows__sm_89=entry(registers=200, arch="sm_89"))
    assert status == 0
    assert "sm_89 is not in cuda_registers.tsv: only spills were checked" in output
    assert check(rows__sm_89=entry(stack=8, arch="sm_89"))[0] == 1


def test_without_a_table_every_kernel_is_unknown(check):
    status, output = check(rows__sm_90=entry())
    assert status == 1
    assert "rows<float, 4> for sm_90 is not in" in output


def test_the_committed_table_has_every_architecture():
    table = cuda_registers.read_table((ROOT / "tools" / "cuda_registers.tsv").read_text())
    assert cuda_registers.architectures(table) == {"sm_75", "sm_80", "sm_90", "sm_100", "sm_120"}
    assert all(len(row) == 5 for row in table.values())


def test_nothing_read_is_a_failure(check):
    assert check(rows__sm_90="")[0] == 1
    assert check()[0] == 1
