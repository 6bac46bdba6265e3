"""Batching rules of the division family against a loop over the examples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.func import grad, jacrev, vmap

import safeops
from division_samples import EPS, NAMES, UNARY, assert_equal, call, numbers, operands
from samples import NOT_RAISING, counts, identifier

OPS = torch.ops.safeops
# Shapes of an example of the input and of the divisor.
SHAPES = [((4, 5), (4, 5)), ((4, 5), (5,)), ((4, 5), ()), ((), (4, 5)), ((), ()), ((4, 1), (1, 5))]
IN_DIMS = [(0, 0), (0, None), (None, 0), (-1, 0)]


@pytest.fixture(autouse=True)
def without_fallback() -> Iterator[None]:
    """Torch's slow loop over examples would hide a missing rule."""
    enabled = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(enabled)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13, equal_nan=True)


def loop(
    function: Callable[..., torch.Tensor],
    in_dims: tuple[int | None, ...],
    *tensors: torch.Tensor,
    out_dim: int = 0,
) -> torch.Tensor:
    examples = zip(
        *(
            itertools.repeat(tensor, 3) if in_dim is None else tensor.unbind(in_dim)
            for tensor, in_dim in zip(tensors, in_dims, strict=True)
        ),
        strict=True,
    )
    return torch.stack([function(*example) for example in examples], out_dim)


def batch(shape: tuple[int, ...], in_dim: int | None, seed: int = 0) -> torch.Tensor:
    """Three examples of a shape, or one that all share; about a third of the numbers are 0."""
    full = shape if in_dim is None else (3, *shape)
    x = numbers(torch.float64, full, seed=seed)
    x.view(-1)[::3] = 0
    return x if in_dim is None else x.movedim(0, in_dim)


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("in_dims", IN_DIMS, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_quotients(
    shapes: tuple[tuple[int, ...], ...], in_dims: tuple[int | None, ...], policy: str
) -> None:
    tensors = [batch(*pair, seed=i) for i, pair in enumerate(zip(shapes, in_dims, strict=True))]

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return safeops.div(a, b, policy=policy, eps=EPS)

    close(vmap(function, in_dims)(*tensors), loop(function, in_dims, *tensors))
    weight = numbers(torch.float64, torch.broadcast_shapes(*shapes), seed=4)
    for i in (0, 1):
        slope = grad(lambda a, b: (function(a, b) * weight).sum(), i)
        close(vmap(slope, in_dims)(*tensors), loop(slope, in_dims, *tensors))


@pytest.mark.parametrize("shape", [(4, 5), (5,), ()], ids=str)
@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", UNARY)
def test_others(name: str, policy: str, shape: tuple[int, ...]) -> None:
    x = batch(shape, 0)

    def function(t: torch.Tensor) -> torch.Tensor:
        return call(name, t, policy=policy, eps=EPS)

    close(vmap(function)(x), loop(function, (0,), x))
    slope = grad(lambda t: function(t).sum())
    close(vmap(slope)(x), loop(slope, (0,), x))


@pytest.mark.parametrize("out_dim", [0, 1, -1])
@pytest.mark.parametrize("in_dim", [0, 1, -1])
@pytest.mark.parametrize("name", NAMES)
def test_in_and_out_dims(name: str, in_dim: int, out_dim: int) -> None:
    tensors = [t.movedim(0, in_dim) for t in operands(name, torch.float64, (3, 4, 5), zeros=4)]

    def function(*examples: torch.Tensor) -> torch.Tensor:
        return call(name, *examples, policy="zero")

    in_dims = (in_dim,) * len(tensors)
    expected = loop(function, in_dims, *tensors, out_dim=out_dim)
    close(vmap(function, in_dims, out_dim)(*tensors), expected)


DTYPES = (torch.float16, torch.float32, torch.float64, torch.int32, torch.complex64)
# Neither library has a quotient of half complex numbers.
PAIRS = [
    pair
    for pair in itertools.permutations(DTYPES, 2)
    if set(pair) != {torch.float16, torch.complex64}
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("shapes", SHAPES[1:5], ids=str)
def test_promotion_is_that_of_an_example(
    shapes: tuple[tuple[int, ...], ...], pair: tuple[torch.dtype, torch.dtype]
) -> None:
    for in_dims in IN_DIMS[:3]:
        tensors = [
            numbers(torch.float32, shape if in_dim is None else (3, *shape), 1, 9, seed).to(dtype)
            for seed, (shape, in_dim, dtype) in enumerate(zip(shapes, in_dims, pair, strict=True))
        ]
        y = vmap(safeops.div, in_dims)(*tensors)
        want = loop(safeops.div, in_dims, *tensors)
        assert y.dtype is want.dtype
        # A divisor without dims is not rounded to a half type; one of a batch is.
        torch.testing.assert_close(y, want)


@pytest.mark.parametrize("shape", [(4, 5), ()], ids=str)
@pytest.mark.parametrize("number", [0, 2, 2.5, True, 1j])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=identifier)
def test_numbers(dtype: torch.dtype, number: complex, shape: tuple[int, ...]) -> None:
    x = numbers(torch.float32, (3, *shape), 1, 9).to(dtype)

    def function(t: torch.Tensor) -> torch.Tensor:
        return safeops.div(t, number, policy="zero")

    y, want = vmap(function)(x), loop(function, (0,), x)
    assert y.dtype is want.dtype
    assert_equal(y, want)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounding_modes(mode: str) -> None:
    a, b = operands("div", torch.float64, (3, 5))

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return safeops.div(a, b, rounding_mode=mode, policy="zero")

    def by_number(a: torch.Tensor) -> torch.Tensor:
        return safeops.div(a, 2, rounding_mode=mode)

    assert_equal(vmap(function)(a, b), loop(function, (0, 0), a, b))
    assert_equal(vmap(by_number)(a), loop(by_number, (0,), a))
    whole = torch.arange(-6, 6).view(3, 4)
    assert_equal(vmap(by_number)(whole), loop(by_number, (0,), whole))


@pytest.mark.parametrize("name", NAMES)
def test_nested(name: str) -> None:
    tensors = operands(name, torch.float64, (3, 2, 5), zeros=7)

    def function(*examples: torch.Tensor) -> torch.Tensor:
        return call(name, *examples, policy="zero")

    close(vmap(vmap(function))(*tensors), function(*tensors))
    by_columns = vmap(vmap(function), 1, 1)(*(t.transpose(0, 1) for t in tensors))
    close(by_columns, function(*tensors).transpose(0, 1))


def test_nested_over_one_operand_each() -> None:
    a, b = numbers(torch.float64, (3,), seed=1), batch((), 0)

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return safeops.div(a, b, policy="zero")

    close(vmap(vmap(function, (None, 0)), (0, None))(a, b), function(a[:, None], b))
    slopes = vmap(vmap(grad(function, (0, 1)), (None, 0)), (0, None))(a, b)
    wanted = grad(lambda *t: function(*t).sum(), (0, 1))(a[:, None].expand(3, 3), b.expand(3, 3))
    for slope, want in zip(slopes, wanted, strict=True):
        close(slope, want)


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_of_the_schema_reach_the_rule(name: str) -> None:
    tensors = operands(name, torch.float64, (3, 4), zeros=0)
    operator = getattr(OPS, name).default
    in_dims = (0,) * len(tensors)
    close(vmap(operator)(*tensors), loop(operator, in_dims, *tensors))
    if name == "div":
        by_number = vmap(lambda t: OPS.div.Scalar(t, 2))
        close(by_number(tensors[0]), tensors[0] / 2)
        by_name = vmap(lambda a, b: operator(a, b, policy="zero"))
        close(by_name(*tensors), tensors[0] / tensors[1])


IN_DIMS_OF_BACKWARD = [(0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0), (0, 1, None)]


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("in_dims", IN_DIMS_OF_BACKWARD, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_the_backward_operator_of_quotients(
    shapes: tuple[tuple[int, ...], ...],
    in_dims: tuple[int | None, ...],
    wanted: tuple[bool, bool],
) -> None:
    full = torch.broadcast_shapes(*shapes)
    in_dims = tuple(
        min(d, len(s)) if d else d for d, s in zip(in_dims, (full, *shapes), strict=True)
    )
    tensors = [
        batch(shape, in_dim, seed)
        for seed, (shape, in_dim) in enumerate(zip((full, *shapes), in_dims, strict=True))
    ]
    for i in (i for i in (0, 1) if wanted[i]):

        def function(g: torch.Tensor, a: torch.Tensor, b: torch.Tensor, i: int = i):
            grads = OPS._div_backward.default(g, a, b, None, EPS, "epsilon", wanted)
            assert grads[1 - i].shape == (g.shape if wanted[1 - i] else (0,))
            return grads[i]

        close(vmap(function, in_dims)(*tensors), loop(function, in_dims, *tensors))


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (1, 0)], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_the_other_backward_operators(name: str, in_dims: tuple[int | None, ...]) -> None:
    tensors = [batch((4, 5), in_dim, seed) for seed, in_dim in enumerate(in_dims)]

    def function(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return getattr(OPS, f"_{name}_backward").default(g, x, 0.0, "zero")

    close(vmap(function, in_dims)(*tensors), loop(function, in_dims, *tensors))


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("name", NAMES)
def test_unbatched_inputs_with_batched_gradients(name: str, policy: str) -> None:
    tensors = operands(name, torch.float64, (2, 3))
    indices = tuple(range(len(tensors)))

    def function(*t: torch.Tensor) -> torch.Tensor:
        return call(name, *t, policy=policy, eps=EPS)

    wanted = torch.autograd.functional.jacobian(function, tensors)
    for actual, want in zip(jacrev(function, indices)(*tensors), wanted, strict=True):
        close(actual, want)


@pytest.mark.parametrize("name", NAMES)
def test_in_place(name: str) -> None:
    tensors = operands(name, torch.float64, (3, 4), zeros=2)

    def function(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return getattr(safeops, f"{name}_")(x, *rest, policy="zero")

    expected = call(name, *tensors, policy="zero")
    x = tensors[0].clone()
    assert_equal(vmap(function)(x, *tensors[1:]), expected)
    assert_equal(x, expected)


def test_in_place_on_what_all_examples_share_is_refused_as_in_torch() -> None:
    a, b = operands("div", torch.float64, (3, 4))
    for function in (torch.Tensor.div_, safeops.div_):
        with pytest.raises(RuntimeError, match="vmap"):
            vmap(function, (None, 0))(a[0].clone(), b)


@pytest.mark.parametrize("name", NAMES)
def test_hits_are_those_of_the_loop(name: str) -> None:
    tensors = operands(name, torch.float64, (3, 4), zeros=5)

    def step(*t: torch.Tensor) -> torch.Tensor:
        return grad(lambda *t: call(name, *t, policy="zero").sum(), len(t) - 1)(*t)

    vmap(step)(*tensors)
    assert counts(name) == (0 if name == "sqrt" else 5, 5)


@pytest.mark.parametrize("name", NAMES)
def test_raise_names_the_element_of_the_whole_batch(name: str) -> None:
    tensors = operands(name, torch.float64, (3, 4, 5), zeros=0)
    tensors[-1][1, 2, 3] = -1 if name == "sqrt" else 0
    for in_dim in (0, 2):
        moved = [t.movedim(0, in_dim) for t in tensors]
        with pytest.raises(safeops.SingularityError) as raised:
            vmap(lambda *t: call(name, *t, policy="raise"), in_dim)(*moved)
        assert (raised.value.count, raised.value.first_row) == (1, 1 * 20 + 2 * 5 + 3)
