"""Tests of other people's packages, unmodified; not part of the suite in tests/python.

Everything runs offline on random or bundled data. A package that is missing, or another version
than pyproject.toml pins, is an error: nothing here is skipped.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
os.environ.pop("SAFEOPS_POLICY", None)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch

import safeops


def pytest_sessionstart() -> None:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    extra = re.search(r"^clients = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert extra is not None
    pins = re.findall(r'"([\w-]+)==([^"]+)"', extra[1])
    wrong = [f"{name} {version(name)}" for name, pin in pins if version(name) != pin]
    if wrong or not pins:
        raise pytest.UsageError(f"run tools/bootstrap clients: other than pinned: {wrong or text}")


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    def restore() -> None:
        safeops.diagnostics.set_level(1)
        safeops.diagnostics.reset()
        safeops.set_default_policy()

    restore()
    yield
    restore()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    # Models this small gain nothing from a second one.
    torch.set_num_threads(1)
