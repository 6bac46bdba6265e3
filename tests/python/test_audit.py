"""What an audit reports, to the row, the step and the bit."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import compiled_autograd
from torch.utils.checkpoint import checkpoint

import safeops
from safeops import diagnostics
from samples import assert_same_bits
from singular_calls import here, rows

STOCK_GRADIENT = torch.tensor(1e12).item()  # of a zero row, for an incoming gradient of 1
STEPS = 8


class Unit(torch.nn.Module):
    LINE = here() + 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, dim=-1)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4)
        self.layers = torch.nn.ModuleList([Unit()])
        self.head = torch.nn.Linear(4, 2)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers[0](self.embedding(index)))


def train(zero_at: tuple[int, ...] = (3, 5)) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and parameters; at the steps given, two of the sixteen rows are 0."""
    torch.manual_seed(0)
    network = Network()
    sgd = torch.optim.SGD(network.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        if step in zero_at:
            with torch.no_grad():
                network.embedding.weight[7] = 0
        index = torch.randint(0, 7, (16,))
        index[4] = index[9] = 7 if step in zero_at else 0
        loss = network(torch.dropout(index.float(), 0.0, True).long()).square().mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    return losses, network.state_dict()


# Observing changes nothing


def test_observing_changes_no_bit_and_no_random_number(recwarn) -> None:
    losses, parameters = train()
    state = torch.get_rng_state()
    with safeops.audit() as report:
        observed_losses, observed = train()
    assert observed_losses == losses
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in parameters.items():
        assert_same_bits(observed[name], parameter)
    assert report.sites[0].forward == 4
    assert not recwarn.list


def test_every_number_of_a_site() -> None:
    with safeops.audit() as report:
        train()
    (site,) = report.sites
    assert (site.filename, site.lineno, site.function) == (__file__, Unit.LINE, "forward")
    assert site.source == "return F.normalize(x, dim=-1)"
    assert (site.operator, site.condition, site.policies) == ("normalize", "zero_norm", ("stock",))
    assert (site.forward, site.rows, site.calls, site.all_calls) == (4, 16 * STEPS, 2, STEPS)
    assert site.backward == 4
    assert (site.first_step, site.last_step, site.first_row) == (3, 5, 4)
    assert site.hits_per_step.counts == (0, 0, 0, 4, 0, 4)
    assert (site.shapes, site.dtypes, site.modules) == (
        ((16, 4),),
        ("float32",),
        ("Network.layers.0",),
    )
    assert (site.stack[-1].filename, site.stack[-1].lineno) == (__file__, Unit.LINE)
    assert "train" in [frame.function for frame in site.stack]
    assert site.suggestion.startswith("A row is all 0; policy 'zero'")
    assert str(site.remedies["zero"]) == "value 0, gradient 0"
    assert report.steps == STEPS
    assert (report.rows, report.calls, report.lines) == (16 * STEPS, STEPS, 1)
    assert report.policy is None
    assert report.unattributed == report.notices == ()


@pytest.mark.parametrize(
    ("incoming", "largest"),
    [(1.0, STOCK_GRADIENT), (0.0, 0.0), (1e38, math.inf), (math.nan, math.nan)],
)
def test_the_largest_gradient(incoming: float, largest: float) -> None:
    x = rows(1, 0).requires_grad_()
    with safeops.audit() as report:
        F.normalize(x, dim=-1).backward(torch.full((1, 3), incoming))
    (site,) = report.sites
    assert site.largest_gradient == pytest.approx(largest, rel=0, abs=0, nan_ok=True)


def test_a_nan_gradient_is_not_forgotten() -> None:
    x = rows(1, 0).requires_grad_()
    with safeops.audit() as report:
        for incoming in (1.0, math.nan, 2.0):
            F.normalize(x, dim=-1).backward(torch.full((1, 3), incoming))
    assert math.isnan(report.sites[0].largest_gradient)


def test_a_gradient_is_known_whatever_condition_backward_meets_most() -> None:
    # Only backward meets the slope of 0, and more of it than negative arguments.
    x = torch.tensor([0.0, 0.0, 0.0, -1.0, -1.0], requires_grad=True)
    with safeops.audit() as report:
        torch.sqrt(x).sum().backward()
    assert [(site.condition, site.forward, site.backward) for site in report.sites] == [
        ("negative_argument", 2, 0),
        ("zero_argument", 0, 5),
    ]
    for site in report.sites:
        assert site.largest_gradient == pytest.approx(math.nan, nan_ok=True)
        assert "No backward pass" not in site.suggestion


def test_gradients_of_calls_that_did_not_hit_are_not_looked_at() -> None:
    regular, singular = rows(0).requires_grad_(), rows(1, 0).requires_grad_()
    with safeops.audit() as report:
        for x, incoming in ((regular, 1e30), (singular, 1e-6)):
            y = F.normalize(x, dim=-1)
            y.backward(torch.full_like(y, incoming))
    (site,) = report.sites
    assert site.largest_gradient == torch.tensor(1e-6 / 1e-12).item()
    assert (site.rows, site.all_calls, site.calls) == (3, 2, 1)


# Policies


def test_under_a_policy_the_program_gets_it() -> None:
    x = rows(2).requires_grad_()
    with safeops.audit("zero") as report:
        F.normalize(x, dim=-1).sum().backward()
    assert x.grad.isfinite().all() and not x.grad[2:].any()
    (site,) = report.sites
    assert (site.policies, site.forward, site.backward) == (("zero",), 2, 2)
    assert site.largest_gradient < 1
    assert report.policy == "zero"
    assert site.suggestion.startswith("Policy 'zero' answered")


def test_under_raise_the_line_is_reported() -> None:
    with pytest.raises(safeops.SingularityError), safeops.audit("raise") as report:
        F.softmax(torch.full((2, 3), -math.inf), dim=-1)
    (site,) = report.sites
    assert (site.operator, site.forward, site.rows, site.calls) == ("softmax", 2, 2, 1)
    assert site.largest_gradient is None


def test_a_slope_that_only_backward_meets() -> None:
    x = torch.tensor([0.0, 4.0, 0.0], requires_grad=True)
    with safeops.audit() as report:
        torch.sqrt(x).sum().backward()
    (site,) = report.sites
    assert (site.condition, site.forward, site.backward, site.rows) == ("zero_argument", 0, 2, 3)
    assert site.largest_gradient == math.inf
    assert (site.calls, site.all_calls) == (0, 1)


def test_only_the_operators_named_are_watched() -> None:
    with safeops.audit(operators=["softmax"]) as report:
        F.normalize(rows(1), dim=-1)
        F.softmax(rows(0), dim=-1)
    assert report.operators == ("softmax",)
    assert report.sites == ()
    assert (report.rows, report.calls) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"policy": "zeros"}, "safeops.audit: policy must be one of 'stock'"),
        ({"operators": ["softmax", "relu"]}, "safeops.audit: operators must be among .*'relu'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        safeops.audit(**arguments)


# What counts


def test_direct_calls_count_too(recwarn) -> None:
    with safeops.audit() as report:
        for zeros in (0, 2):
            safeops.normalize(rows(zeros), dim=-1, policy="nan")
    (site,) = report.sites
    assert (site.forward, site.rows, site.calls, site.all_calls) == (2, 6, 1, 2)
    assert site.policies == ("nan",)


def test_lines_operators_and_conditions_are_kept_apart() -> None:
    x = torch.tensor([[0.0, 0.0], [1e-13, 0.0], [0.0, 1e-13], [1.0, 0.0]])
    with safeops.audit() as report:
        for part in (x[:1], x[1:]):
            line = here() + 1
            F.normalize(part, dim=-1), torch.log(part)
    found = [(site.lineno, site.operator, site.condition, site.forward) for site in report.sites]
    assert found == [
        (line, "normalize", "zero_norm", 1),
        (line, "log", "zero_argument", 5),
        (line, "normalize", "below_eps", 2),
    ]
    # Rows seen are those of the line and the operator, whatever was met.
    assert [site.rows for site in report.sites] == [4, 8, 4]
    assert (report.calls, report.lines) == (4, 1)


def in_thread(work: Callable[[], object]) -> None:
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()


def test_another_thread_has_no_line_unless_the_audit_saw_it() -> None:
    def own(zeros: int) -> None:
        safeops.normalize(rows(zeros), dim=-1, policy="zero")

    with safeops.audit() as report:
        own(1)
        in_thread(lambda: own(2))
        in_thread(lambda: safeops.softmax(torch.full((3, 2), -math.inf), dim=-1, policy="zero"))
    (site,) = report.sites
    assert (site.forward, site.rows, site.calls, site.all_calls) == (3, 7, 2, 2)
    (entry,) = report.unattributed
    assert (entry.operator, entry.forward, entry.backward) == ("softmax", 3, 0)


def test_backward_in_another_thread_belongs_to_the_line() -> None:
    x = rows(1).requires_grad_()
    with safeops.audit() as report:
        y = F.normalize(x, dim=-1)
        in_thread(lambda: y.sum().backward())
    (site,) = report.sites
    assert (site.forward, site.backward, site.largest_gradient) == (1, 1, STOCK_GRADIENT)


def test_what_is_met_before_and_after_the_block_does_not_count() -> None:
    x = rows(1).requires_grad_()
    before = F.normalize(rows(2), dim=-1)
    y = safeops.normalize(x, dim=-1, policy="zero")
    y.sum().backward()
    with safeops.audit() as report:
        late = F.normalize(x, dim=-1)
    late.sum().backward()
    diagnostics.snapshot()
    (site,) = report.sites
    assert (site.forward, site.backward, site.largest_gradient) == (1, 0, None)
    assert before.isfinite().all() and report.unattributed == ()


def test_backward_within_the_block_finds_a_line_before_it() -> None:
    x = rows(1).requires_grad_()
    y, line = safeops.normalize(x, dim=-1, policy="zero"), here()
    with safeops.audit() as report:
        y.sum().backward()
    (site,) = report.sites
    assert (site.lineno, site.forward, site.rows, site.backward) == (line, 0, 0, 1)


def test_a_report_may_be_read_inside_the_block() -> None:
    x = rows(1).requires_grad_()
    with safeops.audit() as report:
        assert (report.sites, report.calls) == ((), 0)
        y = F.normalize(x, dim=-1)
        assert [(site.forward, site.backward) for site in report.sites] == [(1, 0)]
        y.sum().backward()
        assert [(site.forward, site.backward) for site in report.sites] == [(1, 1)]


def test_a_checkpoint_is_counted_as_it_runs() -> None:
    x = rows(1).requires_grad_()
    with safeops.audit() as report:
        checkpoint(Unit(), x, use_reentrant=False).sum().backward()
    (site,) = report.sites
    assert (site.forward, site.backward, site.rows, site.all_calls) == (2, 1, 6, 2)


def test_compiled_code_has_no_line() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: safeops.normalize(x, dim=-1, policy="zero"), backend="aot_eager", fullgraph=True
    )
    x = rows(2).requires_grad_()
    with safeops.audit() as report:
        compiled(x).sum().backward()
        F.normalize(rows(1), dim=-1)
    (entry,) = report.unattributed
    assert (entry.operator, entry.conditions) == ("normalize", ("zero_norm",))
    assert (entry.forward, entry.backward) == (2, 2)
    assert [site.forward for site in report.sites] == [1]


def test_a_compiled_model_under_a_policy() -> None:
    torch._dynamo.reset()
    network = torch.compile(Network(), backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        network.embedding.weight[7] = 0
    with safeops.audit("zero") as report:
        network(torch.tensor([1, 7, 7])).sum().backward()
    assert [(e.operator, e.forward, e.backward) for e in report.unattributed] == [
        ("normalize", 2, 2)
    ]
    assert report.sites == ()


@pytest.mark.parametrize(("policy", "counted"), [(None, []), ("zero", [(0, 2)])])
def test_compiled_autograd_is_counted_under_a_policy_and_not_observed(policy, counted) -> None:
    torch._dynamo.reset()
    x = rows(2, 0).requires_grad_()
    with safeops.audit(policy) as report:
        y = F.normalize(x, dim=-1)
        with compiled_autograd._enable(torch.compile(backend="eager")):
            y.sum().backward()
    assert [(site.forward, site.backward) for site in report.sites] == [(2, 0)]
    assert [(entry.forward, entry.backward) for entry in report.unattributed] == counted
    assert torch.equal(x.grad, torch.full((2, 3), 0.0 if policy else STOCK_GRADIENT))


def test_notices_are_totals() -> None:
    x = rows(0)
    x[1, 1] = math.nan
    lowest = torch.finfo(torch.float32).min
    with safeops.audit() as report:
        F.normalize(x, dim=-1)
        F.softmax(torch.full((3, 2), lowest), dim=-1)
    assert [(n.operator, n.condition, n.count) for n in report.notices] == [
        ("normalize", "nonfinite_input", 1),
        ("softmax", "finite_min_row", 3),
    ]
    assert report.sites == ()
