"""Trains the digits classifier in one setting and keeps what the comparison needs."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import model
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

import safeops

BATCH = 64


@dataclass(frozen=True)
class Recipe:
    """How to train, apart from normalize."""

    name: str
    adam: bool = False
    clip: float | None = None
    zero_bias: bool = True


@dataclass(frozen=True)
class Setting:
    """One line of the table; without a policy the model calls PyTorch's own normalize."""

    recipe: Recipe
    policy: str | None
    eps: float | None = None

    @property
    def name(self) -> str:
        if self.policy is None:
            return "F.normalize"
        return self.policy if self.eps is None else f"{self.policy} {self.eps:g}"


@dataclass
class Run:
    """What one training run left behind."""

    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    accuracy: float = math.nan
    forward_hits: int = 0
    backward_hits: int = 0
    call_lines: set[str] = field(default_factory=set)
    error: str | None = None


def batches(images: int, seed: int, epochs: int) -> Iterator[torch.Tensor]:
    """Image indices of every training step, the same in every setting of one seed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        yield from torch.randperm(images, generator=generator).split(BATCH)


def train(setting: Setting, digits: model.Digits, seed: int, epochs: int) -> Run:
    """Trains from scratch; a SingularityError ends the run and is kept in it."""
    scope = contextlib.nullcontext()
    if setting.policy is not None:
        scope = safeops.policy(setting.policy, eps=setting.eps)
    run = Run()
    safeops.diagnostics.reset()
    try:
        with scope:
            _fit(run, setting, digits, seed, epochs)
    except safeops.SingularityError as error:
        run.error = str(error)
    hits = safeops.diagnostics.snapshot()
    run.forward_hits = hits.total("normalize", direction="forward")
    run.backward_hits = hits.total("normalize", direction="backward")
    run.call_lines = {f"{Path(site.filename).name}:{site.lineno}" for site in hits.sites}
    return run


def _fit(run: Run, setting: Setting, digits: model.Digits, seed: int, epochs: int) -> None:
    torch.manual_seed(seed)
    recipe = setting.recipe
    normalize = F.normalize if setting.policy is None else safeops.normalize
    classifier = model.PatchClassifier(normalize, recipe.zero_bias)
    parameters = list(classifier.parameters())
    if recipe.adam:
        optimizer = torch.optim.Adam(parameters, lr=1e-3)
    else:
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    for batch in batches(len(digits.patches), seed, epochs):
        loss = F.cross_entropy(classifier(digits.patches[batch]), digits.labels[batch])
        optimizer.zero_grad()
        loss.backward()
        norm = get_total_norm([parameter.grad for parameter in parameters])
        if recipe.clip is not None:
            clip_grads_with_norm_(parameters, recipe.clip, norm)
        optimizer.step()
        run.losses.append(loss.item())
        run.gradient_norms.append(norm.item())

    with torch.no_grad():
        predicted = classifier(digits.test_patches).argmax(1)
    run.accuracy = (predicted == digits.test_labels).double().mean().item()
