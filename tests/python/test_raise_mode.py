"""When policy raise raises on CUDA, and that an error of an earlier call is told in its name.

What the library reports is made up here; `test_cuda_device.py` has kernels do it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import safeops
from safeops import _cuda_library, _deferred, _library, _normalize, diagnostics
from singular_calls import here
from test_import import in_subprocess

SENTENCE = (
    "safeops::normalize: policy 'raise' met a singular row of 5 (zero_norm; at row 1) in a float32 "
    "tensor of shape [5, 3], in an earlier call on cuda:0; use policy 'zero' to continue"
)


@pytest.fixture(autouse=True)
def mode() -> Iterator[None]:
    before = diagnostics.raise_mode()
    yield
    diagnostics.set_raise_mode(before)


def test_the_mode_is_deferred_unless_it_is_set() -> None:
    assert diagnostics.raise_mode() == "deferred"
    diagnostics.set_raise_mode("exact")
    assert diagnostics.raise_mode() == "exact"
    assert "raise mode         exact" in safeops.show_config()


def test_the_environment_is_read_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import safeops; print(safeops.diagnostics.raise_mode())"
    assert in_subprocess(code, SAFEOPS_RAISE_MODE="exact").stdout == "exact\n"
    monkeypatch.setenv("SAFEOPS_RAISE_MODE", "late")
    with pytest.raises(ValueError, match="^SAFEOPS_RAISE_MODE='late': the raise mode must be"):
        _deferred._read_environment()
    monkeypatch.setenv("SAFEOPS_RAISE_MODE", "")
    _deferred._read_environment()


@pytest.mark.parametrize("wrong", ["Exact", "", "never", 1, None])
def test_another_mode_is_refused_and_changes_nothing(wrong: object) -> None:
    diagnostics.set_raise_mode("exact")
    with pytest.raises(ValueError, match=r"set_raise_mode: the raise mode must be 'deferred' or"):
        diagnostics.set_raise_mode(wrong)
    assert diagnostics.raise_mode() == "exact"


@pytest.mark.parametrize("mode_", ["deferred", "exact"])
def test_the_cpu_raises_at_once_in_either_mode(mode_: str) -> None:
    diagnostics.set_raise_mode(mode_)
    with pytest.raises(safeops.SingularityError, match="met 1 singular row of 1"):
        safeops.normalize(torch.zeros(1, 3), policy="raise")
    diagnostics.check()
    (site,) = diagnostics.snapshot().sites
    assert site.filename == __file__


def test_nothing_is_pending_where_nothing_was_called() -> None:
    assert diagnostics.check() is None


class Device:
    """What a CUDA device would report: calls under raise are numbered, one of them has failed."""

    def __init__(self) -> None:
        self.launched = self.raised = 0
        self._numbers = count(1)

    def launch(self, x: torch.Tensor, *rest: object) -> torch.Tensor:
        self.launched = next(self._numbers)
        return x

    def throw(self, *arguments: object) -> torch.Tensor:
        self.raised = self.launched
        raise ValueError(SENTENCE)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    hit = _library.Hit(count=1, first_row=1, dims=2, dtype=b"float32", device=1, raised=1)
    hit.sizes[0], hit.sizes[1] = 5, 3
    monkeypatch.setattr(_cuda_library, "loaded", True)
    monkeypatch.setattr(_library, "last_launch", lambda: device.launched)
    monkeypatch.setattr(_library, "raised_launch", lambda: device.raised)
    monkeypatch.setattr(_library, "last_hit", lambda: hit)
    monkeypatch.setattr(_normalize._normalize, "_functional", device.launch)
    monkeypatch.setattr(_deferred, "_line_of_launch", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return device


def on_cuda() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(5, 3, device="cuda")


def assert_names(error: safeops.SingularityError, line: int | None) -> None:
    assert str(error) == SENTENCE + (
        "" if line is None else f"; it was called at {__file__}:{line}"
    )
    found = (error.operator, error.condition, error.count, error.first_row, error.shape)
    assert found == ("normalize", "zero_norm", 1, 1, (5, 3)) and error.dtype == "float32"


def test_check_names_the_line_of_the_call(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    safeops.normalize(on_cuda(), policy="raise")
    line = here() - 1
    device.raised = device.launched
    monkeypatch.setattr(_library, "check", lambda: (1, SENTENCE))
    with pytest.raises(safeops.SingularityError) as caught:
        diagnostics.check()
    assert_names(caught.value, line)


def test_a_later_call_raises_in_the_name_of_the_earlier_one(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    safeops.normalize(on_cuda(), policy="raise")
    line = here() - 1
    monkeypatch.setattr(_normalize._normalize, "_functional", device.throw)
    with pytest.raises(safeops.SingularityError) as caught:
        safeops.normalize(on_cuda(), policy="zero")
    assert_names(caught.value, line)
    assert caught.value.__cause__ is None
    # The call during which it came has no line, no hit and no event of it.
    assert diagnostics.snapshot().sites == ()


def test_a_call_of_which_nobody_knows_the_line(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.launch(torch.zeros(1))
    monkeypatch.setattr(_normalize._normalize, "_functional", device.throw)
    with pytest.raises(safeops.SingularityError) as caught:
        safeops.normalize(on_cuda())
    assert_names(caught.value, None)


def test_a_call_of_which_the_library_knows_no_more_than_the_row(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "safeops: policy 'raise' met a singular row or element (number 7) in a call"
    monkeypatch.setattr(_library, "check", lambda: (1, sentence))
    with pytest.raises(safeops.SingularityError) as caught:
        diagnostics.check()
    assert (str(caught.value), caught.value.operator) == (sentence, "")


def test_an_error_of_its_own_is_not_taken_for_that_of_an_earlier_call(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> torch.Tensor:
        raise ValueError("safeops::normalize: eps must be finite")

    safeops.normalize(on_cuda(), policy="raise")
    monkeypatch.setattr(_normalize._normalize, "_functional", refuse)
    monkeypatch.setattr(_library, "last_hit", lambda: None)
    with pytest.raises(ValueError, match="eps must be finite") as caught:
        safeops.normalize(on_cuda(), policy="raise")
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("policy", ["stock", "zero", "nan", "epsilon"])
def test_lines_are_kept_under_raise_only(device: Device, policy: str) -> None:
    safeops.normalize(on_cuda(), policy=policy)
    assert _deferred._line_of_launch == {}


def test_a_scope_of_raise_keeps_lines_and_the_oldest_are_let_go(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_deferred, "_REMEMBERED_LAUNCHES", 3)
    x = on_cuda()
    with safeops.policy("raise"):
        for _ in range(5):
            safeops.normalize(x)
    assert list(_deferred._line_of_launch) == [3, 4, 5]


def test_the_line_of_a_call_that_was_captured_is_kept(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_deferred, "_REMEMBERED_LAUNCHES", 0)
    monkeypatch.setattr(_deferred, "_line_of_captured", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    safeops.normalize(on_cuda(), policy="raise")
    device.raised, line = device.launched, here() - 1
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    safeops.normalize(on_cuda(), policy="raise")
    assert _deferred._line_of_launch == {}
    assert_names(_deferred._error(device.raised, SENTENCE), line)


def test_a_device_that_has_failed_is_no_singularity(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_library, "check", lambda: (2, "an illegal memory access"))
    with pytest.raises(RuntimeError, match="a CUDA device has failed: an illegal memory") as caught:
        diagnostics.check()
    assert not isinstance(caught.value, ValueError)


def test_observing_lets_the_error_of_an_earlier_call_through(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    safeops.normalize(on_cuda(), policy="raise")
    monkeypatch.setattr(_normalize._normalize, "_functional", device.throw)
    with safeops.patch(observe=True), pytest.raises(ValueError, match="'raise' met"):
        torch.nn.functional.normalize(torch.zeros(5, 3))
