"""``python -m safeops``: audits an unmodified training script, or shows what is running.

    python -m safeops audit [--policy P] [--operators A,B] [--html FILE] [--json FILE] script.py ...
    python -m safeops audit [options] -m package.module ...
    python -m safeops config

Everything after the script or module belongs to it: it runs as python would run it, with its own
exit code. The report goes to standard error at its end, be that an exit, an exception or an
interrupt; not where nothing in Python runs any more: after os._exit() or a signal that kills, as
SIGTERM does unless the script handles it. Tracebacks have no frames of safeops. Warnings that
PyTorch gives in C++ name the line of Python that runs, which may be one of safeops.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

import safeops


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m safeops",
        description="Finds the lines of a training script that divide by nothing.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="{audit,config}")
    commands.add_parser("config", help="show versions, SIMD target, level and policies")
    audit = commands.add_parser(
        "audit",
        help="run a script and report the lines that met singular rows",
        usage="%(prog)s [options] (script.py | -m module) [arguments of the script ...]",
        description="Runs an unmodified script or module as python would, and reports the lines "
        "that met singular rows on standard error. Without --policy nothing is changed.",
        allow_abbrev=False,
    )
    audit.add_argument("--policy", help="run under stock, nan, epsilon, zero or raise")
    audit.add_argument(
        "--operators", type=lambda names: names.split(","), help="watch these only: normalize,div"
    )
    audit.add_argument("--html", type=_writable, metavar="FILE", help="write the report as a page")
    audit.add_argument("--json", type=_writable, metavar="FILE", help="write the report as JSON")
    return parser


def _writable(name: str) -> Path:
    path = Path(name).absolute()  # the script may change the working directory
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{name!r} must be a file in a folder that exists")
    return path


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our options, and from the script (or -m) on what is not ours."""
    end = 0
    while end < len(arguments) and arguments[end].startswith("-") and arguments[end] != "-m":
        takes_next = arguments[end].startswith("--") and "=" not in arguments[end]
        end += 2 if takes_next and arguments[end] != "--help" else 1
    return list(arguments[:end]), list(arguments[end:])


def _script(path: str, arguments: list[str]) -> tuple[CodeType, ModuleType]:
    """The script, and the module that it is to be the body of."""
    # As of a script that python is given: the path in full, but in sys.argv.
    full = os.path.join(os.getcwd(), path)
    with io.open_code(full) as file:
        code = compile(file.read(), full, "exec", dont_inherit=True)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    module = ModuleType("__main__")
    module.__file__ = full
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", full)
    sys.argv = [path, *arguments]
    return code, module


def _module(name: str, arguments: list[str]) -> tuple[CodeType, ModuleType]:
    """A module or the ``__main__`` of a package."""
    sys.argv = ["-m", *arguments]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = None
    if spec is not None and isinstance(spec.loader, importlib.abc.InspectLoader):
        code = spec.loader.get_code(spec.name)
    if spec is None or code is None:
        raise ImportError(f"no module named {name}, or none that can be run")
    module = ModuleType("__main__")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__package__ = spec.parent
    sys.argv[0] = spec.origin or "-m"
    return code, module


_OUR_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OUR_FOLDER):
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for one in reversed(kept):
        rest = TracebackType(rest, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return rest


def _clean(error: BaseException | None, cleaned: set[int]) -> None:
    """Takes our frames from the tracebacks of an error and of those that led to it."""
    if error is not None and id(error) not in cleaned:
        cleaned.add(id(error))
        error.__traceback__ = _without_our_frames(error.__traceback__)
        _clean(error.__cause__, cleaned)
        _clean(error.__context__, cleaned)


def _hide_our_frames(code: CodeType) -> None:
    """Lets a traceback begin at the script, as python's does, and tell of no patch."""
    shown = sys.excepthook

    def from_the_script(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        start = trace
        while start is not None and start.tb_frame.f_code is not code:
            start = start.tb_next
        error.__traceback__ = start or trace
        _clean(error, set())
        shown(kind, error, error.__traceback__)

    sys.excepthook = from_the_script


def _write(report: safeops.Report, html: Path | None, json: Path | None) -> None:
    def show() -> None:
        print(f"\n{report}", file=sys.stderr)

    def save(path: Path, text: Callable[[], str]) -> None:
        path.write_text(text(), encoding="utf-8")
        print(f"safeops audit: wrote {path}", file=sys.stderr)

    views: list[Callable[[], None]] = [show]
    views += [partial(save, json, report.to_json)] if json is not None else []
    views += [partial(save, html, report.to_html)] if html is not None else []
    for view in views:
        # The exit code is the script's: a view that fails is a line on standard error.
        try:
            view()
        except Exception as error:
            print(f"safeops audit: the report is incomplete: {error!r}", file=sys.stderr)


def _audit(options: argparse.Namespace, code: CodeType, module: ModuleType) -> None:
    process = os.getpid()
    # For good: threads, exit handlers and spawned processes of the script look here as well.
    sys.modules["__main__"] = module
    module.__dict__["__builtins__"] = __builtins__
    audit = safeops.audit(options.policy, options.operators)
    _hide_our_frames(code)
    report = audit.__enter__()
    try:
        exec(code, module.__dict__)
    finally:
        audit.__exit__(*sys.exc_info())
        if os.getpid() == process:  # not in a child that the script forked
            _write(report, options.html, options.json)


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    if not given:
        parser.print_help()
        return
    ours, theirs = given, []
    if given[0] == "audit":
        ours, theirs = _split(given[1:])
        ours.insert(0, "audit")
    options = parser.parse_args(ours)
    if options.command == "config":
        print(safeops.show_config())
        return
    if not theirs or theirs == ["-m"]:
        parser.error("audit: a script or -m with a module is needed after the options")
    try:
        safeops.audit(options.policy, options.operators)
        if theirs[0] == "-m":
            code, module = _module(theirs[1], theirs[2:])
        else:
            code, module = _script(theirs[0], theirs[1:])
    except SyntaxError as error:
        sys.excepthook(SyntaxError, error.with_traceback(None), None)
        sys.exit(1)
    except (OSError, ImportError, ValueError) as error:
        parser.error(f"audit: {error}")
    _audit(options, code, module)


if __name__ == "__main__":
    main()
