"""safeops.nn.Softmax and LogSoftmax in the place of torch's modules."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch

import safeops
from samples import POLICIES, assert_same_bits, counts
from singular_calls import here
from softmax_samples import INF, logits

MODULES = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}


def ours(name: str) -> type[torch.nn.Module]:
    return getattr(safeops.nn, name)


@pytest.mark.parametrize("name", MODULES)
def test_forward_is_the_function(name: str) -> None:
    x, where = logits(torch.float32, (3, 4)), torch.tensor([True, False, True, True])
    function = getattr(safeops, MODULES[name])
    assert_same_bits(ours(name)(dim=0)(x), function(x, 0))
    assert_same_bits(ours(name)(-1)(x, where), function(x, -1, where=where))
    torch.testing.assert_close(ours(name)(1)(x), getattr(torch.nn, name)(1)(x))


@pytest.mark.parametrize("rank", range(6))
@pytest.mark.parametrize("name", MODULES)
def test_the_implicit_dim_and_its_warning_are_torchs(name: str, rank: int) -> None:
    x = logits(torch.float32, (2, 3, 2, 3, 2)[:rank])
    theirs = getattr(torch.nn, name)()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expected = theirs(x)
        line = here() + 1
        y = ours(name)()(x)
    torch.testing.assert_close(y, expected)
    assert len(caught) == 2
    assert str(caught[1].message) == str(caught[0].message)
    assert caught[1].category is caught[0].category
    # torch's own names a line inside torch.
    assert (caught[1].filename, caught[1].lineno) == (__file__, line)


@pytest.mark.parametrize("name", MODULES)
def test_a_policy_of_the_module_and_one_of_the_call_time(name: str) -> None:
    x = torch.full((1, 2), -INF, requires_grad=True)

    def slope(module: torch.nn.Module) -> float:
        (grad,) = torch.autograd.grad(module(x).sum(), x)
        return grad[0, 0].item()

    module = ours(name)(dim=-1)
    with safeops.policy("zero"):
        assert slope(module) == 0
        assert slope(ours(name)(-1, policy="nan")) != 0
    with safeops.policy("nan"):
        assert slope(module) != slope(module)
        assert slope(ours(name)(-1, "zero")) == 0
    assert counts(MODULES[name]) == (5, 5)


@pytest.mark.parametrize("policy", ["zeros", "", 3])
@pytest.mark.parametrize("name", MODULES)
def test_a_bad_policy_is_refused_when_the_module_is_made(name: str, policy: object) -> None:
    with pytest.raises(
        ValueError, match=rf"safeops\.nn\.{name}: policy must be one of .*{policy!r}"
    ):
        ours(name)(-1, policy)


@pytest.mark.parametrize("name", MODULES)
def test_representation(name: str) -> None:
    assert repr(ours(name)(dim=1)) == f"{name}(dim=1)" == repr(getattr(torch.nn, name)(dim=1))
    assert repr(ours(name)()) == repr(getattr(torch.nn, name)())
    for policy in POLICIES:
        assert repr(ours(name)(-1, policy)) == f"{name}(dim=-1, policy={policy!r})"


@pytest.mark.parametrize("name", MODULES)
def test_copies_and_state(name: str) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), ours(name)(-1, "zero"))
    assert set(module.state_dict()) == {"0.weight", "0.bias"}
    x = logits(torch.float32, (2, 3))
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_same_bits(twin(x), module(x))
    assert module.eval()[1].policy == "zero"


def test_a_hit_belongs_to_the_line_that_calls_the_module() -> None:
    module = safeops.nn.Softmax(-1, "zero")
    line = here() + 1
    module(torch.full((2, 3), -INF))
    (site,) = safeops.diagnostics.snapshot().sites
    assert (site.filename, site.lineno, site.operator) == (__file__, line, "softmax")
