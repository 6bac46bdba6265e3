"""torch.export: the operators survive export, decomposition and a round trip through a file."""

from __future__ import annotations

import io

import pytest
import torch
from torch.export import Dim, ExportedProgram

import safeops
from division_samples import NAMES, call, numbers, operands
from samples import NOT_RAISING, assert_same_bits, counts


class Call(torch.nn.Module):
    def __init__(self, name: str, policy: str) -> None:
        super().__init__()
        self.name, self.policy = name, policy

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return call(self.name, *tensors, policy=self.policy) * 2


class Features(torch.nn.Module):
    """Every operator, a number, a size and an in-place division."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = safeops.div(a, b, policy="zero") + safeops.div(a, 3.5, policy="zero")
        for name in NAMES[1:]:
            y = y + call(name, b, policy="zero")
        y = y + safeops.div(a, a.shape[0], policy="zero")
        return safeops.div_(y.clone(), b, rounding_mode="floor", policy="zero")


def targets(program: ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("policy", NOT_RAISING)
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_the_exported_program_equals_eager(name: str, strict: bool, policy: str) -> None:
    module, tensors = Call(name, policy), operands(name, torch.float32)
    program = torch.export.export(module, tensors, strict=strict)
    assert counts(name) == (0, 0)
    assert targets(program).count(f"safeops.{name}.default") == 1
    expected = module(*tensors)
    once = counts(name)
    torch.testing.assert_close(program.module()(*tensors), expected, rtol=0, atol=0, equal_nan=True)
    assert counts(name) == once


@pytest.mark.parametrize("strict", [True, False])
def test_dynamic_shapes_and_a_file(strict: bool) -> None:
    module, pair = Features(), operands("div", torch.float32, zeros=3)
    rows = Dim("rows", min=2)
    program = torch.export.export(
        module, pair, dynamic_shapes=({0: rows}, {0: rows}), strict=strict
    )
    assert {f"safeops.{name}.default" for name in NAMES} <= set(targets(program))
    file = io.BytesIO()
    torch.export.save(program.run_decompositions(), file)
    file.seek(0)
    for loaded in (program.module(), torch.export.load(file).module()):
        for size in (4, 7, 31):
            tensors = operands("div", torch.float32, (size, 6), zeros=5)
            assert_same_bits(loaded(*tensors), module(*tensors))


@pytest.mark.parametrize("name", NAMES)
def test_the_exported_program_can_be_differentiated(name: str) -> None:
    grads = []
    for exported in (False, True):
        module = Call(name, "zero")
        tensors = operands(name, torch.float32)
        if exported:
            module = torch.export.export(module, tensors).module()
        leaves = [t.requires_grad_() for t in tensors]
        module(*leaves).square().sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    for want, grad in zip(*grads, strict=True):
        assert_same_bits(grad, want)


def test_the_policy_in_force_is_baked_in() -> None:
    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return safeops.log(x)

    x = torch.tensor([1.0, 0.0])
    with safeops.policy("nan"):
        program = torch.export.export(Plain(), (x,))
    y = program.module()(x)
    assert y[0] == 0 and y[1].isnan()


def test_raise_from_an_exported_program() -> None:
    a, b = operands("div", torch.float32)
    program = torch.export.export(Call("div", "raise"), (a, numbers(torch.float32, (4, 6))))
    with pytest.raises(ValueError, match="policy 'raise' met 1 singular element of 24"):
        program.module()(a, b)
