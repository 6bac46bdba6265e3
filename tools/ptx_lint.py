"""Reads the PTX of every kernel and reports what would change values, or hurt on a device.

Usage: python tools/ptx_lint.py FILE.ptx... Exits with 1 and one line per finding, or with 0. A file
without kernels is a finding: nothing passes unread.

PTX and not machine code: what ptxas makes of a correctly rounded division or root contains flushing
and approximate instructions of its own, whose results it corrects.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REAL_TYPES = {"f16", "f16x2", "bf16", "bf16x2", "tf32", "f32", "f32x2", "f64"}
ROUNDINGS = {"rn", "rna", "rni", "rz", "rm", "rp"}
CALLS_THAT_STOP = {"vprintf", "__assertfail", "malloc", "free"}

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ENTRY = re.compile(r"\.entry\s+([\w$]+)")
# A guard, then the instruction with what qualifies it. Directives begin with a full stop.
INSTRUCTION = re.compile(r"(?:@!?%?\w+\s+)?(?P<name>[a-z][\w]*(?:(?:\.|::)\w+)*)(?=\s|$)")


class Finding(NamedTuple):
    line: int
    kernel: str
    message: str


def complaint(statement: str) -> str | None:
    """What is wrong with one statement, without its semicolon; None if nothing is."""
    if statement.startswith(".local"):
        return "local memory"
    match = INSTRUCTION.match(statement)
    if match is None:
        return None
    name = match["name"]
    base, *qualifiers = name.split(".")
    kinds = set(qualifiers)
    if kinds & {"approx", "full"}:
        return f"{name} is approximate"
    if "ftz" in kinds:
        return f"{name} flushes to zero"
    if kinds & REAL_TYPES:
        if base in {"add", "sub", "mul", "mad"} and not kinds & ROUNDINGS:
            return f"{name} names no rounding: ptxas may contract it"
        if base in {"atom", "red"} and "add" in kinds:
            return f"{name} adds in an order that chance decides"
    if "local" in kinds:
        return f"{name}: local memory"
    if base in {"trap", "brkpt"}:
        return f"{base} stops the context for good"
    if base == "call":
        called = CALLS_THAT_STOP.intersection(re.findall(r"[\w$]+", statement))
        if called:
            return f"calls {', '.join(sorted(called))}"
    return None


def without_comments(text: str) -> str:
    return COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of what stands between semicolons, braces and labels."""
    position, line = 0, 1
    for match in re.finditer(r"[;{}]|:(?=\s)|\Z", text):
        raw = text[position : match.start()]
        statement = raw.strip()
        if statement:
            yield line + raw.count("\n", 0, raw.index(statement[0])), " ".join(statement.split())
        line += text.count("\n", position, match.end())
        position = match.end()


def check(text: str) -> tuple[list[str], list[Finding]]:
    """The kernels in a PTX text, and the findings."""
    kernels: list[str] = []
    findings: list[Finding] = []
    for line, statement in statements(without_comments(text)):
        entry = ENTRY.search(statement)
        if entry:
            kernels.append(entry[1])
            continue
        message = complaint(statement)
        if message:
            findings.append(Finding(line, kernels[-1] if kernels else "no kernel", message))
    return kernels, findings


def main(paths: list[str]) -> int:
    read = found = 0
    for path in paths:
        kernels, findings = check(Path(path).read_text())
        read += len(kernels)
        found += len(findings)
        for finding in findings:
            print(f"{path}:{finding.line}: {finding.message}, in {finding.kernel}")
        if not kernels:
            found += 1
            print(f"{path}: no kernel")
    print(f"ptx_lint: {read} kernels in {len(paths)} files, {found} findings")
    return 1 if found or not read else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
