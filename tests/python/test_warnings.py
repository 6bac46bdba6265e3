"""The warning of a call that hits while nobody has chosen a policy."""

from __future__ import annotations

import threading
import warnings

import pytest

import safeops
from safeops import diagnostics
from singular_calls import here, rows


def hit_and_catch(times: int, **arguments) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            safeops.normalize(rows(2), dim=-1, **arguments)
    return caught


def test_one_warning_for_each_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            line = here()
            safeops.normalize(rows(2), dim=-1)
            safeops.normalize(rows(2), dim=-1)
    assert [(warning.filename, warning.lineno) for warning in caught] == [
        (__file__, line + 1),
        (__file__, line + 2),
    ]
    assert {warning.category for warning in caught} == {safeops.SingularityWarning}


def test_a_line_warns_again_after_a_reset() -> None:
    assert len(hit_and_catch(2)) == 1
    assert len(hit_and_catch(2)) == 0
    diagnostics.reset()
    assert len(hit_and_catch(2)) == 1


def test_the_warning_says_what_happened_and_what_to_do() -> None:
    (caught,) = hit_and_catch(1)
    for part in (
        "safeops.normalize: 2 of 4 rows are singular (zero_norm, first at row 2)",
        "float32 tensor of shape [4, 3]",
        "up to 1e+12 times grad",
        "policy='zero', 'nan', 'epsilon' or 'raise'",
        "policy='stock' to keep this without the warning",
    ):
        assert part in str(caught.message)


def test_the_warning_names_the_eps_of_the_call() -> None:
    (caught,) = hit_and_catch(1, eps=1e-3)
    assert "grad / 0.001, up to 1e+03 times grad" in str(caught.message)
    diagnostics.reset()
    (caught,) = hit_and_catch(1, eps=0.0)
    assert "grad / 0, up to inf times grad" in str(caught.message)


@pytest.mark.parametrize("policy", ("stock", "nan", "epsilon", "zero"))
def test_no_warning_where_somebody_chose(policy) -> None:
    assert hit_and_catch(1, policy=policy) == []
    with safeops.policy(policy):
        assert hit_and_catch(1) == []
    safeops.set_default_policy(policy)
    assert hit_and_catch(1) == []
    safeops.set_default_policy()
    assert len(hit_and_catch(1)) == 1


def test_warnings_as_errors_raise_at_the_line_every_time() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(safeops.SingularityWarning) as raised:
                safeops.normalize(rows(2), dim=-1)
            line = here() - 1
            own = [entry for entry in raised.traceback if str(entry.path) == __file__]
            assert own[-1].lineno + 1 == line


def test_warning_filters_see_the_module_of_the_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=__name__.replace(".", r"\."))
        safeops.normalize(rows(2), dim=-1)
    assert caught == []


def test_threads_warn_once_for_one_line() -> None:
    meet = threading.Barrier(4)

    def work() -> None:
        meet.wait(60)
        safeops.normalize(rows(2), dim=-1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert len(caught) == 1
