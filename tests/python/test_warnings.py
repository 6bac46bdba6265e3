"""The warning of a call that hits while nobody has chosen a policy."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import pytest
import torch

import safeops
from safeops import _library, diagnostics
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


# Element-wise operators, and hits of a backward pass


def caught_in(function: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [warning for warning in caught if warning.category is safeops.SingularityWarning]


@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        ("div", "grad / 0: inf or NaN (0 with a rounding mode)"),
        ("reciprocal", "grad / 0: inf or NaN"),
        ("rsqrt", "-grad / (2 x sqrt(x)): inf or NaN at 0, NaN below"),
        ("log", "grad / x: inf or NaN at 0"),
    ],
)
def test_element_wise_operators_speak_of_elements(name: str, gradient: str) -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    operands = (x, x) if name == "div" else (x,)
    for function in (name, f"{name}_"):
        diagnostics.reset()
        (caught,) = caught_in(
            lambda f=function: getattr(safeops, f)(*(t.clone() for t in operands))
        )
        assert str(caught.message).startswith(f"safeops.{name}: 2 of 4 elements are singular (")
        assert "first at element 1) in a float32 tensor of shape [2, 2], and nobody" in str(
            caught.message
        )
        assert f"and the gradient there is {gradient}; choose" in str(caught.message)


def test_the_warning_of_a_quotient_names_the_eps_of_the_call() -> None:
    (caught,) = caught_in(lambda: safeops.div(torch.ones(2), 0.25, eps=0.5))
    assert "2 of 2 elements are singular (below_eps" in str(caught.message)
    assert "gradient there is PyTorch's, of a denominator below 0.5" in str(caught.message)


def root_of_zero(**arguments: object) -> tuple[torch.Tensor, int]:
    x = torch.tensor([4.0, 0.0, 0.0], requires_grad=True)
    y, line = safeops.sqrt(x, **arguments).sum(), here()
    return y, line


def regular_call() -> None:
    safeops.log(torch.ones(1))


@pytest.mark.parametrize("ask", [regular_call, diagnostics.snapshot])
def test_a_hit_in_backward_alone_warns_late_and_at_its_line(ask: Callable[[], object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, line = root_of_zero()
        ask()
        y.backward()
    (caught,) = caught_in(ask)
    assert (caught.filename, caught.lineno) == (__file__, line)
    assert str(caught.message) == (
        "safeops.sqrt: 2 of 3 elements are singular (zero_argument, first at element 1) in a "
        "float32 tensor of shape [3] in the backward pass of this call, and nobody chose a "
        "policy: the value is PyTorch's and the gradient there is grad / (2 sqrt(x)): inf or NaN "
        "at 0, NaN below; choose policy='zero', 'nan', 'epsilon' or 'raise' in the call, in "
        "safeops.policy(...) or in SAFEOPS_POLICY, or policy='stock' to keep this without the "
        "warning"
    )
    assert caught_in(ask) == []


def test_a_late_warning_is_given_once_for_a_line() -> None:
    def steps() -> None:
        for _ in range(3):
            root_of_zero()[0].backward()
        regular_call()

    assert len(caught_in(steps)) == 1
    assert len(caught_in(steps)) == 0
    diagnostics.reset()
    assert len(caught_in(steps)) == 1


def test_a_line_that_warned_in_forward_does_not_warn_again_late() -> None:
    def step() -> None:
        x = torch.tensor([-1.0, 0.0], requires_grad=True)
        safeops.sqrt(x).sum().backward()
        regular_call()

    assert len(caught_in(step)) == 1


@pytest.mark.parametrize("policy", ("stock", "nan", "epsilon", "zero"))
def test_no_late_warning_where_somebody_chose(policy: str) -> None:
    def step() -> None:
        root_of_zero(policy=policy)[0].backward()
        with safeops.policy(sqrt=policy):
            y, _ = root_of_zero()
        y.backward()
        regular_call()
        diagnostics.snapshot()

    assert caught_in(step) == []


def test_a_reset_forgets_what_would_have_been_warned_of() -> None:
    def step() -> None:
        root_of_zero()[0].backward()
        diagnostics.reset()
        regular_call()

    assert caught_in(step) == []


def test_nothing_warns_late_at_level_0() -> None:
    diagnostics.set_level(0)

    def step() -> None:
        root_of_zero()[0].backward()
        regular_call()
        diagnostics.snapshot()

    assert caught_in(step) == []


def test_a_late_warning_turned_into_an_error_is_given_again() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            root_of_zero()[0].backward()
            with pytest.raises(safeops.SingularityWarning, match="in the backward pass"):
                regular_call()
            regular_call()
    ((_, backward),) = [(site.forward, site.backward) for site in diagnostics.snapshot().sites]
    assert backward == 4


def test_filters_of_late_warnings_see_the_module_of_the_line() -> None:
    root_of_zero()[0].backward()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=__name__.replace(".", r"\."))
        regular_call()
    assert caught == []


def test_calls_look_for_hits_of_a_backward_pass_only_where_there_may_be_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    take = _library.take_backward_hits
    monkeypatch.setattr(_library, "take_backward_hits", lambda: looks.append(1) or take())
    regular_call()
    root_of_zero(policy="zero")[0].backward()
    assert looks == []
    for _ in range(3):
        regular_call()
        assert looks == [1]


@pytest.mark.parametrize("late", [False, True])
def test_no_lock_is_held_while_the_program_sees_a_warning(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def show(*arguments: object, **rest: object) -> None:
        worker = threading.Thread(target=lambda: seen.append(len(diagnostics.snapshot().sites)))
        worker.start()
        worker.join(30)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        if late:
            root_of_zero()[0].backward()
            regular_call()
        else:
            safeops.log(torch.zeros(1))
    assert seen == [1]
