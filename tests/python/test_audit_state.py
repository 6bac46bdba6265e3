"""Steps of an audit, and what it leaves of the state of the process: nothing."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.optim import optimizer

import safeops
from safeops import _audit, _events, diagnostics
from safeops._steps import MAX_BINS, HitsPerStep, StepHistogram
from samples import assert_same_bits
from singular_calls import rows

STOCK_GRADIENT = torch.tensor(1e12).item()  # of a zero row, for an incoming gradient of 1


# Steps


def an_optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    return torch.optim.SGD([parameter], lr=0.1)


def test_every_fold_counts_that_makes_its_own_optimizer() -> None:
    with safeops.audit() as report:
        for fold in range(3):
            sgd = an_optimizer()
            for step in range(1, 4):
                sgd.step()
                assert report.steps == diagnostics.step() == 3 * fold + step
            del sgd


def test_a_second_phase_counts_while_the_optimizer_of_the_first_lives() -> None:
    first, second = an_optimizer(), an_optimizer()
    with safeops.audit() as report:
        for sgd in (first, second):
            for _ in range(3):
                sgd.step()
    # The first step of another might be of the step that was.
    assert report.steps == 5


def test_a_pair_of_optimizers_makes_one_step() -> None:
    critic, generator = an_optimizer(), an_optimizer()
    with safeops.audit() as report:
        for step in range(1, 4):
            for sgd in (critic, generator):
                sgd.step()
                assert report.steps == step


def test_counting_steps_keeps_no_optimizer() -> None:
    sgd = an_optimizer()
    alive = weakref.ref(sgd)
    with safeops.audit():
        sgd.step()
        del sgd
        gc.collect()
        assert alive() is None


def test_of_several_optimizers_the_most_steps_of_one_count() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    often, seldom = (torch.optim.SGD([parameter], lr=0.1) for _ in range(2))
    with safeops.audit() as report:
        assert diagnostics.step() == 0
        for step in range(1, 6):
            often.step()
            if step % 2:
                seldom.step()
            assert (report.steps, diagnostics.step()) == (step, step)
    assert report.steps == 5


def test_backward_hits_belong_to_the_step_that_their_gradients_make() -> None:
    x = torch.nn.Parameter(torch.zeros(1, 3))
    sgd = torch.optim.SGD([x], lr=0.0)
    with safeops.audit() as report:
        F.normalize(x, dim=-1).sum().backward()
        sgd.step()
    (site,) = report.sites
    assert (site.first_step, site.last_step, site.hits_per_step.counts) == (0, 0, (2,))


def test_a_step_that_the_program_sets_stays() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1, 3))
    sgd = torch.optim.SGD([parameter], lr=0.0)
    with safeops.audit() as report:
        diagnostics.set_step(100)
        F.normalize(parameter, dim=-1).sum().backward()
        sgd.step()
        with safeops.audit():
            sgd.step()
        assert diagnostics.step() == 100
    assert diagnostics.step() == 100
    assert (report.steps, report.sites[0].first_step) == (2, 0)
    diagnostics.set_step(None)


def test_a_step_that_is_compiled_counts() -> None:
    torch._dynamo.reset()
    x = torch.nn.Parameter(torch.ones(3))
    x.grad = torch.ones(3)
    sgd = torch.optim.SGD([x], lr=0.5)
    with safeops.audit() as report:
        step = torch.compile(sgd.step, backend="aot_eager")
        step()
        step()
    assert x.tolist() == [0, 0, 0]
    assert report.steps == 2


# The state of the process


def state() -> tuple[object, ...]:
    hooks = len(optimizer._global_optimizer_post_hooks)
    modes = len(torch.overrides._get_current_function_mode_stack())
    attached = len(_events.attachments)
    return diagnostics.level(), diagnostics.step(), hooks, modes, attached, len(_audit._running)


@pytest.mark.parametrize("policy", [None, "zero"])
def test_everything_is_set_back(policy) -> None:
    diagnostics.set_level(2)
    diagnostics.set_step(41)
    before = state()
    softmax = F.softmax
    with pytest.raises(KeyError), safeops.audit(policy):
        assert state() == (3, 0, 1, before[3] + 1, 1, 1)
        raise KeyError
    assert state() == before == (2, 41, 0, before[3], 0, 0)
    assert F.softmax is softmax
    diagnostics.set_step(None)


def test_a_patch_that_cannot_be_entered_leaves_nothing(monkeypatch) -> None:
    before = state()

    def refuse(self) -> None:
        raise RuntimeError("refused")

    monkeypatch.setattr(_audit._patch.watched, "__enter__", refuse)
    with pytest.raises(RuntimeError, match="refused"), safeops.audit():
        pass
    assert state() == before


def test_audits_nest() -> None:
    x = torch.nn.Parameter(torch.zeros(1, 3))
    sgd = torch.optim.SGD([x], lr=0.0)

    def step() -> None:
        sgd.zero_grad()
        F.normalize(x, dim=-1).sum().backward()
        sgd.step()

    watcher = safeops.audit()
    with watcher as outer:
        step()
        with watcher as inner:
            assert diagnostics.step() == 0
            step()
            step()
            assert diagnostics.step() == 2
        assert diagnostics.step() == 3
        step()
    for report, count in ((outer, 4), (inner, 2)):
        (site,) = report.sites
        assert (report.steps, site.forward, site.backward) == (count, count, count)
        assert (site.rows, site.all_calls) == (count, count)
        assert site.largest_gradient == STOCK_GRADIENT
    assert outer.sites[0].hits_per_step.counts == (2, 2, 2, 2)
    assert diagnostics.step() is None


def normalize_on_a_line_of_its_own(x: torch.Tensor, dim: int) -> torch.Tensor:
    return F.normalize(x, dim=dim)


def test_one_object_serves_several_threads() -> None:
    auditor = safeops.audit()
    both_inside, reports = threading.Barrier(2, timeout=60), {}

    modes = torch._C._len_torch_function_stack

    def work(zeros: int) -> None:
        before = modes()
        with auditor as report:
            both_inside.wait()
            assert modes() == before + 1
            (F.normalize if zeros == 1 else normalize_on_a_line_of_its_own)(rows(zeros), dim=-1)
            both_inside.wait()
        if modes() == before:
            reports[zeros] = report

    workers = [threading.Thread(target=work, args=(zeros,)) for zeros in (1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    hooks, _, attached, running = state()[2:]
    assert (hooks, attached, running) == (0, 0, 0)
    assert {zeros: report.calls for zeros, report in reports.items()} == {1: 1, 5: 1}
    assert {zeros: report.rows for zeros, report in reports.items()} == {1: 3, 5: 7}


def test_the_innermost_audit_says_which_step_it_is() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    one, other = (torch.optim.SGD([parameter], lr=0.1) for _ in range(2))
    with safeops.audit():
        other.step()
        with safeops.audit() as inner:
            one.step()
            other.step()  # the second of the outer audit, no news for the inner one
            assert diagnostics.step() == inner.steps == 1
        assert diagnostics.step() == 2


def test_a_reset_inside_the_block_loses_no_site() -> None:
    with safeops.audit() as report:
        F.normalize(rows(2), dim=-1)
        diagnostics.reset()
        F.normalize(rows(1), dim=-1)
    assert [site.forward for site in report.sites] == [2, 1]
    assert report.unattributed == ()


class SingularRows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        F.normalize(torch.zeros(1, 3), dim=-1)
        return diagnostics.level()


def test_a_forked_worker_is_not_the_audited_process() -> None:
    with safeops.audit() as report:
        loader = torch.utils.data.DataLoader(
            SingularRows(), num_workers=2, multiprocessing_context="fork"
        )
        assert [level.item() for level in loader] == [1] * 4
        F.normalize(rows(1), dim=-1)
    assert [site.forward for site in report.sites] == [1]
    assert report.unattributed == ()


def test_functional_transforms_run_under_an_audit() -> None:
    x = rows(1)

    def loss(row: torch.Tensor) -> torch.Tensor:
        return safeops.normalize(row, dim=-1, policy="zero").sum()

    expected = torch.vmap(torch.func.grad(loss))(x)
    with safeops.audit() as report:
        found = torch.vmap(torch.func.grad(loss))(x)
    assert_same_bits(found, expected)
    assert sum(site.forward for site in report.sites) == 1


# The histogram


def test_a_histogram_of_few_steps_is_exact() -> None:
    histogram = StepHistogram()
    for step, count in ((0, 1), (3, 2), (3, 4), (1, 1)):
        histogram.add(step, count)
    assert histogram.read() == HitsPerStep(1, (1, 1, 0, 6))


@pytest.mark.parametrize("last", [MAX_BINS - 1, MAX_BINS, 3 * MAX_BINS + 1, 10**6])
def test_a_histogram_stays_bounded_and_loses_no_count(last: int) -> None:
    histogram = StepHistogram()
    steps = range(0, last + 1, max(1, last // 5000))
    for step in steps:
        histogram.add(step, 2)
    histogram.add(last, 1)
    read = histogram.read()
    assert (
        len(read.counts) <= MAX_BINS < 2 * (last // read.width + 1) + MAX_BINS * (read.width == 1)
    )
    for i, count in enumerate(read.counts):
        inside = range(i * read.width, (i + 1) * read.width)
        assert count == 2 * sum(step in inside for step in steps) + (last in inside)
    assert sum(read.counts) == 2 * len(steps) + 1


def test_histograms_become_coarser() -> None:
    assert HitsPerStep(2, (1, 2, 3)).coarsened(4) == HitsPerStep(4, (3, 3))
    assert HitsPerStep(2, (1, 2, 3)).coarsened(2) == HitsPerStep(2, (1, 2, 3))
