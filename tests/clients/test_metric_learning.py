"""pytorch-metric-learning: twelve losses over a batch in which one embedding is zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import pytorch_metric_learning
import torch
from pytorch_metric_learning import losses
from torch import nn

import safeops
from trials import Client, Step, audited, different, not_finite, observed, patched, run, step_of

CLASSES, WIDTH, ZERO_ROW = 4, 16, 3

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "angular": losses.AngularLoss,
    "arcface": lambda: losses.ArcFaceLoss(CLASSES, WIDTH),
    "circle": losses.CircleLoss,
    "contrastive": losses.ContrastiveLoss,
    "multi-similarity": losses.MultiSimilarityLoss,
    "normalized-softmax": lambda: losses.NormalizedSoftmaxLoss(CLASSES, WIDTH),
    "nt-xent": losses.NTXentLoss,
    "proxy-anchor": lambda: losses.ProxyAnchorLoss(CLASSES, WIDTH),
    "proxy-nca": lambda: losses.ProxyNCALoss(CLASSES, WIDTH),
    "supervised-contrastive": losses.SupConLoss,
    "triplet-margin": losses.TripletMarginLoss,
    "tuplet-margin": losses.TupletMarginLoss,
}
# All of them reach normalize here.
LINE = "return torch.nn.functional.normalize(embeddings, p=self.p, dim=dim, **kwargs)"


@pytest.fixture(params=LOSSES)
def client(request: pytest.FixtureRequest) -> Client:
    def step() -> Step:
        loss_of = LOSSES[request.param]()
        embeddings = torch.randn(2 * CLASSES, WIDTH)
        embeddings[ZERO_ROW] = 0
        embeddings.requires_grad_()
        labels = torch.arange(CLASSES).repeat_interleave(2)
        leaves = {"embeddings": embeddings, **dict(loss_of.named_parameters())}
        return step_of({}, loss_of(embeddings, labels), leaves)

    return step


def test_stock_gradient_of_the_zero_embedding_explodes_while_the_loss_is_finite(
    client: Client,
) -> None:
    stock = run(client)
    assert stock.values["loss"].isfinite()
    assert stock.gradients["embeddings"][ZERO_ROW].abs().max() > 1e9


def test_observing_changes_no_bit(client: Client) -> None:
    assert different(run(client), observed(client)) == []
    assert safeops.diagnostics.snapshot().total("normalize", direction="forward") > 0
    assert safeops.diagnostics.snapshot().total("normalize", direction="backward") > 0


def test_zero_gives_finite_gradients_and_changes_no_bit_elsewhere(client: Client) -> None:
    stock, zero = patched(client, "stock"), patched(client, "zero")
    assert not_finite(zero.values) == not_finite(zero.gradients) == []
    assert zero.gradients["embeddings"].abs().max() < 1e3
    for step in (stock, zero):
        step.gradients["embeddings"][ZERO_ROW] = 0
    assert different(stock, zero) == []


def test_zero_passes_no_gradient_to_the_zero_embedding(
    client: Client, request: pytest.FixtureRequest
) -> None:
    gradient = patched(client, "zero").gradients["embeddings"][ZERO_ROW]
    # The angular loss also adds the squares of the embeddings as they are.
    assert gradient.eq(0).all() != (request.node.callspec.params["client"] == "angular")


def test_nan_reaches_the_gradient_unless_the_package_sorts_it_out(
    client: Client, request: pytest.FixtureRequest
) -> None:
    marked = patched(client, "nan")
    if request.node.callspec.params["client"] in ("circle", "supervised-contrastive"):
        # They average over the losses above 0, and NaN is not: nothing is left to train on.
        assert marked.values["loss"].eq(0)
        assert marked.gradients["embeddings"].eq(0).all()
    else:
        assert marked.gradients["embeddings"][ZERO_ROW].isnan().all()


def test_raise_stops_at_the_zero_embedding(client: Client) -> None:
    with pytest.raises(safeops.SingularityError) as caught:
        patched(client, "raise")
    assert (caught.value.operator, caught.value.condition) == ("normalize", "zero_norm")


def test_audit_names_the_line_of_the_package(client: Client) -> None:
    step, report = audited(client)
    assert different(run(client), step) == []
    (site,) = report.sites
    assert (site.operator, site.condition) == ("normalize", "zero_norm")
    assert site.filename.endswith("pytorch_metric_learning/distances/base_distance.py")
    assert site.filename.startswith(pytorch_metric_learning.__path__[0])
    with open(site.filename) as source:
        assert source.readlines()[site.lineno - 1].strip() == LINE
    assert 0 < site.forward < site.rows
    assert site.backward > 0
    assert site.largest_gradient > 1e9
