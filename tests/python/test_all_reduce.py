"""Sums over the processes of a group."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import safeops
from safeops import _all_reduce, diagnostics


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(self.linear(x), dim=-1, policy="zero")


def as_plain(snapshot: diagnostics.Snapshot) -> dict[str, Any]:
    assert snapshot.sites == ()
    assert {(record.shape, record.dtype, record.device) for record in snapshot.records} <= {
        (None, None, "cpu")
    }
    return {
        f"{record.operator} {record.condition} {record.direction}": [record.count, record.first_row]
        for record in snapshot.records
    }


def zero_rows(count: int, regular: int) -> torch.Tensor:
    return torch.cat([torch.ones(regular, 3), torch.zeros(count, 3)])


def train(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=120),
    )
    alone = distributed.new_group([1])
    pair = distributed.new_group([0, 1])
    torch.manual_seed(0)
    diagnostics.set_level(2)
    model = DistributedDataParallel(Embeds())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        # Rank 0 meets 1 zero row a step from row 4 on, rank 1 meets 5 from row 2 on.
        x = zero_rows(*((1, 4), (5, 2))[rank])
        (model(x) * torch.arange(3.0)).sum().backward()
        optimizer.step()
        assert torch.isfinite(model.module.linear.weight).all(), step
    if rank == 1:
        safeops.log(torch.tensor([1.0, 0.0]), policy="zero")
        safeops.normalize(torch.full((2, 3), torch.inf), dim=-1)
    before = diagnostics.snapshot()
    found = {
        "own": before.total(),
        "all": as_plain(diagnostics.all_reduce()),
        "pair": as_plain(diagnostics.all_reduce(pair)),
        "unchanged": diagnostics.snapshot() == before,
        "weight": model.module.linear.weight.tolist(),
    }
    if rank == 1:
        found["alone"] = as_plain(diagnostics.all_reduce(alone))
    else:
        try:
            diagnostics.all_reduce(alone)
        except RuntimeError as error:
            found["alone"] = str(error)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


def test_two_processes_under_ddp_sum_their_hits(tmp_path: Path) -> None:
    processes = multiprocessing.spawn(train, args=(2, str(tmp_path)), nprocs=2, join=False)
    deadline = time.monotonic() + 240
    while not processes.join(max(0.0, deadline - time.monotonic())):
        if time.monotonic() > deadline:
            for process in processes.processes:
                process.kill()
            pytest.fail("the processes hang")
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    expected = {
        "normalize zero_norm forward": [3 * (1 + 5), 2],
        "normalize zero_norm backward": [3 * (1 + 5), 2],
        "normalize nonfinite_input forward": [2, 0],
        "log zero_argument forward": [1, 1],
    }
    for found in (first, second):
        assert found["all"] == found["pair"] == expected
        assert found["unchanged"]
    assert first["weight"] == second["weight"]
    assert (first["own"], second["own"]) == (6, 31)
    assert second["alone"] == {
        "normalize zero_norm forward": [15, 2],
        "normalize zero_norm backward": [15, 2],
        "normalize nonfinite_input forward": [2, 0],
        "log zero_argument forward": [1, 1],
    }
    assert first["alone"] == (
        "safeops.diagnostics.all_reduce: this process must be in group, and it is not; call it in "
        "the processes of the group only"
    )


@pytest.mark.parametrize(
    ("backends", "device"),
    [
        ("cpu:gloo,cuda:gloo", "cpu"),
        ("cpu:gloo,cuda:nccl", "cpu"),
        ("cuda:nccl,cpu:gloo", "cpu"),
        ("cuda:nccl", "cuda:3"),
        ("cpu:mpi", "cpu"),
    ],
)
def test_sums_are_made_where_the_group_communicates(
    monkeypatch: pytest.MonkeyPatch, backends: str, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert _all_reduce._device(backends) == torch.device(device)


def test_without_a_group_it_says_what_to_do() -> None:
    assert not distributed.is_initialized()
    with pytest.raises(RuntimeError, match=r"must be initialised, and it is not; call torch\.dis"):
        diagnostics.all_reduce()
