"""x-transformers: norms that are F.normalize over a zero embedding, and rows without a key."""

from __future__ import annotations

import pytest
import torch
import x_transformers
from torch.nn import functional
from x_transformers import Encoder, TransformerWrapper

import safeops
from trials import (
    Client,
    Step,
    audited,
    different,
    lines_in,
    not_finite,
    observed,
    patched,
    run,
    step_of,
)

PADDING = 0
# 11 of the tokens are padding; both layers normalize each, and where asked for its two queries and
# two keys as well.
ROWS_HIT = {"rmsnorm": 22, "rmsnorm, qk_norm": 66, "scalenorm": 22, "simple_rmsnorm": 22}
NORMS = {
    "rmsnorm": {"use_rmsnorm": True},
    "rmsnorm, qk_norm": {"use_rmsnorm": True, "attn_qk_norm": True},
    "scalenorm": {"use_scalenorm": True},
    "simple_rmsnorm": {"use_simple_rmsnorm": True},
}


def make(options: dict[str, bool]) -> TransformerWrapper:
    layers = Encoder(dim=32, depth=2, heads=2, attn_dim_head=16, **options)
    model = TransformerWrapper(
        num_tokens=16, max_seq_len=8, attn_layers=layers, use_abs_pos_emb=False
    )
    with torch.no_grad():
        # As nn.Embedding(padding_idx=0) begins: the padding is embedded to zero.
        model.token_emb.emb.weight[PADDING] = 0
    return model


@pytest.fixture(params=NORMS)
def client(request: pytest.FixtureRequest) -> Client:
    """The last sample is padding throughout and has no key to attend to."""

    def step() -> Step:
        model = make(NORMS[request.param])
        tokens = torch.randint(1, 16, (3, 8))
        tokens[1, 5:] = tokens[2] = PADDING
        logits = model(tokens, mask=tokens != PADDING)
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        return step_of({"logits": logits}, loss, dict(model.named_parameters()))

    return step


def embedding_gradient(step: Step) -> float:
    return step.gradients["token_emb.emb.weight"][PADDING].abs().max().item()


def test_stock_gradient_of_the_padding_explodes(client: Client) -> None:
    stock = run(client)
    assert not_finite(stock.values) == []
    assert embedding_gradient(stock) > 1e8


def test_observing_changes_no_bit_and_counts_every_padding(
    client: Client, request: pytest.FixtureRequest
) -> None:
    assert different(run(client), observed(client)) == []
    rows = ROWS_HIT[request.node.callspec.params["client"]]
    counters = safeops.diagnostics.snapshot()
    assert counters.total("normalize", direction="forward") == rows
    assert counters.total("normalize", direction="backward") == rows


def test_zero_gives_finite_gradients(client: Client) -> None:
    zero = patched(client, "zero")
    assert not_finite(zero.values) == not_finite(zero.gradients) == []
    assert embedding_gradient(zero) < 1e3


def test_zero_changes_no_other_value(client: Client) -> None:
    stock, zero = patched(client, "stock"), patched(client, "zero")
    assert different(Step(stock.values, {}), Step(zero.values, {})) == []


def test_audit_names_lines_of_the_package(client: Client) -> None:
    step, report = audited(client)
    assert different(run(client), step) == []
    lines = lines_in(report, x_transformers)
    assert lines and all("F.normalize(" in line for line in lines)
    assert {site.operator for site in report.sites} == {"normalize"}


def test_rows_without_a_key_are_told_and_not_changed(client: Client) -> None:
    """They are filled with the lowest finite number, and so are uniform rather than singular."""
    observed(client)
    counters = safeops.diagnostics.snapshot()
    assert counters.total("softmax") == 0
    # Eight queries of one sample, two heads, two layers.
    assert counters.total("softmax", condition="finite_min_row") == 32


def test_softmax_taken_before_the_patch_is_seen() -> None:
    model = make({"use_rmsnorm": True})
    tokens = torch.zeros(1, 8, dtype=torch.long)
    with safeops.patch("softmax", observe=True):
        model(tokens, mask=tokens != PADDING)
    assert safeops.diagnostics.snapshot().total("softmax", condition="finite_min_row") > 0
