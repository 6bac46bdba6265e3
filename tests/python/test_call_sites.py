"""Level 3: the module and the stack of a call line."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel
from torch.utils.checkpoint import checkpoint

import safeops
from safeops import _call_stack, diagnostics
from singular_calls import here, rows


@pytest.fixture(autouse=True)
def level_3(fresh_state) -> None:
    diagnostics.set_level(3)


class Normalize(nn.Module):
    def forward(self, x):
        return safeops.normalize(x, dim=-1, policy="zero")


LINE = Normalize.forward.__code__.co_firstlineno + 1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Normalize()

    def forward(self, x):
        return self.attention(x)


class Transformer(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def hits() -> dict[str | None, tuple[int, int]]:
    sites = diagnostics.snapshot().sites
    by_module = {site.module: (site.forward, site.backward) for site in sites}
    assert len(by_module) == len(sites)
    return by_module


def test_each_module_is_a_site_of_its_own() -> None:
    x = rows(3).requires_grad_()
    model = Transformer()
    model(x).sum().backward()
    model.layers[1](x)
    assert hits() == {
        "Transformer.layers.0.attention": (3, 3),
        "Transformer.layers.1.attention": (3, 3),
        "Block.attention": (3, 0),
    }
    assert {site.lineno for site in diagnostics.snapshot().sites} == {LINE}


def test_a_call_outside_modules_has_a_stack_and_no_module() -> None:
    def inner():
        return safeops.normalize(rows(1), dim=-1, policy="zero"), here()

    (_, line), outer = inner(), here()
    (site,) = diagnostics.snapshot().sites
    assert site.module is None
    assert site.stack[-2:] == (
        diagnostics.Frame(__file__, outer, "test_a_call_outside_modules_has_a_stack_and_no_module"),
        diagnostics.Frame(__file__, line, "inner"),
    )


def test_the_stack_leaves_out_what_is_ours() -> None:
    def sink(event: diagnostics.Event) -> None:
        safeops.log(torch.zeros(1), policy="zero")

    with diagnostics.add_sink(sink, synchronous=True):
        safeops.normalize(rows(1), dim=-1, policy="zero")
    of_test, of_sink = diagnostics.snapshot().sites
    assert of_sink.stack[:-2] == of_test.stack[:-1]
    assert [frame.function for frame in of_sink.stack[-2:]] == [of_test.function, "sink"]


def test_the_stack_ends_at_the_line_and_passes_through_the_modules() -> None:
    Transformer()(rows(1))
    first, second = diagnostics.snapshot().sites
    assert first.stack[-1] == diagnostics.Frame(__file__, LINE, "forward")
    own = [frame.function for frame in first.stack if frame.filename == __file__]
    assert own[-3:] == ["forward", "forward", "forward"]
    assert first.stack == second.stack


def test_below_level_3_there_is_neither() -> None:
    for level in (1, 2):
        diagnostics.set_level(level)
        diagnostics.reset()
        Transformer()(rows(1))
        (site,) = diagnostics.snapshot().sites
        assert (site.module, site.stack, site.forward) == (None, None, 2)


def test_a_line_met_below_level_3_gets_its_stack_at_level_3() -> None:
    for level in (1, 3):
        diagnostics.set_level(level)
        safeops.normalize(rows(1), dim=-1, policy="zero")
    (site,) = diagnostics.snapshot().sites
    assert (site.forward, site.stack[-1].lineno) == (2, site.lineno)


def test_a_stack_is_told_at_level_3_only() -> None:
    events: list[diagnostics.Event] = []

    def line() -> torch.Tensor:
        return safeops.normalize(rows(1).requires_grad_(), dim=-1, policy="zero")

    with diagnostics.add_sink(events.append, synchronous=True):
        deep = line()
        diagnostics.set_level(1)
        line()
        deep.sum().backward()
        diagnostics.snapshot()
    assert [event.stack is None for event in events] == [False, True, False]
    diagnostics.reset()
    line()
    (site,) = diagnostics.snapshot().sites
    assert site.stack is None


def test_a_module_of_ours_in_a_sequential_is_named() -> None:
    model = nn.Sequential(nn.Identity(), safeops.nn.Softmax(-1), safeops.nn.Softmax(-1))
    x = torch.full((2, 3), -torch.inf)
    with safeops.policy("epsilon"), warnings.catch_warnings():
        model(x)
    assert hits() == {"Sequential.1": (2, 0)}
    (site,) = diagnostics.snapshot().sites
    assert (site.filename, site.function) == (
        __file__,
        "test_a_module_of_ours_in_a_sequential_is_named",
    )


def test_wrappers_are_part_of_the_path() -> None:
    class Parallel(nn.Module):
        def __init__(self, module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)

    DataParallel(Transformer(1))(rows(1))
    Parallel(Parallel(Transformer(1)))(rows(1))
    assert hits() == {
        "DataParallel.module.layers.0.attention": (1, 0),
        "Parallel.module.module.layers.0.attention": (1, 0),
    }


def test_replicas_in_threads_have_paths_of_their_own() -> None:
    model = Transformer(1)
    workers = [threading.Thread(target=model, args=(rows(1),)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert hits() == {"Transformer.layers.0.attention": (2, 0)}


def test_a_module_that_is_no_child_is_named_by_the_root_or_by_its_class() -> None:
    class Borrows(nn.Module):
        def __init__(self, lender) -> None:
            super().__init__()
            self.lent = [lender]

        def forward(self, x):
            return self.lent[0](x)

    class Lends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = Block()
            self.borrows = Borrows(self.norm)

        def forward(self, x):
            return self.borrows(x)

    Lends()(rows(1))
    Borrows(Block())(rows(1))
    assert hits() == {"Lends.norm.attention": (1, 0), "Borrows.Block.attention": (1, 0)}


def test_a_module_that_is_called_within_itself() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner(self)

        def forward(self, x, deeper=True):
            return self.inner(x) if deeper else safeops.normalize(x, dim=-1, policy="zero")

    class Inner(nn.Module):
        def __init__(self, outer) -> None:
            super().__init__()
            self.outer = [outer]

        def forward(self, x):
            return self.outer[0](x, deeper=False)

    Again()(rows(1))
    assert hits() == {"Again": (1, 0)}


def test_a_module_whose_own_methods_fail_does_not_fail_the_call() -> None:
    class Broken(Transformer):
        def named_modules(self, *arguments, **rest):
            raise RuntimeError("no names")

    Broken(1)(rows(1))
    assert hits() == {"Broken.Block.Normalize": (1, 0)}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_a_checkpoint_runs_again_has_its_path(use_reentrant: bool) -> None:
    class Checkpoints(Transformer):
        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=use_reentrant)
            return x

    x = rows(1).requires_grad_()
    Checkpoints()(x).sum().backward()
    assert hits() == {
        "Checkpoints.layers.0.attention": (2, 1),
        "Checkpoints.layers.1.attention": (2, 1),
    }


def test_modules_under_functorch() -> None:
    model = Transformer(1)
    torch.func.vmap(model)(rows(1)[None])
    torch.func.functional_call(model, {}, (rows(1),))
    torch.func.grad(lambda x: model(x).sum())(rows(1))
    assert hits() == {"Transformer.layers.0.attention": (3, 1)}


def test_modules_that_are_kept_out_of_compiled_code() -> None:
    torch._dynamo.reset()

    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()
            self.block.forward = torch.compiler.disable(self.block.forward)

        def forward(self, x):
            return self.block(x * 1.0) + 1.0

    model = Partly()
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        compiled(rows(2))
    (path,) = hits()
    assert path.endswith("block.attention")
    assert hits()[path] == (4, 0)


def test_compiled_code_has_no_line() -> None:
    torch._dynamo.reset()
    model = torch.compile(Transformer(1), backend="aot_eager", fullgraph=True)
    model(rows(2).requires_grad_()).sum().backward()
    assert hits() == {}
    assert diagnostics.snapshot().total() == 4


def test_one_warning_for_a_line_whatever_the_module() -> None:
    class Warns(nn.Module):
        def forward(self, x):
            return safeops.normalize(x, dim=-1)

    first, second = Warns(), nn.Sequential(Warns())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for level in (3, 1, 2):
            diagnostics.set_level(level)
            first(rows(1))
            second(rows(1))
    assert len(caught) == 1


def test_frames_are_not_looked_at_where_nothing_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    for name in ("caller", "module_path", "stack"):
        monkeypatch.setattr(_call_stack, name, lambda *_, name=name: looks.append(name))
    Transformer()(rows(0).requires_grad_()).sum().backward()
    assert looks == []


def test_a_hit_at_level_3_keeps_no_tensor_alive() -> None:
    x = rows(1)
    gone = weakref.ref(x)
    Transformer(1)(x)
    del x
    assert gone() is None


def test_a_latent_hit_is_joined_to_its_module() -> None:
    class Root(nn.Module):
        def forward(self, x):
            return safeops.sqrt(x, policy="zero")

    model = nn.Sequential(nn.Identity(), Root())
    model(torch.zeros(2, requires_grad=True)).sum().backward()
    assert hits() == {"Sequential.1": (0, 2)}


def test_module_paths_where_another_has_replaced_the_call_of_modules() -> None:
    script = """
import torch
from torch import nn

stock = nn.Module.__call__
nn.Module.__call__ = lambda self, *arguments: stock(self, *arguments)
import safeops

class Normalize(nn.Module):
    def forward(self, x):
        return safeops.normalize(x, dim=-1, policy="zero")

safeops.diagnostics.set_level(3)
nn.Sequential(nn.Identity(), Normalize())(torch.zeros(2, 3))
print(*(site.module for site in safeops.diagnostics.snapshot().sites))
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (result.stdout, result.stderr) == ("Sequential.1\n", "")
