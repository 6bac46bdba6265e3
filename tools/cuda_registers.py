"""Compares what ptxas allots to every kernel with the committed table.

Usage: python tools/cuda_registers.py [--update] LOG... reads what `ptxas -v` printed, one log per
source and architecture, named SOURCE.sm_NN.log. Exits with 1 and one line per finding, or with 0.

No kernel may use stack or spill registers, and none may take more than SLACK registers above
tools/cuda_registers.tsv: registers decide how many warps a multiprocessor holds. A kernel that the
table does not know is a finding, and so is one that has gone. Of an architecture that is not in the
table, such as that of the GPU at hand, only stack and spills are checked.
--update writes the table anew for the architectures of the logs, and still fails on spills.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("cuda_registers.tsv")
SLACK = 8

FUNCTION = re.compile(
    r"Function properties for (?P<name>\S+)\n"
    r"\s*(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r"(?:ptxas info\s*: Used (?P<registers>\d+) registers)?"
)
COMPILED = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>\w+)'")
LOG_NAME = re.compile(r"(?P<source>.+)\.(?P<arch>sm_\w+)\.log$")
# The compiler names an unnamed namespace after the path of the file.
UNNAMED = re.compile(r"_INTERNAL_\w+::|\(anonymous namespace\)::")

Key = tuple[str, str]  # source, kernel
Table = dict[Key, dict[str, int]]  # architecture: registers


class Usage(NamedTuple):
    """What one function takes; a kernel has registers, a function that it calls has not."""

    source: str
    kernel: str
    arch: str
    registers: int | None
    stack: int
    spills: int


def readable(names: Iterable[str]) -> list[str]:
    names = list(names)
    filtered = subprocess.run(
        ["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True
    ).stdout.splitlines()
    if len(filtered) != len(names):
        raise SystemExit("cuda_registers: c++filt lost names")
    return [short(name) for name in filtered]


def short(name: str) -> str:
    """Without what all kernels share: the return type, the project's namespaces, parameters."""
    name = UNNAMED.sub("", name).removeprefix("void ")
    name = re.sub(r"\bsafeops::(?:device::)?", "", name)
    depth = 0
    for position, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:position]
    return name


def parse(source: str, arch: str, log: str) -> list[Usage]:
    compiled = {match["name"] for match in COMPILED.finditer(log) if match["arch"] == arch}
    found = list(FUNCTION.finditer(log))
    usages = [
        Usage(
            source,
            name,
            arch,
            int(match["registers"]) if match["registers"] else None,
            int(match["stack"]),
            int(match["stores"]) + int(match["loads"]),
        )
        for match, name in zip(found, readable(m["name"] for m in found), strict=True)
    ]
    if len(compiled) != sum(usage.registers is not None for usage in usages):
        raise SystemExit(f"cuda_registers: the log of {source} for {arch} is not one of ptxas -v")
    return usages


def read_logs(paths: Iterable[str]) -> list[Usage]:
    usages: list[Usage] = []
    for path in paths:
        match = LOG_NAME.match(Path(path).name)
        if match is None:
            raise SystemExit(f"cuda_registers: {path} is not named SOURCE.sm_NN.log")
        usages += parse(match["source"], match["arch"], Path(path).read_text())
    return usages


def read_table(text: str) -> Table:
    if not text:
        return {}
    header, *lines = [line.split("\t") for line in text.splitlines()]
    archs = header[2:]
    return {
        (source, kernel): {
            arch: int(cell) for arch, cell in zip(archs, cells, strict=True) if cell != "-"
        }
        for source, kernel, *cells in lines
    }


def table_text(table: Table) -> str:
    archs = sorted(architectures(table), key=lambda arch: int(arch[3:]))
    lines = ["\t".join(["source", "kernel", *archs])]
    for (source, kernel), row in sorted(table.items()):
        lines.append("\t".join([source, kernel, *(str(row.get(arch, "-")) for arch in archs)]))
    return "\n".join(lines) + "\n"


def updated(table: Table, usages: list[Usage]) -> Table:
    read = {usage.arch for usage in usages}
    kept = {
        key: {arch: count for arch, count in row.items() if arch not in read}
        for key, row in table.items()
    }
    for usage in usages:
        if usage.registers is not None:
            kept.setdefault((usage.source, usage.kernel), {})[usage.arch] = usage.registers
    return {key: row for key, row in kept.items() if row}


def spills(usages: list[Usage]) -> list[str]:
    return [
        f"{usage.source}: {usage.kernel} for {usage.arch}: {usage.stack} bytes of stack, "
        f"{usage.spills} of spills"
        for usage in usages
        if usage.stack or usage.spills
    ]


def architectures(table: Table) -> set[str]:
    return {arch for row in table.values() for arch in row}


def differences(table: Table, usages: list[Usage]) -> list[str]:
    findings = []
    seen: set[tuple[Key, str]] = set()
    in_table = architectures(table)
    for usage in usages:
        if usage.registers is None or (table and usage.arch not in in_table):
            continue
        key = (usage.source, usage.kernel)
        name = f"{usage.source}: {usage.kernel} for {usage.arch}"
        seen.add((key, usage.arch))
        known = table.get(key, {}).get(usage.arch)
        if known is None:
            findings.append(f"{name} is not in {TABLE.name}: make update-cuda-registers")
        elif usage.registers > known + SLACK:
            findings.append(f"{name}: {usage.registers} registers, {known} in {TABLE.name}")
    read = {usage.arch for usage in usages}
    for key, row in sorted(table.items()):
        for arch in sorted(read.intersection(row)):
            if (key, arch) not in seen:
                findings.append(f"{': '.join(key)} for {arch} is in {TABLE.name} only")
    return findings


def main(arguments: list[str]) -> int:
    update = "--update" in arguments
    usages = read_logs(path for path in arguments if path != "--update")
    table = read_table(TABLE.read_text() if TABLE.exists() else "")
    if update:
        table = updated(table, usages)
        TABLE.write_text(table_text(table))
    findings = spills(usages) + differences(table, usages)
    for finding in findings:
        print(finding)
    kernels = [usage for usage in usages if usage.registers is not None]
    for arch in sorted({usage.arch for usage in kernels} - architectures(table)):
        print(f"cuda_registers: {arch} is not in {TABLE.name}: only spills were checked")
    archs = ", ".join(sorted({usage.arch for usage in kernels}))
    print(f"cuda_registers: {len(kernels)} kernels ({archs or 'none'}), {len(findings)} findings")
    return 1 if findings or not kernels else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
