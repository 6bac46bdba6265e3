"""One stage in a process of its own.

Usage: python stage.py NAME FOLDER NOTES SECONDS [--dry-run]. Exits with 0 if the stage passed, 1
if something is wrong, 4 if it could not be run, and 5 if a part of it was not. What it finds it
writes to NOTES as it goes.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SKIPPED = 4
INCOMPLETE = 5


class Skip(Exception):
    """Something that this machine lacks and that may be missing."""


@dataclass
class Context:
    folder: Path
    notes_path: Path
    seconds: float
    dry: bool
    notes: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def note(self, **values: Any) -> None:
        self.notes |= values
        self._save()

    def expect(self, condition: bool, what: str) -> None:
        """Counts a check. One that does not hold fails the stage at its end, not at once."""
        self.notes["checks"] = self.notes.get("checks", 0) + 1
        if not condition:
            self.wrong.append(what)
            self.notes["wrong"] = self.wrong[:50]
            self._save()

    def lack(self, what: str) -> None:
        """Something that was not checked and should have been: the stage has not passed."""
        self.missing.append(what)
        self.note(not_checked=self.missing)

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.started)

    def _save(self) -> None:
        self.notes_path.write_text(json.dumps(self.notes, indent=1) + "\n")


def run(name: str, context: Context) -> int:
    try:
        importlib.import_module(f"stage_{name}").run(context)
    except Skip as missing:
        context.note(skipped=str(missing))
        print(f"{name}: skipped: {missing}")
        return SKIPPED
    context.note(checks=context.notes.get("checks", 0))
    for what in context.wrong[:20]:
        print(f"{name}: {what}")
    for what in context.missing:
        print(f"{name}: not checked: {what}")
    if context.wrong:
        return 1
    if context.missing:
        return INCOMPLETE
    if not context.notes["checks"]:
        print(f"{name}: nothing was checked")
        return 1
    return 0


def main(words: list[str]) -> int:
    name, folder, notes, seconds, *rest = words
    context = Context(Path(folder), Path(notes), float(seconds), "--dry-run" in rest)
    # Stages import what this module defines, of which there must be one.
    sys.modules.setdefault("stage", sys.modules[__name__])
    return run(name, context)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
