"""In-place forms: torch's rules for them, autograd, and a target that an error leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch.func import functionalize, grad, jvp

import safeops
from division_samples import NAMES, call, numbers, operands
from samples import NOT_RAISING, REAL, assert_same_bits, counts, identifier

# With a number as the divisor, too.
FORMS = (*NAMES, "div by 0", "div by 3")


def arguments_of(form: str, dtype: torch.dtype = torch.float32) -> tuple[str, tuple[object, ...]]:
    """The operator's name and operands; the first element is singular, but for div by 0 and 3."""
    if form in NAMES:
        return form, operands(form, dtype)
    return "div", (numbers(dtype, (4, 6)), int(form[-1]))


def change(name: str, *arguments: object, **rest: object) -> torch.Tensor:
    return getattr(safeops, f"{name}_")(*arguments, **rest)


def torchs(name: str, input: torch.Tensor, *arguments: object, **rest: object) -> torch.Tensor:
    return getattr(input, f"{name}_")(*arguments, **rest)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("dtype", REAL, ids=identifier)
@pytest.mark.parametrize("form", FORMS)
def test_the_input_becomes_the_result(form: str, dtype: torch.dtype, policy: str) -> None:
    name, (x, *rest) = arguments_of(form, dtype)
    expected = call(name, x, *rest, policy=policy)
    once = counts(name)
    version = x._version
    assert change(name, x, *rest, policy=policy) is x
    assert_same_bits(x, expected)
    assert x._version == version + 1
    assert counts(name) == once


def test_aliases_and_rounding_modes() -> None:
    for mode in (None, "trunc", "floor"):
        a, b = operands("div", torch.float32)
        expected = safeops.div(a, b, rounding_mode=mode, policy="zero")
        for function in (safeops.div_, safeops.divide_):
            assert_same_bits(function(a.clone(), b, rounding_mode=mode, policy="zero"), expected)
    expected = safeops.div(a, b, policy="zero")
    assert_same_bits(safeops.true_divide_(a.clone(), b, policy="zero"), expected)
    assert_same_bits(safeops.true_divide_(a.clone(), 4), a / 4)
    whole = torch.tensor([7, -7])
    assert safeops.div_(whole, 2, rounding_mode="floor").tolist() == [3, -4]


@pytest.mark.filterwarnings("ignore::safeops.SingularityWarning")
@pytest.mark.parametrize("form", FORMS)
def test_a_leaf_is_refused_as_in_torch(form: str) -> None:
    for function in (torchs, change):
        name, (x, *rest) = arguments_of(form)
        before = x.clone()
        x.requires_grad_()
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            function(name, x, *rest)
        assert_same_bits(x, before)
        with torch.no_grad():
            function(name, x, *rest)
        assert not torch.equal(x.nan_to_num(), before)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("form", FORMS)
def test_autograd_of_what_is_no_leaf(form: str, policy: str) -> None:
    name, arguments = arguments_of(form, torch.float64)
    results = []
    for function in (call, change):
        leaves = [t.clone().requires_grad_() for t in arguments if isinstance(t, torch.Tensor)]
        operands_ = [leaf * 1 for leaf in leaves] + [*arguments[len(leaves) :]]
        y = function(name, *operands_, policy=policy)
        assert y.requires_grad and not y.is_leaf
        g = numbers(torch.float64, (4, 6), seed=5)
        results.append([y, *torch.autograd.grad(y, leaves, g), counts(name)])
    *tensors, hits = results[1]
    for actual, expected in zip(tensors, results[0], strict=False):
        assert_same_bits(actual, expected)
    assert hits == results[0][-1]


def test_the_input_starts_to_require_grad_when_the_divisor_does() -> None:
    x, b = torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0], requires_grad=True)
    y = safeops.div_(x, b, policy="zero")
    assert y is x and x.requires_grad
    x.sum().backward()
    assert b.grad.tolist() == [-0.75, 0.0]


@pytest.mark.parametrize("form", FORMS)
def test_views_write_through_and_differentiate_through(form: str) -> None:
    name, (x, *rest) = arguments_of(form, torch.float64)
    rest = [t[1:3] if isinstance(t, torch.Tensor) else t for t in rest]
    part = x[1:3].clone().requires_grad_()
    y = call(name, part, *rest, policy="zero")
    (want,) = torch.autograd.grad(y, part, torch.ones_like(y))
    base = x.clone()
    change(name, base[1:3], *rest, policy="zero")
    assert_same_bits(base, torch.cat([x[:1], y.detach(), x[3:]]))
    leaf = x.clone().requires_grad_()
    base = leaf * 1
    change(name, base[1:3], *rest, policy="zero")
    base.sum().backward()
    ones = torch.ones(1, 6, dtype=torch.float64)
    assert_same_bits(leaf.grad, torch.cat([ones, want, ones]))


@pytest.mark.parametrize("form", FORMS)
def test_strided_inputs(form: str) -> None:
    name, (x, *rest) = arguments_of(form)
    expected = call(name, x, *rest, policy="zero")
    for target in (x.t().contiguous().t(), x.repeat_interleave(2, 1)[:, ::2]):
        strides = target.stride()
        change(name, target, *rest, policy="zero")
        assert target.stride() == strides
        assert_same_bits(target, expected)


def test_the_divisor_may_be_the_input_where_nothing_is_differentiated_as_in_torch() -> None:
    for function in (torchs, change):
        x = torch.tensor([3.0, 4.0])
        assert function("div", x, x).tolist() == [1, 1]
        x = torch.tensor([3.0, 4.0], requires_grad=True) * 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            function("div", x, x).sum().backward()


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=identifier)
@pytest.mark.parametrize("form", FORMS)
def test_a_result_that_the_input_cannot_hold_is_refused_as_in_torch(
    form: str, dtype: torch.dtype
) -> None:
    name, arguments = arguments_of(form)
    arguments = [t.to(dtype) if isinstance(t, torch.Tensor) else t for t in arguments]
    before = arguments[0].clone()
    for function in (torchs, change):
        with pytest.raises(RuntimeError, match="can.* be cast"):
            function(name, *arguments)
        assert torch.equal(arguments[0], before)


@pytest.mark.parametrize(
    ("target", "other"),
    [
        (torch.float16, torch.float32),
        (torch.float32, torch.float64),
        (torch.complex64, torch.float64),
        (torch.float32, torch.complex64),
        (torch.float64, torch.int64),
    ],
    ids=identifier,
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_divisor_of_another_dtype_as_in_torch(
    target: torch.dtype, other: torch.dtype, requires_grad: bool
) -> None:
    a = numbers(torch.float32, (5,)).to(target).requires_grad_(requires_grad)
    b = numbers(torch.float32, (5,), 1.0, 9.0, seed=1).to(other)
    try:
        want = (a * 1).div_(b)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="dtype .* can be cast to, got float32"):
            safeops.div_(a * 1, b)
    else:
        y = safeops.div_(a * 1, b)
        assert y.dtype is target
        torch.testing.assert_close(y, want)
        if requires_grad:
            grads = [torch.autograd.grad(r.abs().sum(), a)[0] for r in (y, want)]
            torch.testing.assert_close(*grads)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_result_of_another_shape_is_refused_as_in_torch(requires_grad: bool) -> None:
    for function in (torchs, change):
        x = torch.ones(3, requires_grad=requires_grad) * 1
        with pytest.raises(RuntimeError, match="shape"):
            function("div", x, torch.ones(2, 3))
        assert x.tolist() == [1, 1, 1]
        function("div", x, torch.full((1,), 2.0))
        assert x.tolist() == [0.5, 0.5, 0.5]


def test_an_expanded_input_is_refused_as_in_torch() -> None:
    for function in (torchs, change):
        for name, rest in (("div", (2,)), ("sqrt", ()), ("div", (torch.ones(3),))):
            with pytest.raises(RuntimeError, match="unsupported operation"):
                function(name, torch.ones(1).expand(3), *rest)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_raise_leaves_the_input_untouched(name: str, requires_grad: bool) -> None:
    tensors = operands(name, torch.float32)
    if name == "sqrt":
        tensors[0][0, 0] = -1
    x = tensors[0].requires_grad_(requires_grad) * 1
    before, version, node = x.detach().clone(), x._version, x.grad_fn
    with pytest.raises(safeops.SingularityError, match="met 1 singular element of 24"):
        change(name, x, *tensors[1:], policy="raise")
    assert_same_bits(x, before)
    assert x._version == version and x.grad_fn is node
    assert counts(name) == (1, 0)


def test_raise_leaves_integers_untouched() -> None:
    x = torch.tensor([7, 5])
    for policy, error in (("raise", safeops.SingularityError), ("nan", RuntimeError)):
        with pytest.raises(error):
            safeops.div_(x, torch.tensor([2, 0]), rounding_mode="trunc", policy=policy)
        assert x.tolist() == [7, 5]


@pytest.mark.parametrize("form", FORMS)
def test_what_saved_the_input_notices(form: str) -> None:
    name, (x, *rest) = arguments_of(form)
    weight = torch.ones(4, 6, requires_grad=True)
    product = weight * x
    change(name, x, *rest, policy="zero")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("form", FORMS)
def test_inference_mode(form: str) -> None:
    with torch.inference_mode():
        name, (x, *rest) = arguments_of(form)
        expected = call(name, x, *rest, policy="zero")
        assert_same_bits(change(name, x, *rest, policy="zero").clone(), expected.clone())


@pytest.mark.parametrize("form", FORMS)
def test_transforms(form: str) -> None:
    name, arguments = arguments_of(form, torch.float64)

    def through(function):
        def run(x: torch.Tensor) -> torch.Tensor:
            return function(name, x.clone(), *arguments[1:], policy="zero")

        return run

    ours, plain = through(change), through(call)
    x, t = arguments[0], numbers(torch.float64, (4, 6), seed=6)
    for transform in (
        lambda f: grad(lambda x: f(x).square().sum())(x),
        lambda f: jvp(f, (x,), (t,))[1],
        lambda f: functionalize(f)(x),
        lambda f: torch.vmap(f)(x) if name != "div" or form != "div" else f(x),
    ):
        assert_same_bits(transform(ours), transform(plain))


def test_the_line_of_a_root_of_zero_is_found() -> None:
    leaf = torch.tensor([4.0, 0.0], requires_grad=True)
    x = leaf * 1
    safeops.sqrt_(x, policy="zero")
    x.sum().backward()
    (site,) = safeops.diagnostics.snapshot().sites
    assert (site.filename, site.operator, site.forward, site.backward) == (__file__, "sqrt", 0, 1)
    assert leaf.grad.tolist() == [0.25, 0]
