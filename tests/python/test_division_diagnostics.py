"""Policies, counters and call lines of the division family."""

from __future__ import annotations

import math
import pickle
import threading
import warnings

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import safeops
from division_samples import EPS, NAMES, ZERO_CONDITION, call, numbers, operands
from safeops import diagnostics
from singular_calls import here


def sites() -> list[tuple[str, int, str, int, int]]:
    return [
        (site.filename, site.lineno, site.operator, site.forward, site.backward)
        for site in diagnostics.snapshot().sites
    ]


def effective_policy(name: str, **arguments: object) -> str:
    """Tells the policies apart by value and gradient of an element below eps."""
    x = torch.tensor([EPS / 2], requires_grad=True)
    operands = (torch.ones(1), x) if name == "div" else (x,)
    try:
        y = call(name, *operands, eps=EPS, **arguments)
    except safeops.SingularityError:
        return "raise"
    if y.isnan():
        return "nan"
    y.sum().backward()
    if x.grad != 0:
        return "stock"
    return "zero" if y == 0 else "epsilon"


# Policies


@pytest.mark.filterwarnings("ignore::safeops.SingularityWarning")
@pytest.mark.parametrize("name", NAMES)
def test_order_of_precedence(name: str) -> None:
    assert effective_policy(name) == "stock"
    safeops.set_default_policy("zero")
    assert effective_policy(name) == "zero"
    with safeops.policy("raise"):
        assert effective_policy(name) == "raise"
        assert effective_policy(name, policy="epsilon") == "epsilon"
        with safeops.policy(**{name: "nan"}):
            assert effective_policy(name) == "nan"
        with safeops.policy("zero", **{name: "nan"}):
            assert effective_policy(name) == "nan"
    safeops.set_default_policy(**{name: "epsilon"})
    assert effective_policy(name) == "epsilon"


@pytest.mark.parametrize("name", NAMES)
def test_operators_do_not_share_an_entry(name: str) -> None:
    with safeops.policy("zero", **{name: "nan"}):
        for other in NAMES:
            assert effective_policy(other) == ("nan" if other == name else "zero")


def test_the_eps_of_a_scope_is_the_floor() -> None:
    zero = torch.zeros(1)
    with safeops.policy("epsilon", eps=EPS):
        assert safeops.div(torch.ones(1), zero).item() == 1 / EPS
        assert safeops.true_divide(torch.ones(1), 0).item() == 1 / EPS
        assert safeops.reciprocal_(zero.clone()).item() == 1 / EPS
        assert safeops.rsqrt(zero).item() == 32
        assert safeops.sqrt(zero).item() == 1 / 32
        torch.testing.assert_close(safeops.log(zero).item(), math.log(EPS))


def test_show_config_has_a_line_for_each_operator() -> None:
    with safeops.policy("nan", div="zero", log="raise"):
        lines = dict(line.split(maxsplit=1) for line in safeops.show_config().splitlines())
    assert [lines[name] for name in NAMES] == ["zero", "nan", "nan", "nan", "raise"]
    assert "true_divide" not in lines and "divide" not in lines


# Counters


@pytest.mark.parametrize("name", NAMES)
def test_forward_and_backward_are_counted(name: str) -> None:
    tensors = [t.requires_grad_() for t in operands(name, torch.float32, zeros=0)]
    with torch.no_grad():
        tensors[-1][1, 1:4] = EPS / 2
        tensors[-1][2, 5] = 0
    call(name, *tensors, eps=EPS, policy="zero").sum().backward()
    below = {"operator": name, "condition": "below_eps", "device": "cpu", "count": 3}
    zero = {"operator": name, "condition": ZERO_CONDITION[name], "device": "cpu", "count": 1}
    records = {
        diagnostics.Record(**below, direction="forward", first_row=7),
        diagnostics.Record(**below, direction="backward", first_row=7),
        diagnostics.Record(**zero, direction="backward", first_row=17),
    }
    if name != "sqrt":
        records.add(diagnostics.Record(**zero, direction="forward", first_row=17))
    assert set(diagnostics.snapshot().records) == records


@pytest.mark.parametrize("name", NAMES)
def test_nan_and_infinity_are_no_hits_and_no_notices(name: str) -> None:
    x = torch.tensor([math.nan, math.inf, 1.0], requires_grad=True)
    call(name, *((x, x) if name == "div" else (x,))).sum().backward()
    assert diagnostics.snapshot() == diagnostics.Snapshot((), ())


@pytest.mark.parametrize("name", NAMES)
def test_level_2_describes_the_first_offender(name: str) -> None:
    diagnostics.set_level(2)
    x = numbers(torch.float64, (2, 4, 3))
    x[1, 2, 1] = -1 if name == "sqrt" else 0
    if name == "div":
        safeops.div(torch.ones(4, 1, dtype=torch.float64), x, policy="zero")
    else:
        call(name, x, policy="zero")
    (record,) = diagnostics.snapshot().records
    assert (record.count, record.shape, record.dtype) == (1, (2, 4, 3), "float64")
    assert record.first_row == 12 + 6 + 1


@pytest.mark.parametrize("name", NAMES)
def test_level_0_records_nothing_and_still_raises(name: str) -> None:
    diagnostics.set_level(0)
    tensors = [t.requires_grad_() for t in operands(name, torch.float32)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(name, *tensors).sum().backward()
        call(name, *tensors)
    if name != "sqrt":
        with pytest.raises(safeops.SingularityError, match="met 1 singular element") as raised:
            call(name, *tensors, policy="raise")
        assert (raised.value.operator, raised.value.first_row) == (name, 0)
    diagnostics.set_level(1)
    assert diagnostics.snapshot() == diagnostics.Snapshot((), ())


# Call lines


def call_here(name: str, *tensors: torch.Tensor) -> torch.Tensor:
    return getattr(safeops, name)(*tensors, policy="zero")


LINE = call_here.__code__.co_firstlineno + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_backward_hit_belongs_to_the_line_of_its_forward_call(name: str) -> None:
    tensors = [t.requires_grad_() for t in operands(name, torch.float32, zeros=2)]
    first, second = call_here(name, *tensors), call_here(name, *tensors)
    forward = 0 if name == "sqrt" else 4
    first.sum().backward()
    assert sites() == [(__file__, LINE, name, forward, 2)]
    second.sum().backward()
    assert sites() == [(__file__, LINE, name, forward, 4)]


def test_lines_of_every_function() -> None:
    zero, one = torch.zeros(1), torch.ones(1)
    line = here()
    safeops.true_divide(one, zero, policy="zero")
    safeops.divide(one, 0, policy="zero")
    safeops.div_(one.clone(), zero, policy="zero")
    safeops.true_divide_(one.clone(), 0, policy="zero")
    safeops.reciprocal_(zero.clone(), policy="zero")
    safeops.rsqrt_(zero.clone(), policy="zero")
    safeops.log_(zero.clone(), policy="zero")
    safeops.sqrt_(zero.clone() - 1, policy="zero")
    safeops.log(zero, out=torch.empty(1), policy="zero")
    names = ["div"] * 4 + ["reciprocal", "rsqrt", "log", "sqrt", "log"]
    assert sites() == [(__file__, line + i, name, 1, 0) for i, name in enumerate(names, start=1)]


def test_lines_behind_modes_and_vmap() -> None:
    class Passes(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    zero = torch.zeros(1)
    line = here()
    with Passes():
        safeops.true_divide(zero, zero, policy="zero")
        safeops.log_(zero.clone(), policy="zero")
    torch.vmap(safeops.rsqrt)(zero, policy="zero")
    assert [site[1] for site in sites()] == [line + 2, line + 3, line + 4]


FUNCTIONS = (*NAMES, "true_divide")
IN_PLACE = tuple(f"{name}_" for name in FUNCTIONS)


def test_a_torch_function_mode_sees_every_function_and_may_change_the_call() -> None:
    seen: list[object] = []

    class ForceZero(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if getattr(function, "__module__", "").startswith("safeops"):
                seen.append(function)
                kwargs["policy"] = "zero"
            return function(*args, **kwargs)

    with ForceZero():
        for name in (*FUNCTIONS, *IN_PLACE):
            x = torch.tensor([-1.0]) if name.startswith("sqrt") else torch.zeros(1)
            y = call(name, *((x, x * 0) if "div" in name else (x,)), policy="nan")
            assert not y.isnan().any()
    functions = [getattr(safeops, name) for name in (*FUNCTIONS, *IN_PLACE)]
    assert [function for function in seen if function in functions] == functions


# Roots of zero, which hit in backward alone


def test_a_root_of_zero_leaves_nothing_behind_in_forward(
    recwarn: pytest.WarningsRecorder,
) -> None:
    x = torch.zeros(3, requires_grad=True)
    y = call_here("sqrt", x)
    safeops.sqrt(x)
    assert diagnostics.snapshot() == diagnostics.Snapshot((), ())
    assert not recwarn.list
    y.sum().backward()
    (site,) = diagnostics.snapshot().sites
    assert (site.lineno, site.condition, site.forward, site.backward) == (
        LINE,
        "zero_argument",
        0,
        3,
    )


def test_roots_of_zero_beside_negative_arguments() -> None:
    x = torch.tensor([0.0, -1.0, 0.0, 4.0], requires_grad=True)
    call_here("sqrt", x).sum().backward()
    assert sites() == [(__file__, LINE, "sqrt", 1, 3)]
    assert diagnostics.snapshot().total("sqrt", "zero_argument", "forward") == 0
    assert diagnostics.snapshot().total("sqrt", "zero_argument", "backward") == 2


def test_roots_of_zero_of_many_lines_and_a_reset_in_between() -> None:
    x = torch.zeros(2, requires_grad=True)
    lines, roots = [], []
    for _ in range(2):
        lines = [here() + 1, here() + 2]
        roots.append(safeops.sqrt(x, policy="zero"))
        roots.append(safeops.sqrt(x[:1], policy="nan"))
    roots[0].sum().backward()
    diagnostics.reset()
    for root in roots[1:]:
        root.sum().backward()
    assert sites() == [(__file__, lines[0], "sqrt", 0, 2), (__file__, lines[1], "sqrt", 0, 2)]


def test_a_root_of_zero_in_a_checkpoint_finds_its_line() -> None:
    for reentrant in (True, False):
        x = torch.zeros(2, requires_grad=True)
        checkpoint(call_here, "sqrt", x, use_reentrant=reentrant).sum().backward()
        assert sites() == [(__file__, LINE, "sqrt", 0, 2)]
        diagnostics.reset()


def test_a_root_of_zero_hit_by_a_backward_pass_in_another_thread() -> None:
    x = torch.zeros(2, requires_grad=True)
    y = call_here("sqrt", x).sum()
    worker = threading.Thread(target=y.backward)
    worker.start()
    worker.join()
    assert sites() == [(__file__, LINE, "sqrt", 0, 2)]


@pytest.mark.parametrize("name", NAMES)
def test_threads_lose_no_count(name: str) -> None:
    threads, calls = 4, 25

    def work() -> None:
        for _ in range(calls):
            tensors = [t.requires_grad_() for t in operands(name, torch.float32, zeros=2)]
            call_here(name, *tensors).sum().backward()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expected = 2 * threads * calls
    forward = 0 if name == "sqrt" else expected
    assert diagnostics.snapshot().total(name, direction="forward") == forward
    assert diagnostics.snapshot().total(name, direction="backward") == expected
    assert sites() == [(__file__, LINE, name, forward, expected)]


@pytest.mark.filterwarnings("error::safeops.SingularityWarning")
@pytest.mark.parametrize("name", NAMES)
def test_compiled_code_counts_without_lines_and_without_warning(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda *t: call(name, *t), backend="aot_eager", fullgraph=True)
    tensors = [t.requires_grad_() for t in operands(name, torch.float32)]
    compiled(*tensors).sum().backward()
    safeops.sqrt(torch.ones(1))
    assert diagnostics.snapshot().total(name, direction="forward") == (name != "sqrt")
    assert diagnostics.snapshot().total(name, direction="backward") == 1
    assert sites() == []


# Errors


@pytest.mark.parametrize("name", NAMES)
def test_errors_have_fields_survive_pickling_and_name_their_line(name: str) -> None:
    x = torch.tensor([[1.0, EPS / 2], [EPS / 4, -1.0 if name == "sqrt" else 0.0]])
    with pytest.raises(safeops.SingularityError) as raised:
        call(name, *((x, x) if name == "div" else (x,)), eps=EPS, policy="raise")
    error = raised.value
    assert (error.operator, error.condition, error.count) == (name, "below_eps", 3)
    assert (error.first_row, error.shape, error.dtype) == (1, (2, 2), "float32")
    assert "(zero" in str(error) or "below_eps 2" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))
    (site,) = sites()
    assert site[2:] == (name, 3, 0)


def test_the_line_of_an_integer_division_that_failed() -> None:
    for policy in ("stock", "nan", "raise"):
        with pytest.raises((RuntimeError, safeops.SingularityError)):
            safeops.div(torch.tensor([1, 2]), 0, rounding_mode="floor", policy=policy)
        assert sites() == [(__file__, here() - 1, "div", 2, 0)]
        diagnostics.reset()
