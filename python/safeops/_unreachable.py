"""What ``safeops.patch`` cannot reach."""

from __future__ import annotations

from typing import NamedTuple


class Unreachable(NamedTuple):
    """A place that computes what an operator of ours computes, past every patch.

    Attributes:
        function: the function, or a description of the callers.
        why: why a patch does not reach it.
        instead: what to do there.
    """

    function: str
    why: str
    instead: str


_FUSED = "its softmax, norm or quotient is computed inside one C++ function"
_BODY = "its body calls methods, while the mode that would see them handles the function itself"
_EXPLICIT = "write it with safeops, or with the functions that a patch covers"

ENTRIES = (
    Unreachable(
        "torch.nn.functional.scaled_dot_product_attention",
        _FUSED,
        "safeops.softmax(scores, dim=-1, where=mask); PyTorch's own gives 0 for a row without keys",
    ),
    Unreachable(
        "torch.nn.functional.multi_head_attention_forward(need_weights=False)",
        "it calls scaled_dot_product_attention",
        "need_weights=True, whose softmax is reached",
    ),
    Unreachable(
        "the fast path of torch.nn.TransformerEncoder, TransformerEncoderLayer and "
        "MultiheadAttention in eval mode",
        "PyTorch does not take it while any torch function mode is on, observing or not: results "
        "differ in rounding, and at padded positions, which it returns as 0",
        "compare with torch.backends.mha.set_fastpath_enabled(False)",
    ),
    Unreachable(
        "torch.nn.functional.cross_entropy",
        _FUSED,
        "F.nll_loss(F.log_softmax(x, dim=1), target)",
    ),
    Unreachable(
        "torch.nn.functional.cosine_similarity", _FUSED, "(F.normalize(a) * F.normalize(b)).sum(1)"
    ),
    Unreachable(
        "torch.nn.functional.cosine_embedding_loss", _FUSED, "compute the cosine from F.normalize"
    ),
    Unreachable("torch.nn.functional.pairwise_distance", _FUSED, "(a - b).square().sum(-1).sqrt()"),
    Unreachable(
        "torch.cdist", _FUSED, "(a[:, None] - b[None]).square().sum(-1).sqrt(), where it fits"
    ),
    Unreachable(
        "torch.nn.utils.parametrizations.weight_norm",
        _FUSED,
        "g * F.normalize(v, dim=tuple(range(1, v.dim())))",
    ),
    Unreachable("torch.renorm", _FUSED, _EXPLICIT),
    Unreachable("torch.nn.functional.gumbel_softmax", _BODY, _EXPLICIT),
    Unreachable("torch.nn.functional.gaussian_nll_loss", _BODY, _EXPLICIT),
    Unreachable("torch.nn.functional.poisson_nll_loss", _BODY, _EXPLICIT),
    Unreachable(
        "torch.sparse.softmax, softmax over segments and scatters of other packages",
        "rows that are not a dim of a dense tensor have no operator here",
        "safeops.softmax(x, dim=-1, where=mask) over padded rows",
    ),
    Unreachable(
        "torch._foreach_div, _foreach_sqrt and the like",
        "they take lists of tensors in one C++ call; optimizers use them by default",
        "foreach=False of an optimizer, where its own arithmetic is to be reached",
    ),
    Unreachable(
        "torch.linalg.norm, torch.linalg.vector_norm, torch.Tensor.norm",
        "their value at 0 is regular, and their slope there has no operator here",
        "x.square().sum(-1).sqrt()",
    ),
    Unreachable("torch.log2, log10, log1p", "they have no operator here", "torch.log"),
    Unreachable(
        "torch.pow with other exponents, with a tensor as exponent; torch.float_power",
        "torch computes -1, -2, 0.5 and -0.5 alone as reciprocal, its square, sqrt and rsqrt",
        "torch.reciprocal, torch.rsqrt",
    ),
    Unreachable("torch.addcdiv", _FUSED, "x + value * a / b"),
    Unreachable(
        "torch.nn.functional.layer_norm, rms_norm, batch_norm with eps=0", _FUSED, "eps > 0"
    ),
    Unreachable(
        "torch.ops.aten.*, C++ callers, TorchScript",
        "they call PyTorch's operators below Python's functions",
        "torch.ops.safeops, or safeops/operators.h",
    ),
    Unreachable(
        "gradient formulas of PyTorch's other operators",
        "the autograd engine evaluates them in C++",
        _EXPLICIT,
    ),
    Unreachable(
        "quotients of a tensor and a numpy.ndarray",
        "PyTorch refuses them, and NumPy computes them",
        "torch.as_tensor(array)",
    ),
    Unreachable(
        "threads that did not enter the patch, spawned processes, processes forked before",
        "a patch is in force in the thread and asyncio task that entered it, and in processes "
        "forked inside of it, as workers of a DataLoader are",
        "enter it in each",
    ),
    Unreachable(
        "code under torch.compile, with observe=True",
        "a graph runs stock operators, and what is observed runs outside of graphs",
        "a policy; its hits in compiled code are counted, without lines",
    ),
    Unreachable(
        "tensors that are nested, sparse, quantized, of a subclass with its own answers (DTensor), "
        "or on a device without kernels",
        "the stock function runs, as operators of ours refuse them",
        "convert them",
    ),
    Unreachable(
        "activation checkpoints of other packages",
        "those of torch.utils.checkpoint recompute under the patch of their forward pass; others "
        "know of none",
        "keep the backward pass in the block",
    ),
)
