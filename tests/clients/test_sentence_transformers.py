"""sentence-transformers: pooling and Normalize behind a tiny BERT, with a row without a token."""

from __future__ import annotations

import inspect

import pytest
import sentence_transformers
import torch
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor, nn
from transformers import BertConfig, BertModel

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

EMPTY = 2
POOLING = ("mean", "mean_sqrt_len_tokens", "weightedmean")


class Encoder(nn.Module):
    """Random weights in place of a downloaded transformer module."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=32,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden = self.bert(
            input_ids=features["input_ids"], attention_mask=features["attention_mask"]
        )
        return {**features, "token_embeddings": hidden.last_hidden_state}


@pytest.fixture(params=POOLING)
def client(request: pytest.FixtureRequest) -> Client:
    def step() -> Step:
        model = nn.Sequential(Encoder(), Pooling(16, pooling_mode=request.param), Normalize())
        tokens = torch.randint(1, 32, (4, 6))
        mask = torch.ones(4, 6, dtype=torch.long)
        mask[1, 4:] = 0
        mask[EMPTY] = 0
        embeddings = model({"input_ids": tokens, "attention_mask": mask})["sentence_embedding"]
        scores = 20 * embeddings @ embeddings.T
        loss = nn.functional.cross_entropy(scores, torch.tensor([1, 0, 3, 2]))
        leaves = dict(model.named_parameters())
        return step_of({"embeddings": embeddings}, loss, leaves)

    return step


def test_stock_embeds_no_token_to_zero_and_masks_its_gradient(client: Client) -> None:
    stock = run(client)
    assert stock.values["embeddings"][EMPTY].eq(0).all()
    assert not_finite(stock.values) == not_finite(stock.gradients) == []


def test_observing_changes_no_bit_and_counts_the_row(client: Client) -> None:
    assert different(run(client), observed(client)) == []
    counters = safeops.diagnostics.snapshot()
    assert counters.total("normalize", "zero_norm", "forward") == 1
    assert counters.total("normalize", "zero_norm", "backward") == 1
    # The attention mask of BERT is the lowest finite number: told, not changed.
    assert counters.total("softmax") == 0
    assert counters.total("softmax", condition="finite_min_row") == 12


def test_audit_names_the_line_of_the_package(client: Client) -> None:
    step, report = audited(client)
    assert different(run(client), step) == []
    source = "features[self.module_output_name] = F.normalize(x, p=2, dim=-1)"
    assert lines_in(report, sentence_transformers) == {source}
    (site,) = report.sites
    assert site.filename == inspect.getfile(Normalize)
    assert (site.forward, site.rows, site.backward) == (1, 4, 1)


def test_zero_gives_finite_gradients_and_changes_no_other_bit(client: Client) -> None:
    stock, zero = patched(client, "stock"), patched(client, "zero")
    assert not_finite(zero.gradients) == []
    # The pooling multiplies what stock passes on by a mask of 0.
    assert different(stock, zero) == []


def test_nan_passes_a_mask_of_zero(client: Client) -> None:
    assert not_finite(patched(client, "nan").gradients) != []


def test_largest_of_no_token_is_not_a_singular_row() -> None:
    """Pooling by maximum starts from -inf, whose direction no policy knows."""

    def client() -> Step:
        embeddings = torch.randn(2, 3, 4, requires_grad=True)
        features = {"token_embeddings": embeddings, "attention_mask": torch.ones(2, 3).long()}
        features["attention_mask"][1] = 0
        model = nn.Sequential(Pooling(4, pooling_mode="max"), Normalize())
        loss = model(features)["sentence_embedding"].square().sum()
        return step_of({}, loss, {"embeddings": embeddings})

    assert not_finite(run(client).values) == not_finite(patched(client, "zero").values) == ["loss"]
    counters = safeops.diagnostics.snapshot()
    assert counters.total() == 0
    assert counters.total("normalize", "nonfinite_input", "forward") == 1
