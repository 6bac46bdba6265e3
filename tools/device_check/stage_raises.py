"""Policy raise: deferred to the next call, to backward, to check(); exact in the call itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from accelerator import Accelerator, accelerator
from stage import Context

import safeops


def singular(device: Accelerator) -> torch.Tensor:
    x = torch.ones(6, 4, device=device.device)
    x[3] = 0.0
    return x


def raised_by(call: Callable[[], object]) -> ValueError | None:
    try:
        call()
    except ValueError as error:
        return error
    return None


def run(context: Context) -> None:
    device = accelerator(context.dry)
    for mode in ("deferred", "exact"):
        safeops.diagnostics.set_raise_mode(mode)
        at_once = mode == "exact" or not device.defers
        for moment in ("check", "next call"):
            check_moment(context, device, at_once, moment)
        check_backward(context, device, at_once)
        check_good_calls(context, device)
        context.note(last=mode)
    safeops.diagnostics.set_raise_mode("deferred")
    check_threads(context, device)


def check_moment(context: Context, device: Accelerator, at_once: bool, moment: str) -> None:
    x = singular(device)
    error = raised_by(lambda: safeops.normalize(x, dim=-1, policy="raise"))
    context.expect((error is not None) == at_once, f"the call itself: {error!r}")
    if error is None:
        device.synchronize()
        if moment == "check":
            error = raised_by(safeops.diagnostics.check)
        else:
            error = raised_by(lambda: safeops.normalize(x + 1, dim=-1, policy="raise"))
    described = isinstance(error, safeops.SingularityError) and (
        error.operator,
        error.condition,
        error.first_row,
    )
    expected = ("normalize", "zero_norm", 3)
    context.expect(described == expected, f"{moment}: {error!r} with {described}")
    context.expect(raised_by(safeops.diagnostics.check) is None, f"{moment}: raised twice")


def check_backward(context: Context, device: Accelerator, at_once: bool) -> None:
    x = torch.tensor([1.0, 0.0, 4.0], device=device.device, requires_grad=True)
    # sqrt(0) is regular and its slope is not.
    y = safeops.sqrt(x, policy="raise")

    def backward() -> None:
        y.sum().backward()
        device.synchronize()
        safeops.diagnostics.check()

    error = raised_by(backward)
    context.expect(error is not None and "sqrt" in str(error), f"backward: {error!r}")
    context.expect(raised_by(safeops.diagnostics.check) is None, "backward: raised twice")


def check_good_calls(context: Context, device: Accelerator) -> None:
    x = torch.ones(6, 4, device=device.device)
    for _ in range(3):
        error = raised_by(lambda: safeops.normalize(x, dim=-1, policy="raise"))
        context.expect(error is None, f"a regular call: {error!r}")
    context.expect(raised_by(safeops.diagnostics.check) is None, "regular calls left an error")


def check_threads(context: Context, device: Accelerator) -> None:
    """Of two threads, each on a stream of its own, one meets something singular."""
    errors: list[BaseException | None] = []

    def work(x: torch.Tensor) -> None:
        def calls() -> None:
            for _ in range(50):
                safeops.normalize(x, dim=-1, policy="raise")
            device.synchronize()
            safeops.diagnostics.check()

        if device.device == "cuda":
            with torch.cuda.stream(torch.cuda.Stream()):
                errors.append(raised_by(calls))
        else:
            errors.append(raised_by(calls))

    device_tensors = (singular(device), torch.ones(6, 4, device=device.device))
    device.synchronize()
    threads = [threading.Thread(target=work, args=(x,)) for x in device_tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context.expect(len(errors) == 2, f"a thread ended with another error: {errors}")
    context.expect(any(error is not None for error in errors), "two threads: nothing was raised")
    while raised_by(safeops.diagnostics.check) is not None:
        pass
