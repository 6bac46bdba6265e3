"""A pytest plugin: the whole session runs under the patch that SAFEOPS_CLIENT_PATCH names.

``observe``, a policy, or nothing. Given to a package's own suite with ``-p patched_session``.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack

import pytest

_outcomes: dict[str, str] = {}
_patch = ExitStack()


def pytest_sessionstart() -> None:
    chosen = os.environ.get("SAFEOPS_CLIENT_PATCH")
    if chosen:
        import safeops

        arguments = {"observe": True} if chosen == "observe" else {"policy": chosen}
        _patch.enter_context(safeops.patch(**arguments))


def pytest_runtest_setup() -> None:
    import torch

    # A test that draws numbers is the same test in every session.
    torch.manual_seed(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # The first phase or subtest that did not pass is what became of the test.
    if _outcomes.get(report.nodeid, "passed") == "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    import torch

    import safeops

    # One call tells whether the patch is still in force after the last test.
    safeops.diagnostics.reset()
    torch.nn.functional.normalize(torch.zeros(1, 2))
    probe_hits = safeops.diagnostics.snapshot().total("normalize", direction="forward")
    _patch.close()
    with open(os.environ["SAFEOPS_CLIENT_OUTCOMES"], "w") as file:
        json.dump({"outcomes": _outcomes, "probe_hits": probe_hits}, file)
