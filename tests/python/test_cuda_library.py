"""The library with the CUDA kernels: loaded without a GPU, and a sentence where it is not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

import safeops
from safeops import _cuda_library, _library
from test_import import in_subprocess

PACKAGE = Path(safeops.__file__).parent
LIBRARY = PACKAGE / "lib" / "libsafeops_torch_cuda.so"

# Fake tensors that get to the kernels of real ones, in a process of its own. Into `out`, because
# the driver would be asked for memory; logsumexp asks for some all the same.
CALLS = """
import torch, safeops
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    x, out = (torch.empty(3, 4, device="cuda") for _ in range(2))
operators = torch.ops.safeops
for call in (
    lambda: operators.normalize.out(x, out=out), lambda: operators.softmax.out(x, -1, out=out),
    lambda: operators.log_softmax.out(x, -1, out=out), lambda: operators.div.out(x, x, out=out),
    lambda: operators.div.Scalar_out(x, 2.0, out=out), lambda: operators.log.out(x, out=out),
    lambda: operators.reciprocal.out(x, out=out), lambda: operators.rsqrt.out(x, out=out),
    lambda: operators.sqrt.out(x, out=out),
):
    with torch._C._DisableTorchDispatch():
        try:
            call()
        except NotImplementedError as error:
            print(error)
print(torch.cuda.is_initialized(), safeops.cuda.is_available())
print(safeops.cuda.why_unavailable())
"""
SENTENCE = "safeops::{}: input is on cuda:0, for which no kernels are loaded: "
OPERATORS = ("normalize", "softmax", "log_softmax", "div", "div", "log")
OPERATORS += ("reciprocal", "rsqrt", "sqrt")


def test_it_is_loaded_where_it_was_built_and_torch_has_cuda() -> None:
    expected = LIBRARY.exists() and torch.version.cuda is not None
    assert _cuda_library.loaded == bool(_library.has_cuda()) == expected
    assert (_cuda_library.reason_for_absence is None) == expected
    if not (expected and torch.cuda.is_available()):
        assert not safeops.cuda.is_available() and safeops.cuda.why_unavailable()
    lines = dict(line.split("  ", 1) for line in safeops.show_config().splitlines() if "  " in line)
    assert (lines["CUDA kernels"].strip() == "loaded") == expected


@pytest.mark.skipif(not _cuda_library.loaded, reason=str(_cuda_library.reason_for_absence))
def test_loading_it_needs_no_gpu_and_initialises_nothing() -> None:
    code = (
        "import re, torch, safeops\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(torch.cuda.is_initialized(), safeops._cuda_library.loaded)\n"
        "print(len(set(re.findall(r'/\\S*/libcudart\\S*', maps))))\n"
        "print(len(set(re.findall(r'/\\S*/libsafeops\\S*', maps))))\n"
        "safeops.diagnostics.check(), safeops.diagnostics.snapshot(), safeops.diagnostics.reset()\n"
        "print(torch.cuda.is_initialized())"
    )
    done = in_subprocess(code)
    assert done.stdout.splitlines() == ["False True", "1", "2", "False"], done.stderr


def test_without_it_a_call_says_why_and_what_to_do(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(LIBRARY.name, "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "safeops", ignore=ignored)
    done = in_subprocess(CALLS, str(tmp_path))
    *sentences, state, why = done.stdout.splitlines()
    assert re.match("safeops was built without libsafeops_torch_cuda.so .*; build it again", why)
    assert sentences == [SENTENCE.format(name) + why for name in OPERATORS], done.stderr
    assert state == "False False"


def test_one_that_does_not_load_is_named_with_the_error(tmp_path: Path) -> None:
    (tmp_path / LIBRARY.name).write_bytes(b"not a library")
    reason = _cuda_library._load(tmp_path / LIBRARY.name)
    assert re.search(r"torch_cuda.so does not load into torch .*: .*too short; build", reason)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFEOPS_CUDA", "0")
    assert _cuda_library._load(LIBRARY) == (
        "SAFEOPS_CUDA=0 in the environment switches them off; unset it before the import"
    )


def test_a_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is built without CUDA; install a torch that has it" in _cuda_library._load(LIBRARY)


def test_a_patched_call_reaches_ours_only_where_it_has_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from safeops._stock_calls import TABLE

    normalize, div = TABLE[torch.nn.functional.normalize], TABLE[torch.div]
    sqrt, rsqrt_or_other = TABLE[torch.sqrt], TABLE[torch.pow]
    with FakeTensorMode():
        x = torch.empty(3, 4, device="cuda")
        n, z = torch.empty_like(x, dtype=torch.int32), torch.empty_like(x, dtype=torch.complex64)
        served = [
            (normalize, (x,)),
            (normalize, (x, 1)),
            (normalize, (x, float("inf"))),
            (normalize, (z,)),
            (div, (x, n)),
            (div, (n, n)),
            (div, (n, 2.5), {"rounding_mode": "floor"}),
            (sqrt, (n,)),
            (rsqrt_or_other, (x, -0.5)),
        ]
        stock = [
            (normalize, (x, 3.0)),
            (normalize, (x, 0)),
            (normalize, (z, 1)),
            (div, (z, x)),
            (div, (x, 1j)),
            (div, (n, n), {"rounding_mode": "trunc"}),
            (div, (n, 2), {"rounding_mode": "floor"}),
            (sqrt, (z,)),
        ]
        for loaded in (True, False):
            monkeypatch.setattr(_cuda_library, "loaded", loaded)
            for reading, arguments, *keywords in served:
                call = reading.call(arguments, *keywords or [{}])
                assert (call is not None) == loaded, arguments
            for reading, arguments, *keywords in stock:
                assert reading.call(arguments, *keywords or [{}]) is None, arguments
