"""Trains the digits classifier in one setting and keeps what the comparison needs."""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import model
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

import safeops

BATCH = 64


@dataclass(frozen=True)
class Recipe:
    """How to train, apart from the operator."""

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
    """What one training run left behind. Losses and gradient norms are those of the steps taken."""

    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    accuracy: float = math.nan
    forward_hits: int = 0
    backward_hits: int = 0
    call_lines: set[str] = field(default_factory=set)
    error: str | None = None
    first_nan_step: int | None = None
    nan_parameters: float = 0.0
    skipped_batches: int = 0
    nan_answers: int = 0


def batches(images: int, seed: int, epochs: int) -> Iterator[Tensor]:
    """Image indices of every training step, the same in every setting of one seed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        yield from torch.randperm(images, generator=generator).split(BATCH)


@contextlib.contextmanager
def observed(
    run: Run, operator: str | None, policy: str | None, eps: float | None = None
) -> Iterator[None]:
    """Runs the block under the policy and keeps its hits; a SingularityError ends it, no more."""
    scope = contextlib.nullcontext()
    if policy is not None:
        scope = safeops.policy(policy, eps=eps)
    safeops.diagnostics.reset()
    try:
        with scope:
            yield
    except safeops.SingularityError as error:
        run.error = str(error)
    hits = safeops.diagnostics.snapshot()
    run.forward_hits = hits.total(operator, direction="forward")
    run.backward_hits = hits.total(operator, direction="backward")
    run.call_lines = {f"{Path(site.filename).name}:{site.lineno}" for site in hits.sites}


def train(setting: Setting, digits: model.Digits, seed: int, epochs: int) -> Run:
    """Trains from scratch."""
    run = Run()
    recipe = setting.recipe
    normalize = F.normalize if setting.policy is None else safeops.normalize
    torch.manual_seed(seed)
    classifier = model.PatchClassifier(normalize, recipe.zero_bias)
    with observed(run, "normalize", setting.policy, setting.eps):
        fit(run, classifier, digits, batches(len(digits.patches), seed, epochs), recipe)
    return run


def fit(
    run: Run,
    classifier: nn.Module,
    digits: model.Digits,
    order: Iterable[Tensor],
    recipe: Recipe,
    skips: bool = False,
) -> None:
    """Trains on the batches in this order, then answers the test images; `skips` leaves out every
    batch whose loss is not finite."""
    parameters = list(classifier.parameters())
    if recipe.adam:
        optimizer = torch.optim.Adam(parameters, lr=1e-3)
    else:
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    for batch in order:
        loss = F.cross_entropy(classifier(digits.patches[batch]), digits.labels[batch])
        if skips and not loss.isfinite():
            run.skipped_batches += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        norm = get_total_norm([parameter.grad for parameter in parameters])
        if recipe.clip is not None:
            clip_grads_with_norm_(parameters, recipe.clip, norm)
        optimizer.step()
        run.losses.append(loss.item())
        run.gradient_norms.append(norm.item())
        if run.first_nan_step is None and _nan_share(parameters) > 0:
            run.first_nan_step = len(run.losses)

    run.nan_parameters = _nan_share(parameters)
    with torch.no_grad():
        answers = classifier(digits.test_patches)
    run.nan_answers = int(answers.isnan().any(1).sum())
    run.accuracy = (answers.argmax(1) == digits.test_labels).double().mean().item()


def _nan_share(parameters: Sequence[Tensor]) -> float:
    return nn.utils.parameters_to_vector(parameters).isnan().double().mean().item()
