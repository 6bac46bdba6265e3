"""A digits classifier on scaled features, and what people write for its divisions."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

import safeops

IMAGE = 8
ADDED = 1e-6


class Operators(NamedTuple):
    """The three operators of the model that are singular at zero."""

    div: Callable[[Tensor, Tensor], Tensor]
    sqrt: Callable[[Tensor], Tensor]
    log: Callable[[Tensor], Tensor]


class FeatureClassifier(nn.Module):
    """Learned tone curves, scores and log ratios of what they give, two-layer head."""

    def __init__(self, operators: Operators):
        super().__init__()
        self.div, self.sqrt, self.log = operators
        self.bend = nn.Parameter(torch.zeros(IMAGE * IMAGE))
        self.head = nn.Sequential(
            nn.Linear(IMAGE * IMAGE + IMAGE, 64), nn.GELU(), nn.Linear(64, 10)
        )

    def forward(self, patches: Tensor) -> Tensor:
        """Whole images as patches, of shape (images, 1, pixels)."""
        ink = self.tone(patches.squeeze(1))
        scores, varies = self.scores(ink)
        ratios, has_both = self.log_ratios(ink)
        masked = torch.where(varies, scores, 0.0), torch.where(has_both, ratios, 0.0)
        return self.head(torch.cat(masked, 1))

    def tone(self, pixels: Tensor) -> Tensor:
        """A curve per pixel from 0 to 0, from 1 to 1 and above 0 in between."""
        return pixels * (1 + torch.tanh(self.bend) * (1 - pixels))

    def scores(self, ink: Tensor) -> tuple[Tensor, Tensor]:
        """(x - mean) / std of every pixel over the batch, and where std is not 0."""
        centred = ink - ink.mean(0)
        variance = centred.square().mean(0)
        spread = self.sqrt(variance)
        score = self.div(centred, spread)
        return score, variance > 0

    def log_ratios(self, ink: Tensor) -> tuple[Tensor, Tensor]:
        """log(left / right) of the ink in every image row, and where both halves have some."""
        halves = ink.view(-1, IMAGE, 2, IMAGE // 2).sum(-1)
        left, right = halves.unbind(-1)
        ratio = self.div(left, right)
        log_ratio = self.log(ratio)
        return log_ratio, (left > 0) & (right > 0)


def _replace_nan(x: Tensor) -> Tensor:
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def _divide_where_nonzero(a: Tensor, b: Tensor) -> Tensor:
    regular = b != 0
    return torch.where(regular, a / torch.where(regular, b, 1.0), 0.0)


def _where_positive(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        regular = x > 0
        return torch.where(regular, function(torch.where(regular, x, 1.0)), 0.0)

    return call


TORCH = Operators(torch.div, torch.sqrt, torch.log)
NAN_TO_NUM = Operators(
    lambda a, b: _replace_nan(a / b),
    lambda x: _replace_nan(x.sqrt()),
    lambda x: _replace_nan(x.log()),
)
ADDED_EPS = Operators(
    lambda a, b: a / (b + ADDED), lambda x: (x + ADDED).sqrt(), lambda x: (x + ADDED).log()
)
DOUBLE_WHERE = Operators(
    _divide_where_nonzero, _where_positive(torch.sqrt), _where_positive(torch.log)
)
SAFEOPS = Operators(safeops.div, safeops.sqrt, safeops.log)
