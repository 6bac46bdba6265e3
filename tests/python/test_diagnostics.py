"""Counters, call lines and errors."""

from __future__ import annotations

import pickle
import threading

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import safeops
from safeops import diagnostics
from singular_calls import here, rows

POLICIES = ("stock", "nan", "epsilon", "zero")


def sites() -> list[tuple[str, int, str, int, int]]:
    return [
        (site.filename, site.lineno, site.condition, site.forward, site.backward)
        for site in diagnostics.snapshot().sites
    ]


# Counters


def test_nothing_is_counted_where_nothing_is_singular() -> None:
    x = rows(0).requires_grad_()
    safeops.normalize(x, dim=-1).sum().backward()
    assert diagnostics.snapshot() == diagnostics.Snapshot((), ())


@pytest.mark.parametrize("policy", POLICIES)
def test_forward_and_backward_are_counted(policy) -> None:
    x = rows(3).requires_grad_()
    safeops.normalize(x, dim=-1, policy=policy).sum().backward()
    record = {"operator": "normalize", "condition": "zero_norm", "device": "cpu"}
    assert diagnostics.snapshot().records == (
        diagnostics.Record(**record, direction="forward", count=3, first_row=2),
        diagnostics.Record(**record, direction="backward", count=3, first_row=2),
    )


def test_raise_counts_the_rows_it_met() -> None:
    with pytest.raises(safeops.SingularityError):
        safeops.normalize(rows(3), dim=-1, policy="raise")
    assert diagnostics.snapshot().total(direction="forward") == 3


def test_totals_filter() -> None:
    x = torch.tensor([[1.0, 1.0], [0.0, 0.0], [1e-4, 0.0], [0.0, 2e-4]], requires_grad=True)
    y = safeops.normalize(x, dim=-1, policy="zero", eps=1e-3)
    y.sum().backward()
    y = safeops.normalize(x, dim=-1, policy="zero", eps=1e-3)
    snapshot = diagnostics.snapshot()
    assert snapshot.total() == 9
    assert snapshot.total("normalize") == 9
    assert snapshot.total(condition="zero_norm") == 3
    assert snapshot.total(condition="below_eps") == 6
    assert snapshot.total(direction="backward") == 3
    assert snapshot.total("normalize", "below_eps", "forward") == 4
    assert snapshot.total(condition="empty_row") == 0


@pytest.mark.parametrize("argument", ["operator", "condition", "direction"])
def test_totals_refuse_unknown_names(argument) -> None:
    with pytest.raises(ValueError, match=rf"total: {argument} must be one of .*, got 'zeros'"):
        diagnostics.snapshot().total(**{argument: "zeros"})


def test_gradient_of_zero_is_counted_as_well() -> None:
    x = rows(1).requires_grad_()
    safeops.normalize(x, dim=-1, policy="zero").backward(torch.zeros(3, 3))
    assert diagnostics.snapshot().total(direction="backward") == 1


def test_notices_are_not_hits(recwarn) -> None:
    x = rows(0)
    x[1, 1] = torch.inf
    safeops.normalize(x, dim=-1)
    snapshot = diagnostics.snapshot()
    assert snapshot.total() == 0
    assert snapshot.total(condition="nonfinite_input") == 1
    assert snapshot.sites == ()
    assert not recwarn.list


def test_checkpoint_runs_and_counts_forward_twice() -> None:
    x = rows(1).requires_grad_()

    def block(x):
        return safeops.normalize(x, dim=-1, policy="zero")

    checkpoint(block, x, use_reentrant=False).sum().backward()
    assert diagnostics.snapshot().total(direction="forward") == 2
    assert diagnostics.snapshot().total(direction="backward") == 1
    ((_, line, _, forward, backward),) = sites()
    assert (line, forward, backward) == (block.__code__.co_firstlineno + 1, 2, 1)


def test_reset() -> None:
    x = rows(1).requires_grad_()
    safeops.normalize(x, dim=-1, policy="zero").sum().backward()
    diagnostics.reset()
    assert diagnostics.snapshot() == diagnostics.Snapshot((), ())


def test_threads_lose_no_count() -> None:
    threads, calls = 6, 40
    lines = set()

    def work() -> None:
        for _ in range(calls):
            x = rows(2).requires_grad_()
            y, line = safeops.normalize(x, dim=-1, policy="zero"), here()
            y.sum().backward()
            lines.add(line)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expected = 2 * threads * calls
    assert diagnostics.snapshot().total(direction="forward") == expected
    assert diagnostics.snapshot().total(direction="backward") == expected
    ((filename, line, _, forward, _),) = sites()
    assert (filename, {line}, forward) == (__file__, lines, expected)


# Levels


def test_levels() -> None:
    assert diagnostics.level() == 1
    diagnostics.set_level(2)
    assert diagnostics.level() == 2
    for refused in (4, -1, "1", None, 1.0):
        with pytest.raises(ValueError, match=f"level must be 0, 1, 2 or 3, got {refused!r}"):
            diagnostics.set_level(refused)
    assert diagnostics.level() == 2


def test_level_0_records_nothing(recwarn) -> None:
    diagnostics.set_level(0)
    x = rows(1).requires_grad_()
    safeops.normalize(x, dim=-1).sum().backward()
    assert not recwarn.list
    diagnostics.set_level(1)
    assert diagnostics.snapshot() == diagnostics.Snapshot((), ())


def test_level_0_still_raises() -> None:
    diagnostics.set_level(0)
    with pytest.raises(safeops.SingularityError, match="met 1 singular row") as raised:
        safeops.normalize(rows(1), dim=-1, policy="raise")
    assert (raised.value.operator, raised.value.count, raised.value.first_row) == (
        "normalize",
        1,
        2,
    )
    diagnostics.set_level(1)
    assert diagnostics.snapshot() == diagnostics.Snapshot((), ())


@pytest.mark.parametrize(("level", "shape", "dtype"), [(1, None, None), (2, (2, 4, 3), "float64")])
def test_level_2_describes_the_first_offender(level, shape, dtype) -> None:
    diagnostics.set_level(level)
    safeops.normalize(torch.zeros(2, 4, 3, dtype=torch.float64), dim=-1, policy="zero")
    safeops.normalize(torch.zeros(3), dim=-1, policy="zero")
    (record,) = diagnostics.snapshot().records
    assert (record.count, record.shape, record.dtype) == (9, shape, dtype)


# Call lines


def test_sites_name_the_line_of_forward_and_backward() -> None:
    x = rows(2).requires_grad_()
    first, first_line = safeops.normalize(x, dim=-1, policy="zero"), here()
    again, again_line = safeops.normalize(x[1:], dim=-1, policy="nan"), here()
    first.sum().backward()
    first = safeops.normalize(x.detach()[:2], dim=-1)
    assert sites() == [
        (__file__, first_line, "zero_norm", 2, 2),
        (__file__, again_line, "zero_norm", 2, 0),
    ]
    again.sum().backward()
    assert sites()[1] == (__file__, again_line, "zero_norm", 2, 2)
    assert {site.function for site in diagnostics.snapshot().sites} == {
        "test_sites_name_the_line_of_forward_and_backward"
    }


def test_calls_of_one_line_add_up() -> None:
    for count in (1, 2, 3):
        x = rows(count).requires_grad_()
        safeops.normalize(x, dim=-1, policy="zero").sum().backward()
    assert [site[3:] for site in sites()] == [(6, 6)]


def test_a_line_is_found_after_a_reset() -> None:
    x = rows(2).requires_grad_()
    y, line = safeops.normalize(x, dim=-1, policy="zero"), here()
    diagnostics.reset()
    y.sum().backward()
    assert sites() == [(__file__, line, "zero_norm", 0, 2)]


def test_backward_in_another_thread_finds_the_line() -> None:
    x = rows(2).requires_grad_()
    y, line = safeops.normalize(x, dim=-1, policy="zero"), here()
    worker = threading.Thread(target=lambda: y.sum().backward())
    worker.start()
    worker.join()
    assert sites() == [(__file__, line, "zero_norm", 2, 2)]


def test_a_hit_of_another_thread_is_not_taken_for_ours() -> None:
    other_line = here() + 3

    def hit() -> None:
        safeops.normalize(rows(1), dim=-1, policy="zero")

    class OtherThreadHits(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            worker = threading.Thread(target=hit)
            worker.start()
            worker.join()
            return function(*args, **(kwargs or {}))

    regular = rows(0)
    line = here() + 1
    safeops.normalize(rows(2), dim=-1, policy="zero")
    with OtherThreadHits():
        safeops.normalize(regular, dim=-1, policy="zero")
    assert [site[:2] for site in sites()] == [(__file__, line), (__file__, other_line)]
    assert sites()[0][3] == 2


def test_line_is_the_callers_behind_torch() -> None:
    class Passes(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Layer(torch.nn.Module):
        def forward(self, x):
            return safeops.normalize(x, dim=-1, policy="zero"), here()

    class Tagged(torch.Tensor):
        pass

    x = rows(1)
    line = here()
    with Passes():
        safeops.normalize(x, dim=-1, policy="zero")
    safeops.normalize(x.as_subclass(Tagged), policy="zero")
    torch.vmap(safeops.normalize)(x[None], policy="zero")
    _, line_of_layer = Layer()(x)
    lines = [line + 2, line + 3, line + 4, line_of_layer]
    assert [site[:2] for site in sites()] == [(__file__, line) for line in lines]


@pytest.mark.filterwarnings("error::safeops.SingularityWarning")
def test_compiled_code_counts_without_lines_and_without_warning() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: safeops.normalize(x, dim=-1), backend="aot_eager", fullgraph=True
    )
    x = rows(2).requires_grad_()
    y = compiled(x)
    assert diagnostics.snapshot().total(direction="forward") == 2
    y.sum().backward()
    assert diagnostics.snapshot().total(direction="backward") == 2
    assert sites() == []


# Errors


def test_error_has_fields() -> None:
    x = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1e-4, 0.0]])
    with pytest.raises(safeops.SingularityError) as raised:
        safeops.normalize(x, dim=-1, eps=1e-3, policy="raise")
    error = raised.value
    assert isinstance(error, FloatingPointError)
    assert isinstance(error, ValueError)
    assert (error.operator, error.condition) == ("normalize", "zero_norm")
    assert (error.count, error.first_row) == (3, 1)
    assert (error.shape, error.dtype) == ((4, 2), "float32")
    assert str(error) == (
        "safeops::normalize: policy 'raise' met 3 singular rows of 4 (zero_norm 2, below_eps 1; "
        "first at row 1) in a float32 tensor of shape [4, 2]; use policy 'zero', 'epsilon' or "
        "'nan' to continue"
    )
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_error_survives_pickling() -> None:
    with pytest.raises(safeops.SingularityError) as raised:
        safeops.normalize(rows(1), dim=-1, policy="raise")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), vars(copy)) == (str(raised.value), vars(raised.value))


def test_raising_line_is_a_site() -> None:
    with pytest.raises(safeops.SingularityError):
        safeops.normalize(rows(1), dim=-1, policy="raise")
    line = here() - 1
    assert sites() == [(__file__, line, "zero_norm", 1, 0)]


def test_nothing_is_written_to_out() -> None:
    out = torch.full((3, 3), 7.0)
    with pytest.raises(safeops.SingularityError):
        safeops.normalize(rows(1), dim=-1, out=out, policy="raise")
    assert torch.equal(out, torch.full((3, 3), 7.0))


def test_other_errors_pass_unchanged() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(safeops.normalize, backend="eager")
    with pytest.raises(ValueError, match="policy 'raise' met") as raised:
        compiled(rows(1), dim=-1, policy="raise")
    assert type(raised.value) is ValueError
    for arguments, kind in (({"eps": -1.0}, ValueError), ({"dim": 5}, IndexError)):
        with pytest.raises(kind) as raised:
            safeops.normalize(rows(1), policy="raise", **arguments)
        assert type(raised.value) is kind
