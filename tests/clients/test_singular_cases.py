"""Singular points inside torch's own attention and transformers' CLIP, reached and not reached."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional
from transformers import CLIPConfig, CLIPModel

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

TOWER = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
TEXT = {"vocab_size": 16, "max_position_embeddings": 8, "eos_token_id": 2, "bos_token_id": 1}


def clip_with_a_projection_of_zero() -> Step:
    """CLIP divides by a norm that it takes by hand: a power of 0.5 and an operator `/`."""
    config = CLIPConfig(
        text_config={**TOWER, **TEXT, "pad_token_id": 0},
        vision_config={**TOWER, "image_size": 8, "patch_size": 4},
        projection_dim=8,
    )
    model = CLIPModel(config)
    nn.init.zeros_(model.visual_projection.weight)
    pixels, tokens = torch.randn(3, 3, 8, 8), torch.randint(3, 16, (3, 6))
    output = model(input_ids=tokens, pixel_values=pixels, return_loss=True)
    leaves = dict(model.named_parameters())
    return step_of({"logits": output.logits_per_image}, output.loss, leaves)


def attention_over_padding(need_weights: bool) -> Step:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 4, 8, requires_grad=True)
    padding = torch.tensor([False, True])[:, None].expand(2, 4)
    output, _ = attention(x, x, x, key_padding_mask=padding, need_weights=need_weights)
    # Only the sample that is all there counts, as a loss with a mask would have it.
    leaves = {"x": x, **dict(attention.named_parameters())}
    return step_of({"output": output}, output[0].sum(), leaves)


def attention_with_weights() -> Step:
    return attention_over_padding(need_weights=True)


CLIENTS = (clip_with_a_projection_of_zero, attention_with_weights)


@pytest.mark.parametrize("client", CLIENTS)
def test_stock_gradients_are_nan(client: Client) -> None:
    stock = run(client)
    # All but the bias after the attention.
    spared = {attention_with_weights: 1}.get(client, 0)
    assert len(not_finite(stock.gradients)) == len(stock.gradients) - spared


@pytest.mark.parametrize("client", CLIENTS)
def test_observing_changes_no_bit(client: Client) -> None:
    assert different(run(client), observed(client)) == []
    assert safeops.diagnostics.snapshot().total(direction="forward") > 0
    assert safeops.diagnostics.snapshot().total(direction="backward") > 0


@pytest.mark.parametrize("client", CLIENTS)
def test_zero_gives_finite_values_and_gradients(client: Client) -> None:
    zero = patched(client, "zero")
    assert not_finite(zero.values) == not_finite(zero.gradients) == []


def test_audit_names_both_halves_of_the_norm_of_clip() -> None:
    step, report = audited(clip_with_a_projection_of_zero)
    assert different(run(clip_with_a_projection_of_zero), step) == []
    assert lines_in(report, transformers) == {
        "normed_tensor = torch.pow(sum_tensor, 0.5)",
        "image_embeds = image_embeds / _get_vector_norm(image_embeds)",
    }
    hits = {site.operator: (site.forward, site.backward) for site in report.sites}
    assert hits == {"sqrt": (0, 3), "div": (24, 24)}


def test_audit_names_the_call_of_the_attention() -> None:
    _, report = audited(attention_with_weights)
    (site,) = report.sites
    assert Path(site.filename) == Path(__file__)
    assert site.function == "attention_over_padding"
    assert (site.operator, site.condition) == ("softmax", "empty_row")
    assert (site.forward, site.rows, site.backward) == (8, 16, 8)


def test_fused_attention_is_out_of_reach_and_finite() -> None:
    def client() -> Step:
        return attention_over_padding(need_weights=False)

    assert different(run(client), patched(client, "zero")) == []
    assert not_finite(run(client).gradients) == []
    assert safeops.diagnostics.snapshot().total() == 0


def test_cosine_similarity_is_out_of_reach() -> None:
    def client() -> Step:
        x = torch.zeros(1, 4, requires_grad=True)
        return step_of({}, functional.cosine_similarity(x, torch.ones(1, 4)).sum(), {"x": x})

    assert different(run(client), patched(client, "zero")) == []
    assert run(client).gradients["x"].abs().max() > 1e7
    assert safeops.diagnostics.snapshot().total() == 0
