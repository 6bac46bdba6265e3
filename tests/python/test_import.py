"""What import safeops needs, reads and says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import safeops
from safeops import _policy

OPERATORS = (
    *("normalize", "softmax", "log_softmax", "logsumexp"),
    *("div", "reciprocal", "rsqrt", "sqrt", "log"),
)


def in_subprocess(code: str, *first: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "SAFEOPS_POLICY"}
    search_path = os.pathsep.join([*first, *(path for path in sys.path if path)])
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**inherited, "PYTHONPATH": search_path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def import_error(code: str, *first: str, **environment: str) -> str:
    done = in_subprocess(code, *first, **environment)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


# Environment


@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("", {}),
        ("zero", dict.fromkeys(OPERATORS, "zero")),
        ("normalize=nan", {"normalize": "nan"}),
        ("softmax=nan,log_softmax=zero", {"softmax": "nan", "log_softmax": "zero"}),
        ("zero,normalize=nan", dict.fromkeys(OPERATORS, "zero") | {"normalize": "nan"}),
        (" softmax = nan , zero ", dict.fromkeys(OPERATORS, "zero") | {"softmax": "nan"}),
    ],
)
def test_environment_is_parsed(monkeypatch, text, policies) -> None:
    monkeypatch.setenv("SAFEOPS_POLICY", text)
    assert _policy._from_environment() == policies


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("zeros", "the default policy must be one of 'stock', 'nan', 'epsilon', 'zero', 'raise'"),
        ("normalize=ignore", "the policy of normalize must be one of"),
        ("normalise=zero", f"the name of an operator ({', '.join(OPERATORS)}), got 'normalise'"),
        ("zero,nan", "got 'nan' as a second one"),
        ("normalize=zero,normalize=nan", "got 'normalize=nan' as a second one"),
        ("zero,", "the default policy must be one of"),
        (",", "the default policy must be one of"),
    ],
)
def test_bad_environment_is_refused(monkeypatch, text, sentence) -> None:
    monkeypatch.setenv("SAFEOPS_POLICY", text)
    with pytest.raises(ValueError, match=rf"^SAFEOPS_POLICY={text!r}: .*{re.escape(sentence)}"):
        _policy._from_environment()


def test_environment_comes_after_the_default() -> None:
    code = (
        "import safeops; resolve = lambda: print(safeops._policy.resolve('normalize')[0])\n"
        "resolve(); safeops.set_default_policy('nan'); resolve()\n"
        "with safeops.policy('zero'): resolve()\n"
        "safeops.set_default_policy(); resolve()"
    )
    done = in_subprocess(code, SAFEOPS_POLICY="normalize=epsilon")
    assert done.stdout.split() == ["epsilon", "nan", "zero", "epsilon"], done.stderr


def test_bad_environment_stops_the_import() -> None:
    message = import_error("import safeops", SAFEOPS_POLICY="zeros")
    assert message.startswith("ValueError: SAFEOPS_POLICY='zeros': the default policy must be one")


# What the package says about itself


def test_show_config() -> None:
    with safeops.policy("zero", eps=1e-3):
        lines = dict(line.split(maxsplit=1) for line in safeops.show_config().splitlines())
    assert lines["safeops"] == safeops.__version__
    assert torch.__version__ in lines["torch"]
    for operator in OPERATORS:
        assert lines[operator] == "zero, eps=0.001"
    assert "nobody chose" in safeops.show_config()


def test_another_torch_is_refused_by_name() -> None:
    code = "import torch; torch.__version__ = '2.99.1'; import safeops"
    message = import_error(code)
    assert message.startswith("ImportError: safeops: the library was built for torch 2.")
    assert "but torch 2.99.1 is running" in message
    assert "make build" in message


def test_missing_library_is_explained(tmp_path) -> None:
    package = Path(safeops.__file__).parent
    shutil.copytree(package, tmp_path / "safeops", ignore=shutil.ignore_patterns("lib"))
    message = import_error("import safeops", str(tmp_path))
    assert message.startswith("ImportError: safeops: the shared library ")
    assert "is missing; build it with `make build`" in message
