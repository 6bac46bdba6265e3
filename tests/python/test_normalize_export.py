"""torch.export: the operator survives export, decomposition and a round trip through a file."""

from __future__ import annotations

import io

import pytest
import torch
from torch.export import Dim, ExportedProgram

import safeops
from samples import assert_same_bits, counts


class Head(torch.nn.Module):
    def __init__(self, policy: str) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3, bias=False)
        self.policy = policy

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(self.linear(x), dim=-1, policy=self.policy)


def batch(rows: int = 5) -> torch.Tensor:
    x = torch.randn(rows, 4)
    x[2] = 0
    return x


def targets(program: ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("policy", ["stock", "zero", "epsilon"])
@pytest.mark.parametrize("strict", [True, False])
def test_the_exported_program_equals_eager(strict: bool, policy: str) -> None:
    head, x = Head(policy), batch()
    program = torch.export.export(head, (x,), strict=strict)
    assert targets(program).count("safeops.normalize.default") == 1
    expected = head(x)
    assert counts() == (1, 0)
    assert_same_bits(program.module()(x), expected)
    assert counts() == (1, 0)


@pytest.mark.parametrize("strict", [True, False])
def test_dynamic_shapes(strict: bool) -> None:
    head = Head("zero")
    program = torch.export.export(
        head, (batch(),), dynamic_shapes=({0: Dim("rows", min=2)},), strict=strict
    )
    for rows in (3, 8, 31):
        x = batch(rows)
        assert_same_bits(program.module()(x), head(x))


def test_the_operator_survives_decompositions() -> None:
    head, x = Head("zero"), batch()
    program = torch.export.export(head, (x,)).run_decompositions()
    assert targets(program).count("safeops.normalize.default") == 1
    assert_same_bits(program.module()(x), head(x))


def test_the_exported_program_can_be_differentiated() -> None:
    head, x = Head("zero"), batch()
    module = torch.export.export(head, (x,)).module()
    head(x).sum().backward()
    module(x).sum().backward()
    assert_same_bits(module.linear.weight.grad, head.linear.weight.grad)
    assert counts() == (2, 2)


def test_a_saved_program_comes_back() -> None:
    head, x = Head("nan"), batch()
    file = io.BytesIO()
    torch.export.save(torch.export.export(head, (x,)), file)
    file.seek(0)
    module = torch.export.load(file).module()
    torch.testing.assert_close(module(x), head(x), rtol=0, atol=0, equal_nan=True)


def test_the_policy_in_force_is_baked_in() -> None:
    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return safeops.normalize(x, dim=-1)

    x = batch()
    with safeops.policy("nan"):
        program = torch.export.export(Plain(), (x,))
    y = program.module()(x)
    assert y[2].isnan().all() and not y[[0, 1, 3, 4]].isnan().any()


def test_raise_from_an_exported_program() -> None:
    program = torch.export.export(Head("raise"), (batch(),))
    with pytest.raises(ValueError, match="policy 'raise' met 1 singular row of 5"):
        program.module()(batch())
