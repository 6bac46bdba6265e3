"""What a watcher of a patch is told, and where a patch does not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import safeops
from patch_samples import counted
from safeops._patch import watched
from samples import assert_same_bits

ZERO = torch.zeros(2, 3)
EMPTY = torch.full((2, 3), -torch.inf)


class Watcher:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, str | None]] = []

    def saw(self, operator: str, rows: int, line: Any, node: Any) -> None:
        forward = -1 if line is None else line.forward
        self.calls.append((operator, rows, forward, None if node is None else node.name()))


def calls_of(function: Any, policy: str | None) -> list[tuple[str, int, int, str | None]]:
    safeops.diagnostics.reset()
    watcher = Watcher()
    with watched(None, policy, watcher):
        function()
    return watcher.calls


@pytest.mark.parametrize("policy", [None, "zero"])
def test_a_watcher_is_told_of_every_covered_call(policy: str | None) -> None:
    ones, leaf = torch.ones(2, 3), torch.zeros(2, 3, requires_grad=True)
    told = {
        lambda: F.normalize(ones): ("normalize", 2, -1, None),
        lambda: F.normalize(ZERO, dim=0): ("normalize", 3, 3, None),
        lambda: F.normalize(leaf): ("normalize", 2, 2, "SafeopsNormalizeBackward"),
        lambda: EMPTY.logsumexp((0, 1)): ("logsumexp", 1, 1, None),
        lambda: torch.logsumexp(leaf - torch.inf, 1): (
            "logsumexp",
            2,
            2,
            "SafeopsLogSumExpBackward",
        ),
        lambda: ones / torch.zeros(4, 1, 1): ("div", 24, 24, None),
        lambda: leaf.sqrt(): ("sqrt", 6, 0, "SafeopsSqrtBackward"),
        lambda: (leaf * 1).div_(0): ("div", 6, 6, "SafeopsDivBackward"),
        lambda: (leaf * 1)[0].div_(ZERO[0]): ("div", 3, 3, "SafeopsDivBackward"),
        lambda: leaf**-2: ("reciprocal", 6, 6, "SafeopsReciprocalBackward"),
        lambda: safeops.softmax(EMPTY, 1, policy="zero"): ("softmax", 2, 2, None),
    }
    for function, expected in told.items():
        assert calls_of(function, policy) == [expected]
    assert calls_of(lambda: torch.zeros(0, 3) / 0 + 1, policy) == [("div", 0, -1, None)]


def test_a_watcher_is_told_of_calls_that_raise() -> None:
    watcher = Watcher()
    with watched(None, "raise", watcher), pytest.raises(safeops.SingularityError):
        F.normalize(ZERO)
    assert watcher.calls == [("normalize", 2, 2, None)]


@pytest.mark.parametrize("inner", [{"policy": "nan"}, {"observe": True}, {"operators": "div"}])
@pytest.mark.parametrize("policy", [None, "zero"])
def test_outer_watchers_are_told_once(inner: dict[str, Any], policy: str | None) -> None:
    outer, other = Watcher(), Watcher()
    with watched(None, policy, outer), watched(None, None, other), safeops.patch(**inner):
        F.softmax(EMPTY, 1)
        safeops.softmax(EMPTY, 1, policy="zero")
    assert len(outer.calls) == len(other.calls) == 2
    assert counted()["softmax", "empty_row", "forward"] == 4


def test_a_watcher_is_told_of_attention() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    x, padded = torch.randn(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)
    calls = calls_of(lambda: attention(x, x, x, key_padding_mask=padded), None)
    assert [call[:3] for call in calls if call[0] == "softmax"] == [("softmax", 6, 6)]


queries = torch.zeros(1, 1, 2, 3)
nobody = torch.zeros(2, 2, dtype=torch.bool)
EXAMPLES: dict[str, Any] = {
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(
        queries, queries, queries, attn_mask=nobody
    ),
    "multi_head_attention_forward(need_weights=False)": lambda: nn.MultiheadAttention(3, 1)(
        ZERO, ZERO, ZERO, attn_mask=~nobody, need_weights=False
    ),
    "cross_entropy": lambda: F.cross_entropy(EMPTY, torch.tensor([0, 1])),
    "cosine_similarity": lambda: F.cosine_similarity(ZERO, ZERO),
    "cosine_embedding_loss": lambda: F.cosine_embedding_loss(ZERO, ZERO, torch.ones(2)),
    "pairwise_distance": lambda: F.pairwise_distance(ZERO, ZERO, eps=0),
    "torch.cdist": lambda: torch.cdist(ZERO, ZERO),
    "weight_norm": lambda: torch._weight_norm(ZERO, ZERO[:, :1], 0),
    "torch.renorm": lambda: ZERO.renorm(2, 0, 1.0),
    "gumbel_softmax": lambda: F.gumbel_softmax(EMPTY, dim=1),
    "gaussian_nll_loss": lambda: F.gaussian_nll_loss(ZERO, ZERO, ZERO, eps=1e-300),
    "poisson_nll_loss": lambda: F.poisson_nll_loss(ZERO, ZERO, log_input=False, eps=0.0),
    "torch.sparse.softmax": lambda: torch.sparse.softmax(EMPTY.to_sparse(), 1),
    "_foreach_div": lambda: torch._foreach_div([ZERO], [ZERO]),
    "linalg.norm": lambda: torch.linalg.norm(ZERO.clone().requires_grad_()).backward(),
    "log2, log10, log1p": lambda: (ZERO.log2(), ZERO.log10(), (ZERO - 1).log1p()),
    "torch.pow": lambda: (ZERO**-3, ZERO ** torch.tensor(-1.0), ZERO.float_power(-1)),
    "addcdiv": lambda: torch.addcdiv(ZERO, ZERO, ZERO),
    "layer_norm": lambda: (F.layer_norm(ZERO, (3,), eps=0.0), F.rms_norm(ZERO, (3,), eps=0.0)),
    "torch.ops.aten": lambda: torch.ops.aten.div(ZERO, ZERO),
    "numpy.ndarray": lambda: ZERO / np.zeros((2, 3)),
    "gradient formulas": lambda: (ZERO.clone().requires_grad_() ** 0.25).sum().backward(),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:__array_wrap__")
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_listed_as_unreachable_is(name: str) -> None:
    (entry,) = [entry for entry in safeops.patch.unreachable() if name in entry.function]
    assert entry.why and entry.instead
    for patch in (safeops.patch(policy="zero"), safeops.patch(observe=True)):
        with patch:
            EXAMPLES[name]()
    assert {key for key in counted() if key[1] in safeops._library.HIT_CONDITIONS} == set()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_fast_path_of_transformers_is_not_taken() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 5, 16)
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])

    def encoded() -> torch.Tensor:
        with torch.no_grad():
            return encoder(x, src_key_padding_mask=padded)

    fast = encoded()
    assert torch.equal(fast[padded], torch.zeros(2, 16))
    for patch in (safeops.patch(policy="stock"), safeops.patch(observe=True)):
        with patch:
            slow = encoded()
        assert slow[padded].abs().max() > 0.1
        torch.testing.assert_close(slow[~padded], fast[~padded], atol=1e-5, rtol=1e-5)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert_same_bits(slow, encoded())  # what unreachable() says to compare with
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_descriptions_without_an_example_are_few() -> None:
    shown = [
        entry
        for entry in safeops.patch.unreachable()
        if not any(name in entry.function for name in EXAMPLES)
    ]
    # Fast paths, threads, compiled code, tensors that are stepped aside for, other packages:
    # shown elsewhere.
    assert len(shown) == 5
