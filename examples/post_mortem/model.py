"""The three networks of the post-mortem, and the repair that its post proposes.

All of them call ``unit_rows``, so all of them have one line that can meet a row of norm zero.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def unit_rows(x: Tensor, mark_small: bool = False) -> Tensor:
    """Rows of length one; the repair of the post makes NaN of every *element* that is tiny."""
    y = F.normalize(x, dim=1)
    return torch.where(x.abs() < 1e-8, torch.nan, y) if mark_small else y


class UnitRows(nn.Module):
    """`unit_rows` as a layer, so that the hooks of a debugger see it."""

    mark_small = False

    def forward(self, x: Tensor) -> Tensor:
        return unit_rows(x, self.mark_small)


class ReluTower(nn.Module):
    """Seven blocks of linear, layer norm and ReLU; a call of `unit_rows` follows the fifth."""

    mark_small = False

    def __init__(self) -> None:
        super().__init__()
        widths = [32] + 7 * [16]
        layers: list[nn.Module] = []
        for before, after in zip(widths, widths[1:], strict=False):
            layers += [nn.Linear(before, after, bias=False), nn.LayerNorm(after), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(16, 1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = unit_rows(self.layers[:15](x), self.mark_small)
        return self.head(self.layers[15:](x))


def bias_free_tower() -> nn.Sequential:
    """Ten blocks of linear without bias and tanh: a zero input stays zero up to `UnitRows`."""
    widths = [32] + 10 * [16]
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        linear = nn.Linear(before, after, bias=False)
        nn.init.xavier_uniform_(linear.weight)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:4], UnitRows(), *layers[4:], nn.Linear(16, 2))


def zero_bias_tower() -> nn.Sequential:
    """Six blocks of linear with a bias of zero, layer norm and tanh: the bias takes the damage."""
    widths = [16] + 6 * [32]
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        linear = nn.Linear(before, after)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.LayerNorm(after), nn.Tanh()]
    return nn.Sequential(*layers[:6], UnitRows(), *layers[6:], nn.Linear(32, 1))
