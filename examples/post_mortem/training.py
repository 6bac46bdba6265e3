"""One training run of one setup, watched by NeuralDBG and, where asked for, fed by safeops."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import model
import torch
import torch.nn.functional as F
from neuraldbg import NeuralDbg, SemanticEvent
from torch import Tensor, nn

import safeops
from safeops import diagnostics


class Batch(NamedTuple):
    x: Tensor
    y: Tensor
    is_sick: bool


@dataclass(frozen=True)
class Setup:
    """A network, its data and its recipe; `sick` of the batches are all zero, the last ones."""

    name: str
    network: Callable[[], nn.Module]
    inputs: int
    scale: float
    classes: int
    optimizer: type[torch.optim.Optimizer]
    seed: int
    healthy: int
    sick: int

    def batches(self, is_sick: bool) -> list[Batch]:
        """The same eight samples at every step; drawn after the network, as the seed implies."""
        x = self.scale * torch.randn(8, self.inputs)
        y = torch.randint(0, self.classes, (8,)) if self.classes else torch.randn(8, 1)
        healthy = [Batch(x, y, False)] * (self.healthy + (0 if is_sick else self.sick))
        return healthy + [Batch(torch.zeros_like(x), y, True)] * (self.sick if is_sick else 0)


@dataclass(frozen=True)
class Treatment:
    """What is done about normalize in a run: nothing, the repair of the post, or a policy."""

    name: str
    is_sick: bool = True
    mark_small: bool = False
    from_the_start: bool = False
    policy: str | None = None

    def scope(self, is_fed: bool) -> contextlib.AbstractContextManager:
        """A policy is chosen from outside; without one, safeops looks on and changes no bit."""
        if self.policy is not None:
            # Of normalize alone: Adam and the debugger divide as well.
            return safeops.patch("normalize", policy=self.policy)
        if is_fed:
            return safeops.patch("normalize", observe=True)
        return contextlib.nullcontext()


@dataclass
class Run:
    """What one run showed; `rows` and `backward_rows` are the singular rows that safeops met."""

    losses: list[float] = field(default_factory=list)
    events: list[SemanticEvent] = field(default_factory=list)
    rows: int = 0
    backward_rows: int = 0
    error: str | None = None
    data_anomalies: list[str] = field(default_factory=list)
    graph: str = ""

    @property
    def anomalies(self) -> list[SemanticEvent]:
        """NeuralDBG's first event of a module is its baseline, which comes from no state."""
        return [event for event in self.events if event.from_state != "NONE"]

    @property
    def largest_gradient(self) -> float:
        """The largest norm of a gradient that NeuralDBG reports, that is at a layer's output."""
        norms = [e.metadata["current_norm"] for e in self.events if "current_norm" in e.metadata]
        # torch's maximum, because Python's max would lose a NaN.
        return torch.tensor([0.0, *norms]).max().item()

    @property
    def count(self) -> str:
        return f"{len(self.anomalies)}/{len(self.events)}"


@contextlib.contextmanager
def _scratch_folder() -> Iterator[None]:
    """NeuralDBG keeps tensors in a folder below the working directory."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def train(setup: Setup, treatment: Treatment, is_fed: bool) -> Run:
    """Trains with NeuralDBG alone, or with every hit of safeops among its events."""
    torch.manual_seed(setup.seed)
    network = setup.network()
    optimizer = setup.optimizer(network.parameters(), 1e-3)
    batches = setup.batches(treatment.is_sick)
    run = Run()
    diagnostics.reset()
    diagnostics.set_level(3)
    with _scratch_folder(), treatment.scope(is_fed), NeuralDbg(network) as debugger:
        with _feed(debugger) if is_fed else contextlib.nullcontext():
            try:
                for step, batch in enumerate(batches):
                    debugger.step = step
                    diagnostics.set_step(step)
                    _mark(network, treatment, batch)
                    _step(network, optimizer, setup, batch, run)
                    debugger.record_loss(run.losses[-1])
                    diagnostics.snapshot()  # joins the hits of the backward pass with their lines
            except safeops.SingularityError as error:
                run.error = f"step {step}: {error}"
        run.events = list(debugger.events)
        run.data_anomalies = [
            hypothesis.description for hypothesis in debugger.explain_failure("data_anomaly")
        ]
        run.graph = debugger.export_mermaid_causal_graph()
    counters = diagnostics.snapshot()
    run.rows = counters.total(direction="forward")
    run.backward_rows = counters.total(direction="backward")
    diagnostics.set_step(None)
    diagnostics.set_level(1)
    return run


def _feed(debugger: NeuralDbg) -> contextlib.AbstractContextManager:
    """The sink is synchronous: a hit stands where it happened among the debugger's own events."""
    return diagnostics.add_sink(safeops.sinks.NeuralDbgSink(debugger))


def _mark(network: nn.Module, treatment: Treatment, batch: Batch) -> None:
    for module in network.modules():
        if isinstance(module, model.UnitRows | model.ReluTower):
            module.mark_small = treatment.mark_small and (batch.is_sick or treatment.from_the_start)


def _step(
    network: nn.Module, optimizer: torch.optim.Optimizer, setup: Setup, batch: Batch, run: Run
) -> None:
    optimizer.zero_grad()
    loss_of = F.cross_entropy if setup.classes else F.mse_loss
    loss = loss_of(network(batch.x), batch.y)
    loss.backward()
    optimizer.step()
    run.losses.append(loss.item())
