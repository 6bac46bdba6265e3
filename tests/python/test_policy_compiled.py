"""Which policy compiled code runs under."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter

import safeops
from safeops import _compiled_scope, _library
from singular_calls import POLICIES, effective_policy

pytestmark = pytest.mark.filterwarnings("ignore::safeops.SingularityWarning")


@pytest.fixture
def counter():
    torch._dynamo.reset()
    yield CompileCounter()
    torch._dynamo.reset()


def test_every_operator_has_a_value_for_compiled_code() -> None:
    assert all(hasattr(_compiled_scope, operator) for operator in _library.OPERATORS)


def test_compiled_code_follows_the_scope(counter) -> None:
    compiled = torch.compile(safeops.normalize, backend=counter, fullgraph=True)
    for _ in range(2):
        assert effective_policy(compiled) == "stock"
        for policy in POLICIES:
            with safeops.policy(policy):
                assert effective_policy(compiled) == policy
    # One graph for each policy and one for nobody's choice: none is compiled again.
    assert counter.frame_count == len(POLICIES) + 1


def test_compiled_code_follows_the_default(counter) -> None:
    compiled = torch.compile(safeops.normalize, backend=counter, fullgraph=True)
    assert effective_policy(compiled) == "stock"
    safeops.set_default_policy("zero")
    assert effective_policy(compiled) == "zero"
    with safeops.policy("nan"):
        assert effective_policy(compiled) == "nan"
    assert effective_policy(compiled) == "zero"
    assert effective_policy(compiled, policy="epsilon") == "epsilon"


def test_compiled_code_follows_the_eps_of_the_scope(counter) -> None:
    @torch.compile(backend=counter, fullgraph=True)
    def compiled(x):
        return safeops.normalize(x, dim=0, policy="epsilon")

    x = torch.tensor([1e-2, 0.0], dtype=torch.float64)
    for _ in range(2):
        for eps in (1.0, 0.1, 1e-3, None):
            with safeops.policy(eps=eps):
                assert compiled(x)[0].item() == pytest.approx(min(1.0, 1e-2 / (eps or 1e-12)))


def scopes_inside(x):
    values = [safeops.normalize(x, dim=-1)]
    with safeops.policy("nan", eps=0.5):
        values.append(safeops.normalize(x, dim=-1))
        with safeops.policy("zero"):
            values.append(safeops.normalize(x, dim=-1))
        values.append(safeops.normalize(x, dim=-1))
    values.append(safeops.normalize(x, dim=-1))
    return torch.stack(values)


def test_scopes_inside_compiled_code(counter) -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.1, 0.2]])
    compiled = torch.compile(scopes_inside, backend=counter, fullgraph=True)
    for outer in (safeops.policy("stock"), safeops.policy("epsilon", eps=0.4)):
        with outer:
            expected = scopes_inside(x)
            for _ in range(2):
                torch.testing.assert_close(compiled(x), expected, equal_nan=True)
    assert expected.isnan().any()
    assert _compiled_scope.normalize == ""
    assert _compiled_scope.eps is None


def test_decorator_of_compiled_code(counter) -> None:
    @safeops.policy("nan")
    def decorated(x):
        return safeops.normalize(x, dim=0)

    itself = torch.compile(decorated, backend=counter, fullgraph=True)
    caller = torch.compile(lambda x: decorated(x) + 0, backend=counter, fullgraph=True)
    for _ in range(2):
        assert itself(torch.zeros(3)).isnan().all()
        assert caller(torch.zeros(3)).isnan().all()


def test_scope_across_a_graph_break(counter) -> None:
    @torch.compile(backend=counter)
    def compiled(x):
        with safeops.policy("nan"):
            torch._dynamo.graph_break()
            inside = safeops.normalize(x, dim=0)
        return inside, safeops.normalize(x, dim=0)

    for _ in range(2):
        inside, outside = compiled(torch.zeros(3))
        assert inside.isnan().all()
        assert torch.equal(outside, torch.zeros(3))


def test_out_in_compiled_code(counter) -> None:
    compiled = torch.compile(safeops.normalize, backend=counter, fullgraph=True)
    x = torch.randn(4, 3)
    out = torch.empty_like(x)
    assert compiled(x, out=out) is out
    torch.testing.assert_close(out, F.normalize(x))
