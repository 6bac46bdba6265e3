"""What the program that needs no torch prints: a line per launch."""

from __future__ import annotations

import re

LINE = re.compile(r"^(?P<what>[^:]+): (?P<hash>[0-9a-f]{16}) (?P<rest>.*)$", re.MULTILINE)


def hashes(output: str) -> dict[str, str]:
    lines = list(LINE.finditer(output))
    found = {line["what"]: line["hash"] for line in lines}
    if len(found) != len(lines):
        raise ValueError("two launches have the same name")
    return found
