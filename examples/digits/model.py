"""Handwritten digits as patch tokens, and a small classifier that normalizes the tokens."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

PATCH = 2
IMAGE = 8
TOKENS = (IMAGE // PATCH) ** 2
TRAINING_IMAGES = 1400


class Digits(NamedTuple):
    """Patches of shape (images, tokens, pixels) and their labels, split for training and test."""

    patches: Tensor
    labels: Tensor
    test_patches: Tensor
    test_labels: Tensor


def load(side: int = PATCH) -> Digits:
    """The 1797 digits bundled with scikit-learn, cut into square patches, pixels in [0, 1]."""
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32) / 16
    tiles = images.unfold(1, side, side).unfold(2, side, side)
    patches = tiles.reshape(len(images), -1, side * side)
    labels = torch.tensor(bunch.target)
    # The file is ordered by writer, so an unshuffled split would test on unseen hands only.
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    training, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    return Digits(patches[training], labels[training], patches[test], labels[test])


class PatchClassifier(nn.Module):
    """Patch embedding, unit tokens, learned positions, two-layer head."""

    def __init__(self, normalize: Callable[..., Tensor], zero_bias: bool = True, width: int = 32):
        super().__init__()
        self.normalize = normalize
        self.embed = nn.Linear(PATCH * PATCH, width)
        self.position = nn.Parameter(0.02 * torch.randn(TOKENS, width))
        self.head = nn.Sequential(nn.Linear(TOKENS * width, 64), nn.GELU(), nn.Linear(64, 10))
        nn.init.xavier_uniform_(self.embed.weight)
        if zero_bias:
            # The usual vision transformer initialisation: a blank patch embeds to exactly zero.
            nn.init.zeros_(self.embed.bias)

    def forward(self, patches: Tensor) -> Tensor:
        tokens = self.normalize(self.embed(patches), dim=-1)
        return self.head((tokens + self.position).flatten(1))
