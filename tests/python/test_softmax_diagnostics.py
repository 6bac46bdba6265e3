"""Policies, counters and call lines of the softmax family: each operator has its own."""

from __future__ import annotations

import math
import pickle
import threading
import warnings

import pytest
import torch
from torch.overrides import TorchFunctionMode

import safeops
from safeops import diagnostics
from samples import POLICIES
from singular_calls import here
from softmax_samples import INF, NAMES, call


def rows(empty: int, regular: int = 2) -> torch.Tensor:
    """Regular rows, then empty rows."""
    return torch.cat([torch.zeros(regular, 3), torch.full((empty, 3), -INF)])


def sites() -> list[tuple[str, int, str, int, int]]:
    return [
        (site.filename, site.lineno, site.operator, site.forward, site.backward)
        for site in diagnostics.snapshot().sites
    ]


def effective_policy(name: str, **arguments: object) -> str:
    """Tells stock (with nan), zero (with epsilon) and raise apart by the gradient."""
    x = torch.full((3,), -INF, requires_grad=True)
    try:
        y = call(name, x, 0, **arguments)
    except safeops.SingularityError:
        return "raise"
    y.sum().backward()
    return "nan" if math.isnan(x.grad[0].item()) else "zero"


# Policies


@pytest.mark.filterwarnings("ignore::safeops.SingularityWarning")
@pytest.mark.parametrize("name", NAMES)
def test_order_of_precedence(name: str) -> None:
    assert effective_policy(name) == "nan"
    safeops.set_default_policy("zero")
    assert effective_policy(name) == "zero"
    with safeops.policy("raise"):
        assert effective_policy(name) == "raise"
        assert effective_policy(name, policy="zero") == "zero"
        with safeops.policy(**{name: "nan"}):
            assert effective_policy(name) == "nan"
        with safeops.policy("zero", **{name: "nan"}):
            assert effective_policy(name) == "nan"
            with safeops.policy("raise"):
                assert effective_policy(name) == "raise"
    safeops.set_default_policy(**{name: "nan"})
    assert effective_policy(name) == "nan"


@pytest.mark.parametrize("name", NAMES)
def test_operators_do_not_share_an_entry(name: str) -> None:
    with safeops.policy("zero", **{name: "raise"}):
        for other in NAMES:
            assert effective_policy(other) == ("raise" if other == name else "zero")
        zero = torch.zeros(1, 3, requires_grad=True)
        safeops.normalize(zero).sum().backward()
        assert (zero.grad == 0).all()


def test_softmin_follows_softmax() -> None:
    with safeops.policy("zero", softmax="raise"), pytest.raises(safeops.SingularityError):
        safeops.softmin(-rows(1), -1)
    with safeops.policy("raise", softmax="zero"):
        assert (safeops.softmin(-rows(1), -1)[2] == 0).all()


def test_the_eps_of_a_scope_is_the_floor_of_log_softmax() -> None:
    with safeops.policy("epsilon", eps=0.5):
        y = safeops.log_softmax(rows(1), -1)
        assert safeops.softmax(rows(1), -1)[2].tolist() == [0, 0, 0]
        assert safeops.logsumexp(rows(1), -1)[2] == -INF
    torch.testing.assert_close(y[2], torch.full((3,), math.log(0.5)))


def test_show_config_has_a_line_for_each_operator() -> None:
    with safeops.policy("nan", softmax="zero", logsumexp="raise"):
        lines = dict(line.split(maxsplit=1) for line in safeops.show_config().splitlines())
    assert (lines["softmax"], lines["log_softmax"], lines["logsumexp"]) == ("zero", "nan", "raise")
    assert "softmin" not in lines


# Counters


@pytest.mark.parametrize("name", NAMES)
def test_forward_and_backward_are_counted(name: str) -> None:
    x = rows(3).requires_grad_()
    call(name, x, policy="zero").nan_to_num().sum().backward()
    record = {"operator": name, "condition": "empty_row", "device": "cpu"}
    assert diagnostics.snapshot().records == (
        diagnostics.Record(**record, direction="forward", count=3, first_row=2),
        diagnostics.Record(**record, direction="backward", count=3, first_row=2),
    )
    assert diagnostics.snapshot().total() == 6
    assert diagnostics.snapshot().total("normalize") == 0


@pytest.mark.parametrize("name", NAMES)
def test_notices_are_no_hits(name: str, recwarn: pytest.WarningsRecorder) -> None:
    x = rows(0)
    x[0, 1] = INF
    x[1] = torch.finfo(torch.float32).min
    call(name, x)
    snapshot = diagnostics.snapshot()
    assert snapshot.total() == 0 and snapshot.sites == () and not recwarn.list
    assert snapshot.total(name, "nonfinite_input") == snapshot.total(name, "finite_min_row") == 1


@pytest.mark.parametrize("name", NAMES)
def test_level_2_describes_the_first_offender(name: str) -> None:
    diagnostics.set_level(2)
    call(name, torch.full((2, 4, 3), -INF, dtype=torch.float64), policy="zero")
    call(name, rows(1), policy="zero")
    (record,) = diagnostics.snapshot().records
    assert (record.count, record.shape, record.dtype) == (9, (2, 4, 3), "float64")


@pytest.mark.parametrize("name", NAMES)
def test_level_0_records_nothing_and_still_raises(name: str) -> None:
    diagnostics.set_level(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(name, rows(1))
    with pytest.raises(safeops.SingularityError, match="met 1 singular row") as raised:
        call(name, rows(1), policy="raise")
    assert (raised.value.operator, raised.value.first_row) == (name, 2)
    assert diagnostics.snapshot().records == ()


# Call lines


@pytest.mark.parametrize("name", NAMES)
def test_a_backward_hit_belongs_to_the_line_of_its_forward_call(name: str) -> None:
    x = rows(2).requires_grad_()
    first = call_here(name, x)
    second = call_here(name, x[1:])
    first.nan_to_num().sum().backward()
    assert sites() == [(__file__, LINE, name, 4, 2)]
    second.nan_to_num().sum().backward()
    assert sites() == [(__file__, LINE, name, 4, 4)]


def call_here(name: str, x: torch.Tensor) -> torch.Tensor:
    return getattr(safeops, name)(x, -1, policy="zero")


LINE = call_here.__code__.co_firstlineno + 1


def test_operators_of_one_line_are_told_apart() -> None:
    x = rows(1).requires_grad_()
    line = here() + 1
    y = safeops.softmax(x, -1, policy="zero") + safeops.logsumexp(x, -1, True, policy="zero")
    y.nan_to_num().sum().backward()
    assert sorted(sites()) == [
        (__file__, line, "logsumexp", 1, 1),
        (__file__, line, "softmax", 1, 1),
    ]


def test_lines_behind_softmin_modes_and_vmap() -> None:
    class Passes(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    x = rows(1)
    line = here()
    safeops.softmin(-x, -1, policy="zero")
    with Passes():
        safeops.softmax(x, -1, policy="zero")
    torch.vmap(safeops.log_softmax, in_dims=(0, None))(x, -1, policy="zero")
    assert [site[1] for site in sites()] == [line + 1, line + 3, line + 4]


def test_a_torch_function_mode_sees_every_function_and_may_change_the_call() -> None:
    seen: list[object] = []

    class ForceZero(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if getattr(function, "__module__", "").startswith("safeops"):
                seen.append(function)
                kwargs["policy"] = "zero"
            return function(*args, **kwargs)

    x = rows(1)
    with ForceZero():
        for name in (*NAMES, "softmin"):
            y = getattr(safeops, name)(x if name != "softmin" else -x, -1, policy="nan")
            assert not y.isnan().any()
    functions = [getattr(safeops, name) for name in (*NAMES, "softmin")]
    assert [function for function in seen if function in functions][:4] == functions


@pytest.mark.parametrize("name", NAMES)
def test_threads_lose_no_count(name: str) -> None:
    threads, calls = 4, 25

    def work() -> None:
        for _ in range(calls):
            x = rows(2).requires_grad_()
            call_here(name, x).nan_to_num().sum().backward()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expected = 2 * threads * calls
    assert diagnostics.snapshot().total(name, direction="forward") == expected
    assert diagnostics.snapshot().total(name, direction="backward") == expected
    ((_, line, _, forward, _),) = sites()
    assert (line, forward) == (LINE, expected)


@pytest.mark.parametrize("name", NAMES)
def test_errors_survive_pickling_and_name_their_line(name: str) -> None:
    with pytest.raises(safeops.SingularityError) as raised:
        getattr(safeops, name)(rows(1), -1, policy="raise")
    line = here() - 1
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), vars(copy)) == (str(raised.value), vars(raised.value))
    assert sites() == [(__file__, line, name, 1, 0)]


@pytest.mark.parametrize("name", NAMES)
def test_warnings_are_issued_once_a_line_and_not_where_somebody_chose(name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for policy in POLICIES[:-1]:
            call(name, rows(1), policy=policy)
        with safeops.policy(**{name: "stock"}):
            call(name, rows(1))
        assert caught == []
        for _ in range(3):
            call(name, rows(1))
        assert len(caught) == 1
        diagnostics.reset()
        call(name, rows(1))
    assert len(caught) == 2
    assert {warning.category for warning in caught} == {safeops.SingularityWarning}
