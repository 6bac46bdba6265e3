"""torch.compile: no graph breaks; values, gradients and hits of eager; one fused backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx

import safeops
from samples import NOT_RAISING, assert_same_bits, counts

Model = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def batch(rows: int = 6, columns: int = 8) -> torch.Tensor:
    x = torch.randn(rows, columns)
    x[1] = 0
    x[rows - 1] = 0
    return x


def step(
    model: Model, x: torch.Tensor, *rest: object
) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int]]:
    leaf = x.clone().requires_grad_()
    y = model(leaf, *rest)
    (y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sum().backward()
    return y.detach(), leaf.grad, counts()


def assert_same_step(compiled: Model, model: Model, x: torch.Tensor) -> None:
    y, grad, hits = step(compiled, x)
    want_y, want_grad, want_hits = step(model, x)
    torch.testing.assert_close(y, want_y, equal_nan=True)
    torch.testing.assert_close(grad, want_grad, equal_nan=True)
    assert hits == want_hits and want_hits[0] > 0


def model_under(policy: str, p: float = 2.0) -> Model:
    def model(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x * 2, p=p, dim=-1, policy=policy) + 1

    return model


@pytest.mark.parametrize("policy", NOT_RAISING)
def test_aot_eager_equals_eager(policy: str) -> None:
    model = model_under(policy)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_same_step(compiled, model, batch())


@pytest.mark.parametrize("p", [1.0, 3.0, float("inf")])
def test_aot_eager_equals_eager_for_other_orders(p: float) -> None:
    model = model_under("zero", p)
    assert_same_step(torch.compile(model, backend="aot_eager", fullgraph=True), model, batch())


def test_inductor_equals_eager() -> None:
    model = model_under("zero")
    compiled = torch.compile(model, fullgraph=True)
    assert_same_step(compiled, model, batch())
    x = batch()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert counts() == (4, 0)


def test_inductor_with_dynamic_shapes_compiles_once() -> None:
    model = model_under("epsilon")
    compiled = torch.compile(model, backend="inductor", fullgraph=True, dynamic=True)
    for rows, columns in ((6, 8), (9, 5), (17, 33)):
        assert_same_step(compiled, model, batch(rows, columns))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_inductor_keeps_strides() -> None:
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(
        lambda t: safeops.normalize(t + 1, dim=1, policy="zero"), fullgraph=True
    )
    y = compiled(x)
    expected = F.normalize(x + 1, dim=1)
    torch.testing.assert_close(y, expected)
    assert y.stride() == expected.stride()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_dynamic_shapes(backend: str) -> None:
    model = model_under("zero")
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for rows in (4, 7, 12):
        assert_same_step(compiled, model, batch(rows))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_without_a_policy_compiled_code_counts_and_does_not_warn() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, dim=-1)

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    y, grad, hits = step(compiled, batch())
    assert hits == (2, 2)
    assert (y[1] == 0).all() and (grad[1].abs() > 1e10).any()


def test_a_policy_scope_outside_is_followed_and_recompiles() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, dim=-1)

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = batch()
    for policy in ("zero", "nan", "zero", "nan"):
        with safeops.policy(policy):
            y, grad, _ = step(compiled, x)
        check = torch.isnan if policy == "nan" else lambda t: t == 0
        assert check(y[1]).all() and check(grad[1]).all(), policy
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_a_policy_scope_inside_the_compiled_region() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        with safeops.policy("zero"):
            y = safeops.normalize(x, dim=-1)
        return y + safeops.normalize(x, dim=-1, policy="stock")

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_same_step(compiled, model, batch())


def test_raise_surfaces_as_a_value_error() -> None:
    compiled = torch.compile(model_under("raise"), backend="aot_eager", fullgraph=True)
    with pytest.raises(ValueError, match="policy 'raise' met 2 singular rows of 6.*first at row 1"):
        compiled(batch())
    torch.testing.assert_close(compiled(torch.ones(6, 8)), model_under("stock")(torch.ones(6, 8)))


def test_the_graphs_hold_the_fused_kernels() -> None:
    graphs: dict[str, str] = {}

    def keep(name: str) -> Callable[..., object]:
        def compiler(graph: torch.fx.GraphModule, inputs: object) -> object:
            graphs[name] = graph.code
            return make_boxed_func(graph.forward)

        return compiler

    backend = aot_autograd(fw_compiler=keep("forward"), bw_compiler=keep("backward"))
    step(torch.compile(model_under("zero"), backend=backend, fullgraph=True), batch())
    assert graphs["forward"].count("safeops._normalize_forward") == 1
    assert graphs["backward"].count("safeops._normalize_backward") == 1
    assert "where" not in graphs["backward"]


def test_torch_func_grad_stays_fused_when_traced() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (model_under("zero")(x) ** 2).sum()

    code = make_fx(torch.func.grad(loss))(batch()).code
    assert code.count("safeops._normalize_backward") == 1


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.grad,
        lambda f: torch.func.grad(lambda x: torch.func.grad(f)(x).square().sum()),
        lambda f: torch.vmap(torch.func.grad(f)),
        torch.func.hessian,
        lambda f: lambda x: torch.func.jvp(f, (x,), (x.cos(),))[1],
    ],
    ids=["grad", "grad^2", "vmap grad", "hessian", "jvp"],
)
def test_transforms_inside_the_compiled_region(transform: Callable[[Model], Model]) -> None:
    x = torch.randn(3, 4, dtype=torch.float64)

    def loss(t: torch.Tensor) -> torch.Tensor:
        return (safeops.normalize(t, dim=-1, policy="zero") ** 3).sum()

    compiled = torch.compile(transform(loss), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), transform(loss)(x))


def test_out_in_the_compiled_region() -> None:
    def model(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        safeops.normalize(x + 1, dim=-1, policy="zero", out=out)
        return out * 2

    x, out = torch.randn(4, 3), torch.empty(4, 3)
    for backend in ("eager", "aot_eager"):
        out.fill_(7)
        doubled = torch.compile(model, backend=backend, fullgraph=True)(x, out)
        torch.testing.assert_close(out, F.normalize(x + 1))
        torch.testing.assert_close(doubled, 2 * out)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_lazy_conjugates_in_an_inference_graph(backend: str) -> None:
    # Compiled inference graphs drop a lazy conj made inside a kernel; only complex values show it.
    x = torch.randn(3, 4, dtype=torch.complex64)

    def model(t: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(t.conj(), dim=-1, policy="zero")

    def gradient(g: torch.Tensor, t: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        return torch.ops.safeops._normalize_backward(g.conj(), t, norm, 2.0, [1], 0.0, "zero")

    g, norm = torch.ops.safeops._normalize_forward(x, 2.0, [1], 0.0, "zero")
    with torch.no_grad():
        compiled = torch.compile(model, backend=backend, fullgraph=True)(x)
        assert_same_bits(compiled, model(x))
        compiled = torch.compile(gradient, backend=backend, fullgraph=True)(g, x, norm)
        assert_same_bits(compiled, gradient(g, x, norm))


def test_inductor_with_several_dims() -> None:
    # Inductor prefers out= where there are no gradients, and gave it the dims one by one.
    compiled = torch.compile(
        lambda t: safeops.normalize(t, dim=(0, 2), policy="zero"), fullgraph=True
    )
    x = torch.randn(2, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), F.normalize(x, dim=(0, 2)))


def test_a_tuple_of_dims_and_defaults() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(x, dim=(0, 2)) + safeops.normalize(x)

    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(
        torch.compile(model, backend="aot_eager", fullgraph=True)(x), model(x)
    )


def test_a_bad_policy_is_named_at_compile_time() -> None:
    compiled = torch.compile(model_under("sometimes"), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="(?s)normalize.*policy.*sometimes"):
        compiled(batch())
