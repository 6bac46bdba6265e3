"""Which policy a call runs under."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import safeops
from singular_calls import POLICIES, effective_eps, effective_policy

pytestmark = pytest.mark.filterwarnings("ignore::safeops.SingularityWarning")


# Resolution order


@pytest.mark.parametrize("policy", POLICIES)
def test_call_argument(policy) -> None:
    assert effective_policy(policy=policy) == policy


@pytest.mark.parametrize("policy", POLICIES)
def test_scope(policy) -> None:
    with safeops.policy(policy):
        assert effective_policy() == policy
    assert effective_policy() == "stock"


@pytest.mark.parametrize("policy", POLICIES)
def test_default(policy) -> None:
    safeops.set_default_policy(policy)
    assert effective_policy() == policy


def test_order_of_precedence() -> None:
    safeops.set_default_policy("nan")
    assert effective_policy() == "nan"
    with safeops.policy("zero"):
        assert effective_policy() == "zero"
        assert effective_policy(policy="epsilon") == "epsilon"
        safeops.set_default_policy("raise")
        assert effective_policy() == "zero"
    assert effective_policy() == "raise"


def test_stock_in_a_scope_overrides_the_default() -> None:
    safeops.set_default_policy("zero")
    with safeops.policy("stock"):
        assert effective_policy() == "stock"


def test_default_without_arguments_goes_back() -> None:
    safeops.set_default_policy("zero")
    safeops.set_default_policy()
    assert effective_policy() == "stock"


def test_inner_default_overrides_outer_entry() -> None:
    with safeops.policy("nan", normalize="zero"):
        assert effective_policy() == "zero"
        with safeops.policy("epsilon"):
            assert effective_policy() == "epsilon"
        assert effective_policy() == "zero"


def test_scope_with_eps_alone_inherits_the_policy() -> None:
    with safeops.policy("zero"), safeops.policy(eps=1e-3):
        assert effective_policy() == "zero"


def test_default_by_operator() -> None:
    safeops.set_default_policy("nan", normalize="zero")
    assert effective_policy() == "zero"


def test_eps_of_scope() -> None:
    with safeops.policy(eps=1e-3):
        assert effective_eps() == pytest.approx(1e-3)
        assert effective_eps(eps=1e-5) == pytest.approx(1e-5)
        with safeops.policy("zero"):
            assert effective_eps() == pytest.approx(1e-3)
        with safeops.policy(eps=1e-4):
            assert effective_eps() == pytest.approx(1e-4)
        assert effective_eps() == pytest.approx(1e-3)
    assert effective_eps() == pytest.approx(1e-12)


def test_backward_keeps_the_policy_of_forward() -> None:
    x = torch.zeros(3, requires_grad=True)
    with safeops.policy("zero"):
        y = safeops.normalize(x, dim=0)
    with safeops.policy("nan"):
        y.sum().backward()
    assert torch.equal(x.grad, torch.zeros(3))


# Scopes as objects


def test_scope_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), safeops.policy("zero", eps=1e-3):
        raise KeyError
    assert effective_policy() == "stock"
    assert effective_eps() == pytest.approx(1e-12)


def test_one_scope_entered_again_and_nested() -> None:
    scope = safeops.policy("zero")
    for _ in range(2):
        with scope:
            with safeops.policy("nan"), scope:
                assert effective_policy() == "zero"
            assert effective_policy() == "zero"
        assert effective_policy() == "stock"


def test_decorator() -> None:
    @safeops.policy(normalize="zero")
    def decorated(inner=None):
        """Documented."""
        return effective_policy(), inner and inner()

    assert decorated(inner=decorated) == ("zero", ("zero", None))
    assert effective_policy() == "stock"
    assert (decorated.__name__, decorated.__doc__) == ("decorated", "Documented.")


def test_decorated_coroutine_runs_inside_the_scope() -> None:
    @safeops.policy("zero")
    async def decorated():
        await asyncio.sleep(0)
        return effective_policy()

    async def main():
        return await decorated(), effective_policy()

    assert asyncio.run(main()) == ("zero", "stock")


def test_decorator_refuses_what_runs_later() -> None:
    def generator():
        yield

    async def async_generator():
        yield

    for refused in (generator, async_generator, type("Class", (), {})):
        with pytest.raises(TypeError, match=r"safeops\.policy: expected a function .* with block"):
            safeops.policy("zero")(refused)


# Threads and tasks


def test_threads_do_not_see_the_scopes_of_others() -> None:
    seen = {}
    meet = threading.Barrier(3)
    shared = safeops.policy("zero")

    def work(name, scope) -> None:
        with scope:
            meet.wait(60)
            seen[name] = effective_policy()
            meet.wait(60)
        seen[name, "after"] = effective_policy()

    scopes = {"zero": shared, "zero again": shared, "nan": safeops.policy("nan")}
    with safeops.policy("epsilon"):
        threads = [threading.Thread(target=work, args=item) for item in scopes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert effective_policy() == "epsilon"
    assert seen == {
        "zero": "zero",
        "zero again": "zero",
        "nan": "nan",
        ("zero", "after"): "stock",
        ("zero again", "after"): "stock",
        ("nan", "after"): "stock",
    }


def test_tasks_do_not_see_the_scopes_of_others() -> None:
    async def work(policy):
        with safeops.policy(policy):
            await asyncio.sleep(0)
            inside = effective_policy()
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return inside, effective_policy()

    async def main():
        with safeops.policy("epsilon"):
            return await asyncio.gather(*(work(policy) for policy in POLICIES))

    assert asyncio.run(main()) == [(policy, "epsilon") for policy in POLICIES]


# Bad input


@pytest.mark.parametrize("choose", [safeops.policy, safeops.set_default_policy])
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"default": "none"}, "the default policy must be one of .* got 'none'"),
        ({"default": ""}, "the default policy must be one of .* got ''"),
        ({"default": len}, "the default policy must be one of .* got <built-in"),
        ({"normalize": "Zero"}, "the policy of normalize must be one of .* got 'Zero'"),
        ({"normalize": None}, "the policy of normalize must be one of .* got None"),
        ({"softmax": "Zero"}, "the policy of softmax must be one of .* got 'Zero'"),
        ({"softmin": "zero"}, r"an operator \(.*, log\), got 'softmin'"),
        (
            {"default": "zero", "normalise": "nan"},
            r"an operator \(normalize, .*got 'normalise'",
        ),
    ],
)
def test_bad_policies_are_refused(choose, arguments, sentence) -> None:
    with pytest.raises(ValueError, match=rf"^safeops\.{choose.__name__}: .*{sentence}"):
        choose(**arguments)
    assert effective_policy() == "stock"


@pytest.mark.parametrize("eps", [-1e-3, math.nan, math.inf, "1e-3", True])
def test_bad_eps_is_refused(eps) -> None:
    with pytest.raises(ValueError, match=r"safeops\.policy: eps must be a finite number"):
        safeops.policy("zero", eps=eps)


@pytest.mark.parametrize("policy", ["", "zeros"])
def test_bad_policy_of_a_call(policy) -> None:
    with pytest.raises(ValueError, match=r"normalize: .*policy.*stock.*'?zero'?") as refused:
        safeops.normalize(torch.ones(2, 3), policy=policy)
    assert type(refused.value) is ValueError
    assert f"'{policy}'" in str(refused.value)


# The call form


def test_takes_the_arguments_of_the_stock_function() -> None:
    stock = inspect.signature(F.normalize).parameters
    ours = list(inspect.signature(safeops.normalize).parameters.values())
    assert [parameter.name for parameter in ours] == [*stock, "policy"]
    x = torch.randn(4, 3)
    out = torch.empty_like(x)
    assert safeops.normalize(x, 2.0, -1, 1e-6, out) is out
    torch.testing.assert_close(out, F.normalize(x, 2.0, -1, 1e-6))
    torch.testing.assert_close(safeops.normalize(x), F.normalize(x))


def test_torch_function_mode_sees_and_may_change_the_call() -> None:
    class ForceNan(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if function is safeops.normalize:
                kwargs["policy"] = "nan"
            return function(*args, **kwargs)

    with ForceNan():
        y = safeops.normalize(torch.zeros(3), dim=0, policy="zero")
    assert y.isnan().all()


def test_tensor_subclass_stays() -> None:
    class Tagged(torch.Tensor):
        pass

    x = torch.zeros(2, 3).as_subclass(Tagged)
    y = safeops.normalize(x, policy="nan")
    assert type(y) is Tagged
    assert y.isnan().all()
