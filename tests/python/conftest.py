"""Every test starts from level 1, empty counters and no chosen policy.

An import of safeops that fails stops the whole run: nothing here is skipped for want of a build.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

# Read by safeops at import; the tests state their own policies.
os.environ.pop("SAFEOPS_POLICY", None)

import pytest
import torch

import safeops
from samples import DEVICES


# Thousands of tests and all of torch are out of the garbage collector's way.
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


# At its first backward pass the autograd engine counts devices. A fake CUDA tensor has torch
# pretend that there is one, and with one the engine starts threads and forbids forking.
def pytest_sessionstart() -> None:
    torch.ones(1, requires_grad=True).sum().backward()


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    def restore() -> None:
        safeops.diagnostics.set_level(1)
        safeops.diagnostics.reset()
        safeops.set_default_policy()

    restore()
    torch.manual_seed(0)
    yield
    restore()


@pytest.fixture(params=DEVICES)
def every_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs a test on the CPU and, where there is one, on a GPU: its tensors are made there."""
    if request.param == "cpu":
        yield
        return
    # Exact: errors, lines and warnings come with the call, as on the CPU.
    mode = safeops.diagnostics.raise_mode()
    safeops.diagnostics.set_raise_mode("exact")
    torch.set_default_device(request.param)
    yield
    torch.set_default_device(None)
    safeops.diagnostics.set_raise_mode(mode)


@pytest.fixture(autouse=True, scope="session")
def fresh_compile_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # torch's caches on disk do not notice that the library or a tag has changed. The processes of
    # a run share one: precompiled headers take seconds.
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        yield


@pytest.fixture
def threads() -> Iterator[None]:
    """Lets a test set the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cuda_autocast() -> Iterator[None]:
    """CUDA autocast to float16, also on a machine without CUDA."""
    # torch.autocast("cuda") switches itself off where there is no device.
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.float16)
    torch.autocast_increment_nesting()
    yield
    torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    torch.set_autocast_enabled("cuda", enabled)
    torch.set_autocast_dtype("cuda", dtype)


@pytest.fixture
def no_sink_is_left(fresh_state: None) -> Iterator[None]:
    """Checks that a test has removed its sinks."""
    yield
    safeops.diagnostics.set_step(None)
    assert safeops._events.attachments == ()
