"""A digits classifier that pools the inked pixels of each quadrant by attention, and what people
write for its masked softmax."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

QUADRANT = 4
HEADS = 4


class QuadrantClassifier(nn.Module):
    """A token per pixel, attention pooling in each of the four quadrants, two-layer head."""

    def __init__(self, softmax: Callable[..., Tensor], width: int = 32):
        super().__init__()
        self.softmax = softmax
        self.embed = nn.Linear(1, width)
        self.position = nn.Parameter(0.5 * torch.randn(QUADRANT**2, width))
        self.score = nn.Linear(width, HEADS)
        self.head = nn.Sequential(nn.Linear(4 * HEADS * width, 64), nn.GELU(), nn.Linear(64, 10))

    def forward(self, quadrants: Tensor) -> Tensor:
        """Quadrants of shape (images, 4, pixels)."""
        tokens = F.gelu(self.embed(quadrants.unsqueeze(-1)) + self.position)
        scores = self.score(tokens).mT
        inked = (quadrants > 0).unsqueeze(-2)
        attention = self.softmax(scores, dim=-1, where=inked)
        return self.head((attention @ tokens).flatten(1))


def masked_fill(scores: Tensor, dim: int, where: Tensor) -> Tensor:
    return F.softmax(scores.masked_fill(~where, -math.inf), dim)


def masked_fill_then_where(scores: Tensor, dim: int, where: Tensor) -> Tensor:
    return torch.where(where, masked_fill(scores, dim, where), 0.0)


def added_mask_then_where(scores: Tensor, dim: int, where: Tensor) -> Tensor:
    mask = torch.zeros(where.shape).masked_fill(~where, -math.inf)
    return torch.where(where, F.softmax(scores + mask, dim), 0.0)


def finite_minimum(scores: Tensor, dim: int, where: Tensor) -> Tensor:
    return F.softmax(scores.masked_fill(~where, torch.finfo(scores.dtype).min), dim)
