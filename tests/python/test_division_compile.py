"""torch.compile: values, gradients and hits of eager, for numbers and sizes that vary, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounter

import safeops
from division_samples import EPS, NAMES, call, numbers, operands
from samples import LONG, NOT_RAISING, REAL, assert_same_bits, counts, identifier

Model = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def hits() -> dict[str, int]:
    snapshot = safeops.diagnostics.snapshot()
    found = {
        f"{name} {direction}": snapshot.total(name, None, direction)
        for name in NAMES
        for direction in ("forward", "backward")
    }
    safeops.diagnostics.reset()
    return found


def pair(rows: int = 5, columns: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """The second one holds zeros and negative numbers."""
    a, b = operands("div", torch.float32, (rows, columns), zeros=3)
    b[-1] *= -1
    return a, b


def model_under(policy: str) -> Model:
    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = safeops.div(a * 2, b, policy=policy) + safeops.div(b, 3, policy=policy)
        for name in NAMES[1:]:
            y = y + call(name, b, policy=policy, eps=EPS) * a
        z = safeops.div_(a.clone(), b, policy=policy) + safeops.sqrt_(b * 1, policy=policy)
        return y + z + safeops.div(a, b, rounding_mode="floor", policy=policy)

    return model


def step(model: Model, *inputs: torch.Tensor) -> tuple[object, ...]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = model(*leaves)
    (y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sum().backward()
    return y.detach(), *(leaf.grad for leaf in leaves), hits()


def assert_same_step(compiled: Model, model: Model, *inputs: torch.Tensor) -> None:
    *tensors, counted = step(compiled, *inputs)
    *wanted, want_counted = step(model, *inputs)
    for tensor, want in zip(tensors, wanted, strict=True):
        torch.testing.assert_close(tensor, want, equal_nan=True)
    assert counted == want_counted
    assert all(want_counted.values())


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_aot_eager_equals_eager(policy: str) -> None:
    model = model_under(policy)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_same_step(compiled, model, *pair())


def test_dynamic_shapes_equal_eager_and_compile_once() -> None:
    model = model_under("zero")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows, columns in ((5, 6), (17, 33)):
        assert_same_step(compiled, model, *pair(rows, columns))
    assert graphs() == 1


def test_inductor_with_dynamic_shapes_equals_eager() -> None:
    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return safeops.div(a, b, policy="zero") + safeops.sqrt(b / a.shape[0], policy="zero")

    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for rows, columns in ((5, 6), (17, 33)):
        *tensors, counted = step(compiled, *pair(rows, columns))
        *wanted, want_counted = step(model, *pair(rows, columns))
        for tensor, want in zip(tensors, wanted, strict=True):
            torch.testing.assert_close(tensor, want)
        assert counted == want_counted and counted["sqrt backward"] > 0


def test_the_graphs_hold_the_fused_kernels() -> None:
    codes: dict[str, str] = {}

    def keep(name: str) -> Callable[..., object]:
        def compiler(graph: torch.fx.GraphModule, inputs: object) -> object:
            codes[name] = graph.code
            return make_boxed_func(graph.forward)

        return compiler

    backend = aot_autograd(fw_compiler=keep("forward"), bw_compiler=keep("backward"))
    step(torch.compile(model_under("zero"), backend=backend, fullgraph=True), *pair())
    for name, calls in (("div", 4), ("reciprocal", 1), ("rsqrt", 1), ("sqrt", 2), ("log", 1)):
        assert codes["forward"].count(f"safeops.{name}.") == calls
        assert codes["backward"].count(f"safeops._{name}_backward.") == calls


@pytest.mark.parametrize("name", NAMES)
def test_inductor_without_gradients(name: str) -> None:
    tensors = operands(name, torch.float32)
    compiled = torch.compile(lambda *t: call(name, *t, policy="zero"), fullgraph=True)
    with torch.no_grad():
        assert_same_bits(compiled(*tensors), call(name, *tensors, policy="zero"))


@pytest.mark.parametrize("index", [0, 1])
def test_a_quotient_of_which_one_operand_requires_grad(index: int) -> None:
    compiled = torch.compile(
        lambda a, b: safeops.div(a, b, policy="zero"), backend="aot_eager", fullgraph=True
    )
    grads = []
    for function in (compiled, lambda a, b: safeops.div(a, b, policy="zero")):
        tensors = list(operands("div", torch.float32))
        tensors[1] = tensors[1][:1]
        tensors[index].requires_grad_()
        function(*tensors).square().sum().backward()
        grads.append(tensors[index].grad)
    torch.testing.assert_close(*grads)


# Numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=identifier)
@pytest.mark.parametrize("kind", [float, int])
def test_numbers_that_vary_are_compiled_twice_at_most(kind: type, dtype: torch.dtype) -> None:
    compiled = torch.compile(
        lambda x, c: safeops.div(x, c, policy="zero"), backend="aot_eager", fullgraph=True
    )
    x = numbers(torch.float32, (5,), 1, 9).to(dtype)
    for i in range(12):
        number = kind(i * 1.1)
        got, want = compiled(x, number), safeops.div(x, number, policy="zero")
        assert got.dtype is want.dtype
        assert_same_bits(got, want)
    # A number is a constant at first, and 0 and 1 stay constants.
    assert graphs() <= 4


PROMOTED = (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int32, torch.bool)


@pytest.mark.parametrize("number", [0, 3, 2049, 0.3, -0.0, True, 2j], ids=str)
@pytest.mark.parametrize(
    ("dtype", "shape"),
    # How a number promotes does not depend on the shape, but that 0-d tensors are no numbers.
    [
        (dtype, shape)
        for dtype in PROMOTED
        for shape in ((3,), ())
        if LONG or not shape or dtype in (torch.bfloat16, torch.int32)
    ],
    ids=identifier,
)
def test_numbers_promote_as_in_eager(
    dtype: torch.dtype, shape: tuple[int, ...], number: complex
) -> None:
    if dtype is torch.bfloat16 and isinstance(number, complex):
        dtype = torch.complex128  # neither has a quotient of half complex numbers
    x = torch.full(shape, 7.0).to(dtype)
    compiled = torch.compile(safeops.div, backend="eager", fullgraph=True)
    got, want = compiled(x, number, policy="zero"), safeops.div(x, number, policy="zero")
    assert got.dtype is want.dtype
    assert_same_bits(got, want)


def test_a_size_as_the_divisor() -> None:
    compiled = torch.compile(
        lambda x: safeops.div(x, x.shape[0], policy="zero") + safeops.div_(x.clone(), len(x)),
        backend="aot_eager",
        fullgraph=True,
        dynamic=True,
    )
    for size in (3, 5, 7):
        x = numbers(torch.float32, (size,))
        torch.testing.assert_close(compiled(x), 2 * x / size)
    assert graphs() == 1


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
@pytest.mark.parametrize(
    "number", [-1, 200, 255, 300, 2**40] if LONG else [-1, 300, 2**40], ids=str
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=identifier)
def test_numbers_that_the_dtype_does_not_hold(
    dtype: torch.dtype, number: int, mode: str | None
) -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ratio = safeops.div(number, x, rounding_mode=mode, policy="zero")
        return safeops.div(x, number, rounding_mode=mode, policy="zero"), ratio

    x = torch.tensor([5, 7, 100]).to(dtype)
    for got, want in zip(
        torch.compile(both, backend="eager", fullgraph=True)(x), both(x), strict=True
    ):
        assert_same_bits(got, want)


@pytest.mark.parametrize("number", [1, 1.0, 0.3, True, 2j], ids=str)
@pytest.mark.parametrize("dtype", [*REAL, torch.complex64, torch.int32], ids=identifier)
def test_a_number_as_the_dividend(dtype: torch.dtype, number: complex) -> None:
    if dtype.itemsize == 2 and isinstance(number, complex):
        dtype = torch.complex128  # neither has a quotient of half complex numbers
    x = torch.tensor([0.5, 2.0, 7.0]).to(dtype)
    compiled = torch.compile(safeops.div, backend="eager", fullgraph=True)
    assert_same_bits(compiled(number, x, policy="zero"), safeops.div(number, x, policy="zero"))


def test_rounding_by_a_number_stays_among_integers() -> None:
    compiled = torch.compile(
        lambda x, n: safeops.div(x, n, rounding_mode="floor"), backend="aot_eager", fullgraph=True
    )
    for x in (torch.arange(-5, 5, dtype=torch.int32), torch.tensor(7, dtype=torch.uint8)):
        for number in (2, 3, 4):
            got = compiled(x, number)
            assert got.dtype is x.dtype
            assert torch.equal(got, x // number)


# Scopes


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_follows_its_own_scope_and_recompiles_for_no_other(name: str) -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda *t: call(name, *t), backend=counter, fullgraph=True)
    others = [n for n in ("normalize", "softmax", *NAMES) if n != name]

    def slope() -> float:
        tensors = [t.requires_grad_() for t in operands(name, torch.float32)]
        compiled(*tensors).sum().backward()
        return tensors[-1].grad[0, 0].item()

    for _ in range(2):
        with safeops.policy(**{name: "zero"}):
            assert slope() == 0
            with safeops.policy(**dict.fromkeys(others, "nan")):
                assert slope() == 0
        with safeops.policy("zero", **{name: "nan"}):
            assert slope() != slope()
        with safeops.policy("zero", **{name: "raise"}), pytest.raises(ValueError, match="'raise'"):
            slope()
    assert counter.frame_count == 3


def test_scopes_inside_compiled_code() -> None:
    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        first = safeops.div(a, b)
        with safeops.policy("zero", div="nan", eps=0.5):
            second = safeops.div(a, b) + safeops.log(b, policy="epsilon")
            with safeops.policy("zero"):
                third = safeops.div_(a.clone(), b)
        return torch.stack([first, second, third, safeops.div(a, b)])

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for outer in ("epsilon", "zero", "nan"):
        with safeops.policy(outer):
            for _ in range(2):
                torch.testing.assert_close(compiled(*pair()), model(*pair()), equal_nan=True)


# Targets


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("form", ["div", "by number", "sqrt"])
def test_out_and_in_place(form: str, backend: str) -> None:
    def change(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        if form == "div":
            safeops.div(a + 1, b, policy="zero", out=out)
            return safeops.div_(a, b, policy="zero") + out
        if form == "by number":
            safeops.div(a + 1, 3, policy="zero", out=out)
            return safeops.div_(a, 2.5, policy="zero") + out
        safeops.sqrt(b + 1, policy="zero", out=out)
        return safeops.sqrt_(a, policy="zero") + out

    compiled = torch.compile(change, backend=backend, fullgraph=True)
    results = []
    for function in (change, compiled):
        a, b = pair()
        out = torch.full_like(a, 7)
        results.append((function(a, b, out), a, out))
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", NAMES)
def test_raise_surfaces_as_a_value_error(name: str) -> None:
    compiled = torch.compile(
        lambda *t: call(name, *t, policy="raise"), backend="aot_eager", fullgraph=True
    )
    tensors = operands(name, torch.float32, zeros=0)
    tensors[-1][1, 2] = -1 if name == "sqrt" else 0
    with pytest.raises(ValueError, match="met 1 singular element of 24.*first at element 8"):
        compiled(*tensors)
    assert counts(name) == (1, 0)


def test_strides_and_dtype_are_those_of_eager() -> None:
    def model(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            safeops.div(a, b),
            safeops.div(b, a),
            safeops.log(a),
            safeops.reciprocal(a.int(), policy="zero"),
            safeops.div(a[:, :1], b[0]),
        )

    a = numbers(torch.float16, (2, 3, 4, 5)).contiguous(memory_format=torch.channels_last)
    b = numbers(torch.float32, (4, 3, 5)).transpose(0, 1).expand(2, 3, 4, 5)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for got, want in zip(compiled(a, b), model(a, b), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
