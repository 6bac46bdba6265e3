"""torch.compile, torch.export and compiled autograd: values, gradients and hits of eager."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo import compiled_autograd
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounter
from torch.export import Dim

import safeops
from samples import NOT_RAISING, assert_same_bits
from softmax_samples import INF, LOGITS, NAMES, call, logits

Model = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled_autograd.reset()
    yield
    torch._dynamo.reset()


def batch(rows: int = 6, columns: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Row 1 holds -inf alone, the last one is masked out."""
    x, where = logits(torch.float32, (rows, columns)), torch.ones(rows, columns, dtype=torch.bool)
    x[1] = -INF
    where[rows - 1] = False
    where[0, 1:3] = False
    return x, where


def hits() -> dict[str, tuple[int, int]]:
    snapshot = safeops.diagnostics.snapshot()
    both = {n: tuple(snapshot.total(n, None, d) for d in ("forward", "backward")) for n in NAMES}
    safeops.diagnostics.reset()
    return both


def model_under(policy: str) -> Model:
    def model(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        y = safeops.softmax(x * 2, -1, where=where, policy=policy)
        z = safeops.log_softmax(x, -1, policy=policy).clamp_min(-1e3)
        w = safeops.logsumexp(x, -1, True, where=where, policy=policy).clamp_min(-1e3)
        return y + z * w + safeops.softmin(x, -1, policy=policy)

    return model


def step(model: Model, x: torch.Tensor, where: torch.Tensor) -> tuple[object, ...]:
    leaf = x.clone().requires_grad_()
    y = model(leaf, where)
    (y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sum().backward()
    return y.detach(), leaf.grad, hits()


def assert_same_step(compiled: Model, model: Model, *inputs: torch.Tensor) -> None:
    y, grad, counted = step(compiled, *inputs)
    want_y, want_grad, want_counted = step(model, *inputs)
    torch.testing.assert_close(y, want_y, equal_nan=True)
    torch.testing.assert_close(grad, want_grad, equal_nan=True)
    assert counted == want_counted
    assert want_counted == {"softmax": (2, 2), "log_softmax": (1, 1), "logsumexp": (2, 2)}


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_aot_eager_equals_eager(policy: str) -> None:
    model = model_under(policy)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_same_step(compiled, model, *batch())


def test_inductor_with_dynamic_shapes_equals_eager_and_compiles_once() -> None:
    model = model_under("zero")
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for rows, columns in ((6, 8), (17, 33)):
        assert_same_step(compiled, model, *batch(rows, columns))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("name", NAMES)
def test_inductor_without_gradients(name: str) -> None:
    # Inductor prefers out= there, and gave it its tensors before its other arguments.
    x, where = batch()
    compiled = torch.compile(
        lambda x, where: call(name, x, where=where, policy="zero"), fullgraph=True
    )
    with torch.no_grad():
        assert_same_bits(compiled(x, where), call(name, x, where=where, policy="zero"))


def test_the_graphs_hold_the_fused_kernels() -> None:
    graphs: dict[str, str] = {}

    def keep(name: str) -> Callable[..., object]:
        def compiler(graph: torch.fx.GraphModule, inputs: object) -> object:
            graphs[name] = graph.code
            return make_boxed_func(graph.forward)

        return compiler

    backend = aot_autograd(fw_compiler=keep("forward"), bw_compiler=keep("backward"))
    step(torch.compile(model_under("zero"), backend=backend, fullgraph=True), *batch())
    for name, calls in (("softmax", 2), ("log_softmax", 1), ("logsumexp", 1)):
        assert graphs["forward"].count(f"safeops._{name}_forward") == calls
        assert graphs["backward"].count(f"safeops._{name}_backward") == calls


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_follows_its_own_scope_and_recompiles_for_no_other(name: str) -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda x: call(name, x, 0), backend=counter, fullgraph=True)
    others = [n for n in ("normalize", *NAMES) if n != name]

    def slope() -> float:
        x = torch.full((3,), -INF, requires_grad=True)
        compiled(x).sum().backward()
        return x.grad[0].item()

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
    def model(x: torch.Tensor) -> torch.Tensor:
        first = safeops.softmax(x, -1)
        with safeops.policy("zero", softmax="nan", eps=0.5):
            second = safeops.softmax(x, -1) + safeops.log_softmax(x, -1, policy="epsilon")
            with safeops.policy("zero"):
                third = safeops.softmax(x, -1)
        return torch.stack([first, second, third, safeops.softmax(x, -1)])

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = torch.tensor([[-INF, -INF], [0.0, 1.0]])
    for outer in ("epsilon", "zero", "nan"):
        with safeops.policy(outer):
            for _ in range(2):
                torch.testing.assert_close(compiled(x), model(x), equal_nan=True)


def test_modules() -> None:
    model = torch.nn.Sequential(safeops.nn.Softmax(-1, "zero"), safeops.nn.LogSoftmax(-1, "zero"))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x, _ = batch()
    torch.testing.assert_close(compiled(x), model(x))


def test_dtype_and_strides_are_those_of_eager() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            safeops.softmax(x, 1, torch.float32, policy="zero"),
            safeops.log_softmax(x, 0, policy="zero"),
            safeops.logsumexp(x, (0, 2), policy="zero"),
        )

    x = logits(torch.float16, (2, 3, 4, 5)).contiguous(memory_format=torch.channels_last)
    for got, want in zip(torch.compile(model, fullgraph=True)(x), model(x), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", NAMES)
def test_out(name: str, backend: str) -> None:
    def model(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        call(name, x + 1, policy="zero", out=out)
        return out * 2

    def run(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.compile(model, backend=backend, fullgraph=True)(x, out)

    x = logits(torch.float32, (4, 3))
    want = call(name, x + 1)
    out = torch.full_like(want, 7)
    doubled = run(x, out)
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(doubled, 2 * want)


@pytest.mark.parametrize("name", NAMES)
def test_raise_surfaces_as_a_value_error(name: str) -> None:
    compiled = torch.compile(
        lambda x: call(name, x, policy="raise"), backend="aot_eager", fullgraph=True
    )
    with pytest.raises(ValueError, match="policy 'raise' met 1 singular row of 6.*first at row 1"):
        compiled(batch()[0])


def test_br_124_a_scale_of_1e14_compiled_and_eager() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return safeops.softmax(x * 1e14, dim=-1, policy="raise")

    x = logits(torch.float32, (4, 7))
    y = torch.compile(model, fullgraph=True)(x)
    assert_same_bits(y, model(x))
    assert torch.equal(y, torch.nn.functional.one_hot(x.argmax(-1), 7).float())


class Attention(torch.nn.Module):
    def __init__(self, policy: str) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 5, bias=False)
        self.policy = policy

    def forward(self, x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        scores = self.linear(x)
        weights = safeops.softmax(scores, -1, where=where, policy=self.policy)
        return weights * safeops.logsumexp(scores, -1, True, policy=self.policy)


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    module = Attention("zero")
    x, where = logits(torch.float32, (6, 8)), torch.ones(6, 5, dtype=torch.bool)
    where[3] = False
    rows = Dim("rows", min=2)
    program = torch.export.export(
        module, (x, where), dynamic_shapes=({0: rows}, {0: rows}), strict=strict
    )
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count("safeops.softmax.default") == 1
    assert targets.count("safeops.logsumexp.default") == 1
    file = io.BytesIO()
    torch.export.save(program.run_decompositions(), file)
    file.seek(0)
    for loaded in (program.module(), torch.export.load(file).module()):
        assert_same_bits(loaded(x, where), module(x, where))
        assert_same_bits(loaded(x[:4], where[:4]), module(x[:4], where[:4]))
    assert hits()["softmax"] == (8, 0)


# Compiled autograd over eager forward passes


def compiler(backend: str) -> Callable[[torch.fx.GraphModule], object]:
    return lambda graph: torch.compile(graph, backend=backend, fullgraph=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_autograd(backend: str) -> None:
    x, where = batch()
    _, want, want_hits = step(model_under("zero"), x, where)
    leaf = x.clone().requires_grad_()
    y = model_under("zero")(leaf, where)
    with compiled_autograd._enable(compiler(backend)):
        (y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sum().backward()
    assert hits() == want_hits
    torch.testing.assert_close(leaf.grad, want, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_autograd_keeps_policies_dims_and_dtypes_apart(name: str) -> None:
    cases: list[tuple[int, dict[str, object]]] = [(0, {"policy": p}) for p in NOT_RAISING]
    cases += [(1, {"policy": "zero"}), (0, {"policy": "zero"})]
    if name in LOGITS:
        cases += [(0, {"policy": "zero", "dtype": torch.float64})]
    x = logits(torch.float32, (4, 4))
    x[1], x[:, 1] = -INF, -INF
    for dim, arguments in cases:
        grads = []
        for compiled in (False, True):
            leaf = x.clone().requires_grad_()
            total = call(name, leaf, dim, **arguments).nan_to_num().square().sum()
            if compiled:
                with compiled_autograd._enable(compiler("eager")):
                    total.backward()
            else:
                total.backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(grads[1], grads[0], equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_autograd_of_second_order(name: str) -> None:
    grads = []
    for compiled in (False, True):
        x = logits(torch.float64, (3, 4)).requires_grad_()
        (first,) = torch.autograd.grad(call(name, x).square().sum(), x, create_graph=True)
        if compiled:
            with compiled_autograd._enable(compiler("aot_eager")):
                first.square().sum().backward()
        else:
            first.square().sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[1], grads[0])
