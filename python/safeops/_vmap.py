"""How the operators run under ``torch.vmap``: the batch becomes dim 0 of one call.

The rules are next door, a file for each family. torch does not pass trailing arguments on that
equal the defaults of the schema, so names and defaults of the rules are those of the schemas.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Registrations live as long as this object.
registrations = torch.library.Library("safeops", "FRAGMENT")


def batch_first(tensor: Tensor, in_dim: int | None, batch_size: int) -> Tensor:
    """The tensor with the batch as dim 0, and a second dim of size 1 if it was a scalar."""
    if in_dim is None:
        batched = tensor.expand(batch_size, *tensor.shape)
    else:
        batched = tensor.movedim(in_dim, 0)
    return batched.unsqueeze(1) if batched.dim() == 1 else batched


def shifted(dim: int | Sequence[int], rank: int) -> list[int]:
    """Dims of one example as dims of the batch.

    A negative dim counts from the end of the example, the empty tuple means all of its dims, and a
    scalar has one dim, as everywhere in torch.
    """
    extent = max(rank, 1)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    for d in dims:
        if not -extent <= d < extent:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-extent}, {extent - 1}], "
                f"but got {d})"
            )
    return [d % extent + 1 for d in dims or range(extent)]


def rank_of_example(tensor: Tensor, in_dim: int | None) -> int:
    return tensor.dim() - (in_dim is not None)


def without_filler(tensor: Tensor, rank: int) -> Tensor:
    return tensor if rank else tensor.squeeze(1)


def mask_first(where: Tensor | None, in_dim: int | None, rank: int) -> Tensor | None:
    """The mask with the batch as dim 0, which has size 1 if all examples share the mask."""
    if where is None:
        return None
    where = where.unsqueeze(0) if in_dim is None else where.movedim(in_dim, 0)
    missing = max(rank, 1) + 1 - where.dim()
    return where[(slice(None), *[None] * missing)]
