"""What only a GPU can show: errors that come later, counts, graphs, streams.

The policy, accuracy, layout and out= tests run there as well, see `every_device` in conftest.py.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest
import torch
import torch.nn.functional as F

import safeops
from division_samples import NAMES as DIVISION
from safeops import diagnostics
from samples import POLICIES, assert_same_bits, counts, identifier, random_like
from singular_calls import here, rows
from softmax_samples import NAMES as SOFTMAX

if not safeops.cuda.is_available():
    pytest.skip(str(safeops.cuda.why_unavailable()), allow_module_level=True)

INF = float("inf")
# The operators on a matrix of which row 0, or its elements, are singular.
CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "normalize": safeops.normalize,
    **{n: lambda x, n=n, **rest: getattr(safeops, n)(x.log(), -1, **rest) for n in SOFTMAX},
    **{n: lambda x, n=n, **rest: getattr(safeops, n)(x, **rest) for n in DIVISION if n != "div"},
    "div": lambda x, **rest: safeops.div(x + 1, x, **rest),
}


@pytest.fixture(autouse=True)
def deferred() -> Iterator[None]:
    diagnostics.set_raise_mode("deferred")
    yield
    try:
        diagnostics.check()
    finally:
        diagnostics.set_raise_mode("deferred")


def zeros(zero: int = 1, regular: int = 2) -> torch.Tensor:
    return rows(zero, regular).flip(0).cuda()


@pytest.mark.parametrize("policy", [p for p in POLICIES if p != "raise"])
@pytest.mark.parametrize("name", CALLS)
def test_deferred_counts_are_those_of_the_cpu(name: str, policy: str) -> None:
    found = []
    for x in (zeros(3).cpu(), zeros(3)):
        leaf = x.requires_grad_()
        CALLS[name](leaf, policy=policy).sum().backward()
        records = diagnostics.snapshot().records
        found.append([(r.condition, r.direction, r.count, r.first_row) for r in records])
        assert {r.device for r in records} <= {x.device.type}
        diagnostics.reset()
    assert found[0] == found[1] and found[0]


@pytest.mark.parametrize("name", CALLS)
def test_deferred_hits_have_no_line_and_exact_ones_have(name: str) -> None:
    CALLS[name](zeros(), policy="nan")
    assert diagnostics.snapshot().sites == ()
    diagnostics.reset()
    diagnostics.set_raise_mode("exact")
    CALLS[name](zeros(), policy="nan").sum()
    expected = [] if name == "sqrt" else [__file__]
    assert [site.filename for site in diagnostics.snapshot().sites] == expected


def test_the_next_call_raises_in_the_name_of_the_earlier_one() -> None:
    safeops.normalize(zeros(), policy="raise")
    line = here() - 1
    torch.cuda.synchronize()
    with pytest.raises(safeops.SingularityError) as caught:
        safeops.softmax(zeros(), -1, policy="zero")
    error = caught.value
    assert f"; it was called at {__file__}:{line}" in str(error)
    assert (error.operator, error.condition, error.count) == ("normalize", "zero_norm", 1)
    assert (error.first_row, error.shape, error.dtype) == (0, (3, 3), "float32")
    # Told of once.
    diagnostics.check()
    assert counts() == (1, 0)


def test_check_waits_and_raises() -> None:
    diagnostics.check()
    x = zeros()
    for _ in range(50):
        x = x * 1
    y = safeops.normalize(x, policy="raise")
    with pytest.raises(safeops.SingularityError, match="met a singular row of 3"):
        diagnostics.check()
    assert y[0].isnan().all() and not y[1:].isnan().any()


def test_backward_raises_for_an_earlier_call() -> None:
    x = torch.tensor([4.0, 0.0], device="cuda", requires_grad=True)
    safeops.sqrt(x, policy="raise").sum().backward()
    with pytest.raises(safeops.SingularityError, match=r"sqrt \(backward\).*element"):
        diagnostics.check()
    leaf = zeros(0).requires_grad_()
    y = safeops.normalize(leaf, policy="zero")
    safeops.normalize(zeros(), policy="raise")
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="'raise' met"):
        y.sum().backward()


def test_an_error_of_the_cpu_is_its_own_while_one_is_pending() -> None:
    safeops.normalize(zeros(), policy="raise")
    with pytest.raises(safeops.SingularityError, match="met 1 singular row of 1"):
        safeops.normalize(torch.zeros(1, 3), policy="raise")
    with pytest.raises(safeops.SingularityError, match="earlier call on cuda"):
        diagnostics.check()


def test_exact_raises_at_the_call_and_writes_nothing() -> None:
    diagnostics.set_raise_mode("exact")
    out = torch.full((3, 3), 7.0, device="cuda")
    with pytest.raises(safeops.SingularityError, match="met 1 singular row of 3"):
        safeops.normalize(zeros(), policy="raise", out=out)
    assert (out == 7).all()
    diagnostics.check()


@pytest.mark.parametrize("shape", [(5, 3), (40, 300), (3, 9000), (2, 200_000)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_normalize_and_quotients_have_the_bits_of_the_cpu(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    x = random_like(torch.empty(shape, dtype=dtype, device="cpu"))
    x[0, :2] = 0
    g = random_like(x, seed=2)
    for call in (safeops.normalize, lambda x, **rest: safeops.div(x.flip(1), x, **rest)):
        found = []
        for place in ("cpu", "cuda"):
            leaf = x.to(place).requires_grad_()
            y = call(leaf, policy="zero")
            found.append((y, *torch.autograd.grad(y, leaf, g.to(place))))
        for one, other in zip(*found, strict=True):
            assert_same_bits(one, other)


@pytest.mark.parametrize("mode", ["deferred", "exact"])
def test_a_graph_counts_at_every_replay_and_its_error_names_the_call(mode: str) -> None:
    diagnostics.set_raise_mode(mode)
    x = zeros(0)
    safeops.normalize(x, policy="raise")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = safeops.normalize(x, policy="raise")
        line = here() - 1
    diagnostics.reset()
    graph.replay()
    diagnostics.check()
    torch.testing.assert_close(y, F.normalize(x))
    x[1] = 0
    for _ in range(3):
        graph.replay()
    with pytest.raises(safeops.SingularityError, match=f"called at {__file__}:{line}"):
        diagnostics.check()
    assert counts() == (3, 0)


def test_streams_and_compiled_code_count() -> None:
    x = zeros(4)
    streams = [torch.cuda.Stream() for _ in range(4)]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(10):
                safeops.normalize(x, policy="zero")
    compiled = torch.compile(lambda x: safeops.normalize(x, policy="zero"), backend="aot_eager")
    compiled(x)
    torch.cuda.synchronize()
    assert counts() == (4 * 41, 0)


def test_a_patched_call_is_ours_where_there_is_a_kernel() -> None:
    x = zeros()
    with safeops.patch(policy="zero"):
        F.normalize(x), F.normalize(x, p=3.0)
    assert counts() == (1, 0)


def test_an_observed_call_counts_and_an_exact_audit_has_lines() -> None:
    with safeops.patch(observe=True):
        F.normalize(zeros())
    assert counts() == (1, 0)
    diagnostics.set_raise_mode("exact")
    with safeops.audit() as report:
        F.normalize(zeros().requires_grad_()).sum().backward()
    (site,) = report.sites
    assert (site.filename, site.forward, site.backward) == (__file__, 1, 1)


def test_a_child_of_fork_counts_its_own_and_is_refused_cuda() -> None:
    def child(x: torch.Tensor, connection: Connection) -> None:
        diagnostics.reset()
        safeops.normalize(torch.zeros(2, 3), policy="zero")
        try:
            safeops.normalize(x, policy="zero")
            refusal = "none"
        except RuntimeError as error:
            refusal = str(error)
        connection.send((diagnostics.snapshot().total(), refusal))

    x = zeros()
    safeops.normalize(x, policy="zero")
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(x, theirs))
    process.start()
    assert ours.poll(60)
    total, refusal = ours.recv()
    assert total == 2 and "fork" in refusal and "spawn" in refusal
    process.join()
    assert counts() == (1, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=identifier)
def test_a_half_by_one_element_of_another_dtype(dtype: torch.dtype) -> None:
    x = random_like(torch.empty(2000, dtype=dtype, device="cpu"))
    divisor = torch.tensor(0.3, dtype=torch.float64)
    by_number = safeops.div(x, 0.3)
    assert_same_bits(safeops.div(x.cuda(), 0.3), by_number)
    assert_same_bits(safeops.div(x.cuda(), divisor), by_number)
    # torch rounds this one to the half type first.
    on_device = safeops.div(x.cuda(), divisor.cuda())
    assert_same_bits(on_device, torch.div(x.cuda(), divisor.cuda()))
    assert_same_bits(on_device, safeops.div(x, divisor.to(dtype)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=identifier)
def test_compiled_numbers_stay_on_the_cpu_under_a_default_device(dtype: torch.dtype) -> None:
    x = random_like(torch.empty(2000, dtype=dtype, device="cuda"))
    want = safeops.div(x, 0.3)
    with torch.device("cuda"):
        compiled = torch.compile(lambda x: safeops.div(x, 0.3), backend="eager", fullgraph=True)
        assert_same_bits(compiled(x), want)


def test_counting_goes_on_while_another_thread_reads() -> None:
    x = zeros(2)
    graphs = [torch.cuda.CUDAGraph() for _ in range(20)]  # of which each is captured once
    safeops.normalize(x, policy="zero")
    diagnostics.reset()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            diagnostics.snapshot()
            diagnostics.check()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for graph in graphs:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                safeops.normalize(x, policy="zero")
            graph.replay()
    finally:
        done.set()
        reader.join()
    torch.cuda.synchronize()
    assert counts() == (2 * len(graphs), 0)


def test_an_error_that_is_pending_does_not_end_a_capture() -> None:
    safeops.normalize(zeros(), policy="raise")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    x = zeros(0)
    with torch.cuda.graph(graph):
        safeops.softmax(x, -1, policy="raise")
        diagnostics.check()
    with pytest.raises(safeops.SingularityError, match="normalize"):
        diagnostics.check()
